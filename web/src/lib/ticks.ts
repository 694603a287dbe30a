// Texts of the gateway set code in backticks, as the documentation does.

export interface Piece {
  text: string;
  code: boolean;
}

// ticked takes a text apart at its backticks. One that has no end stays as it is.
export function ticked(text: string): Piece[] {
  const parts = text.split("`");
  if (parts.length % 2 === 0) parts.push(parts.splice(-2).join("`"));
  return parts.map((part, i) => ({ text: part, code: i % 2 === 1 })).filter((p) => p.text !== "");
}
