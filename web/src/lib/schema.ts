// What of JSON Schema tells a person at once that edited arguments cannot be right. The
// gateway and the tool decide; what is not understood here is let through.
import type { JSONValue } from "../api/types";

type Schema = { [key: string]: JSONValue };
const isObject = (v: JSONValue | undefined): v is Schema => typeof v === "object" && v !== null && !Array.isArray(v);

const typeOf = (v: JSONValue): string => (v === null ? "null" : Array.isArray(v) ? "array" : typeof v);
const fits = (v: JSONValue, type: string): boolean => (type === "integer" ? Number.isInteger(v) : typeOf(v) === type);

export function violations(schema: JSONValue | undefined, value: JSONValue, path = ""): string[] {
  if (!isObject(schema)) return [];
  const name = path || "the arguments";
  const types = schema["type"] === undefined ? [] : [schema["type"]].flat().filter((t): t is string => typeof t === "string");
  if (types.length && !types.some((t) => fits(value, t))) return [`${name} must be ${types.join(" or ")}, not ${typeOf(value)}`];
  const out: string[] = [];
  const choices = schema["enum"];
  if (Array.isArray(choices) && !choices.some((c) => JSON.stringify(c) === JSON.stringify(value))) out.push(`${name} must be one of ${choices.map((c) => JSON.stringify(c)).join(", ")}`);
  if (typeof value === "number") {
    const bound = (key: string, bad: (n: number) => boolean, text: string): void => {
      const n = schema[key];
      if (typeof n === "number" && bad(n)) out.push(`${name} must be ${text} ${n}`);
    };
    bound("minimum", (n) => value < n, "at least");
    bound("maximum", (n) => value > n, "at most");
    bound("exclusiveMinimum", (n) => value <= n, "above");
    bound("exclusiveMaximum", (n) => value >= n, "below");
  }
  if (typeof value === "string") {
    const [min, max] = [schema["minLength"], schema["maxLength"]];
    if (typeof min === "number" && value.length < min) out.push(`${name} must have at least ${min} characters`);
    if (typeof max === "number" && value.length > max) out.push(`${name} must have at most ${max} characters`);
  }
  if (Array.isArray(value)) value.forEach((v, i) => out.push(...violations(schema["items"], v, `${path}[${i}]`)));
  if (isObject(value)) out.push(...ofObject(schema, value, path));
  return out;
}

function ofObject(schema: Schema, value: Schema, path: string): string[] {
  const out: string[] = [];
  const inner = (k: string): string => (path ? path + "." : "") + k;
  const known = isObject(schema["properties"]) ? schema["properties"] : {};
  for (const k of Array.isArray(schema["required"]) ? schema["required"] : []) if (typeof k === "string" && !(k in value)) out.push(`${inner(k)} is missing`);
  for (const [k, v] of Object.entries(value)) {
    if (k in known) out.push(...violations(known[k], v, inner(k)));
    else if (schema["additionalProperties"] === false) out.push(`${inner(k)} is not known`);
    else out.push(...violations(schema["additionalProperties"], v, inner(k)));
  }
  return out;
}

export interface Change {
  path: string;
  from?: JSONValue;
  to?: JSONValue;
}

// changes lists where two values differ.
export function changes(a: JSONValue, b: JSONValue, path = ""): Change[] {
  if (JSON.stringify(a) === JSON.stringify(b)) return [];
  if (!isObject(a) || !isObject(b)) return [{ path: path || "all", from: a, to: b }];
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].flatMap((k) => {
    const p = path ? `${path}.${k}` : k;
    if (!(k in a)) return [{ path: p, to: b[k]! }];
    if (!(k in b)) return [{ path: p, from: a[k]! }];
    return changes(a[k]!, b[k]!, p);
  });
}
