// JSON values as YAML, the way a person would write them.
import type { JSONValue } from "../api/types";

const plain = /^[A-Za-z_][A-Za-z0-9_./ -]*$/;
const reserved = /^(true|false|null|yes|no|on|off|y|n|nan|inf)$/i;

const quoted = (s: string): string => JSON.stringify(s).replace(/[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const scalar = (s: string): string => (plain.test(s) && !reserved.test(s) && !s.endsWith(" ") ? s : quoted(s));

// block is whether a text can stand in lines of its own.
const block = (s: string): boolean => s.includes("\n") && !/^[\s]/.test(s) && !/[^\n\t\x20-\x7e\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]/.test(s);

function leaf(v: JSONValue): string | null {
  if (typeof v === "string") return block(v) ? null : scalar(v);
  if (v === null || typeof v !== "object") return String(v);
  if (Array.isArray(v)) {
    if (!v.length) return "[]";
    if (v.some((x) => (typeof x === "object" && x !== null) || (typeof x === "string" && x.includes("\n")))) return null;
    const text = "[" + v.map((x) => leaf(x)).join(", ") + "]";
    return text.length <= 80 ? text : null;
  }
  return Object.keys(v).length ? null : "{}";
}

function lines(v: JSONValue, pad: string): string[] {
  const out: string[] = [];
  if (Array.isArray(v)) {
    for (const x of v) {
      const one = leaf(x);
      if (one !== null) out.push(`${pad}- ${one}`);
      else if (typeof x === "string") out.push(...text(`${pad}- `, x, pad + "  "));
      else {
        const inner = lines(x, pad + "  ");
        out.push(`${pad}- ${inner[0]!.slice(pad.length + 2)}`, ...inner.slice(1));
      }
    }
  } else if (typeof v === "object" && v !== null) {
    for (const [k, x] of Object.entries(v)) {
      const key = `${pad}${scalar(k)}:`;
      const one = leaf(x);
      if (one !== null) out.push(`${key} ${one}`);
      else if (typeof x === "string") out.push(...text(key + " ", x, pad + "  "));
      else out.push(key, ...lines(x, pad + "  "));
    }
  }
  return out;
}

function text(head: string, s: string, pad: string): string[] {
  const end = s.endsWith("\n\n") ? "|+" : s.endsWith("\n") ? "|" : "|-";
  const body = s.endsWith("\n") ? s.slice(0, -1) : s;
  return [head + end, ...body.split("\n").map((l) => (l ? pad + l : ""))];
}

export function toYAML(v: JSONValue): string {
  const one = leaf(v);
  return (one ?? lines(v, "").join("\n")) + "\n";
}
