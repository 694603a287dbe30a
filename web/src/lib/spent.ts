// What runs have spent.

// sumOf adds up the costs that are known. It is null if none is: an unknown cost is not zero.
export function sumOf(costs: Iterable<number | null>): number | null {
  let sum: number | null = null;
  for (const c of costs) if (c !== null) sum = (sum ?? 0) + c;
  return sum;
}

// percent is a used share of a limit. A run can exceed its limit by its last model call.
export const percent = (used: number): string => `${Math.round(used * 100)} %`;

// costFact says what a run has cost, as far as that is known, and its limit.
export function costFact(cost: number | null, limit: number | null, money: (usd: number) => string): string {
  if (limit === null) return cost === null ? "" : money(cost);
  return cost === null ? `cost unknown, limit ${money(limit)}` : `${money(cost)} of ${money(limit)}`;
}
