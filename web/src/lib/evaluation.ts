// What an evaluation says: how two versions differ, and the runs of each case.
import type { EvaluationDifference, EvaluationResult } from "../api/types";

export interface Verdict {
  kind: "same" | "chance" | "better" | "worse"; // of the first version
  text: string;
}

// verdict says how the first version differs from the second one in a figure. More passes are better; less
// of any other figure is.
export function verdict(d: EvaluationDifference, first: string): Verdict {
  if (d.first === d.second) return { kind: "same", text: "the same" };
  if (d.within_chance) return { kind: "chance", text: "within chance" };
  const better = d.first > d.second === (d.figure === "passed");
  return better ? { kind: "better", text: `${first} is better` } : { kind: "worse", text: `${first} is worse` };
}

export interface Case {
  name: string;
  runs: EvaluationResult[][]; // by version
  failed: EvaluationResult[]; // in the order of the versions
}

// passed is true of a run that met all expectations of its case.
export const passed = (r: EvaluationResult): boolean => !r.failures?.length;

// casesOf returns the cases of an evaluation in the order of its file.
export function casesOf(results: EvaluationResult[], versions: string[]): Case[] {
  const cases = new Map<string, Case>();
  for (const r of results) {
    let c = cases.get(r.case);
    if (!c) cases.set(r.case, (c = { name: r.case, runs: versions.map(() => []), failed: [] }));
    c.runs[versions.indexOf(r.version)]?.push(r);
  }
  for (const c of cases.values()) {
    for (const runs of c.runs) runs.sort((a, b) => a.repeat - b.repeat);
    c.failed = c.runs.flat().filter((r) => !passed(r));
  }
  return [...cases.values()];
}
