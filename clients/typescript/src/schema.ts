// JSON Schemas as TypeScript sees them: the type of a value, and a check of one at run time.

/** The part of JSON Schema that this package checks. `tool` throws a TypeError for any other keyword. */
export interface Schema {
  readonly type?: TypeName | readonly TypeName[];
  readonly description?: string;
  readonly title?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: { readonly [name: string]: Schema };
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly anyOf?: readonly Schema[];
}

type TypeName = "object" | "array" | "string" | "number" | "integer" | "boolean" | "null";

/** An object's schema: that of the arguments of a tool. */
export type ObjectSchema = Schema & { readonly type: "object" };

/** The type of the values that match a schema, written as a literal. */
export type FromSchema<S> =
  S extends { readonly const: infer C } ? C
  : S extends { readonly enum: readonly (infer E)[] } ? E
  : S extends { readonly anyOf: readonly (infer A)[] } ? FromSchema<A>
  : S extends { readonly type: readonly (infer T)[] } ? (T extends unknown ? OfType<T, S> : never)
  : S extends { readonly type: infer T } ? OfType<T, S>
  : unknown;

type OfType<T, S> =
  T extends "string" ? string
  : T extends "number" | "integer" ? number
  : T extends "boolean" ? boolean
  : T extends "null" ? null
  : T extends "array" ? (S extends { readonly items: infer I } ? FromSchema<I>[] : unknown[])
  : T extends "object" ? OfObject<S>
  : unknown;

type OfObject<S> = S extends { readonly properties: infer P }
  ? Simplify<
      { -readonly [K in keyof P as K extends RequiredOf<S> ? K : never]: FromSchema<P[K]> } &
      { -readonly [K in keyof P as K extends RequiredOf<S> ? never : K]?: FromSchema<P[K]> }
    >
  : S extends { readonly additionalProperties: infer A extends Schema } ? Record<string, FromSchema<A>>
  : Record<string, unknown>;

type RequiredOf<S> = S extends { readonly required: readonly (infer R)[] } ? R : never;
type Simplify<T> = { [K in keyof T]: T[K] };

const keywords = new Set([
  "type", "description", "title", "default", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems",
  "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf",
]);

/** Throws a TypeError if a schema has a keyword that `mismatch` does not check. */
export function checkSchema(schema: Schema, at = "the schema"): void {
  for (const key of Object.keys(schema)) {
    if (!keywords.has(key)) throw new TypeError(`${at}: the keyword ${key} is not supported: use one of ${[...keywords].join(", ")}`);
  }
  for (const [name, property] of Object.entries(schema.properties ?? {})) checkSchema(property, `${at}.${name}`);
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(schema.properties ?? {}, name)) throw new TypeError(`${at}: ${name} is required, but not among the properties: declare it there`);
  }
  if (schema.items) checkSchema(schema.items, `${at}[]`);
  if (typeof schema.additionalProperties === "object") checkSchema(schema.additionalProperties, `${at}.*`);
  for (const option of schema.anyOf ?? []) checkSchema(option, at);
  if (schema.pattern !== undefined) new RegExp(schema.pattern, "u");
}

/** Returns why a value does not match a schema, with the place, or nothing. */
export function mismatch(schema: Schema, value: unknown, at = ""): string | undefined {
  const here = at || "the value";
  const types = schema.type === undefined ? [] : Array.isArray(schema.type) ? schema.type as TypeName[] : [schema.type as TypeName];
  if (types.length > 0 && !types.some((t) => isOf(t, value))) return `${here}: is ${show(value)}, but must be of type ${types.join(" or ")}`;
  const allowed = schema.enum ?? ("const" in schema ? [schema.const] : undefined);
  if (allowed && !allowed.some((a) => JSON.stringify(a) === JSON.stringify(value))) {
    return `${here}: is ${show(value)}, but must be one of ${allowed.map(show).join(", ")}`;
  }
  if (schema.anyOf) {
    const reasons = schema.anyOf.map((option) => mismatch(option, value, at));
    if (!reasons.includes(undefined)) return reasons.join("; or ");
  }
  if (typeof value === "number") return bounds(schema.minimum, schema.maximum, value, `${here}: is ${value}`);
  if (typeof value === "string") {
    if (schema.pattern !== undefined && !new RegExp(schema.pattern, "u").test(value)) return `${here}: does not match ${schema.pattern}`;
    const length = [...value].length;
    return bounds(schema.minLength, schema.maxLength, length, `${here}: has ${length} characters`);
  }
  if (Array.isArray(value)) {
    const reason = bounds(schema.minItems, schema.maxItems, value.length, `${here}: has ${value.length} items`);
    if (reason || !schema.items) return reason;
    const items = schema.items;
    return first(value.map((v, i) => () => mismatch(items, v, `${at}[${i}]`)));
  }
  return isOf("object", value) ? ofObject(schema, value as Record<string, unknown>, at) : undefined;
}

function ofObject(schema: Schema, value: Record<string, unknown>, at: string): string | undefined {
  const within = (name: string) => (at ? `${at}.${name}` : name);
  const missing = (schema.required ?? []).find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return `${within(missing)}: is missing`;
  return first(Object.entries(value).map(([name, v]) => () => {
    if (Object.hasOwn(schema.properties ?? {}, name)) return mismatch((schema.properties as Record<string, Schema>)[name] as Schema, v, within(name));
    if (schema.additionalProperties === false) {
      return `${within(name)}: unknown field; the fields here are ${Object.keys(schema.properties ?? {}).join(", ") || "none"}`;
    }
    return typeof schema.additionalProperties === "object" ? mismatch(schema.additionalProperties, v, within(name)) : undefined;
  }));
}

function isOf(type: TypeName, value: unknown): boolean {
  switch (type) {
    case "null": return value === null;
    case "array": return Array.isArray(value);
    case "object": return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer": return Number.isInteger(value);
    default: return typeof value === type;
  }
}

function bounds(least: number | undefined, most: number | undefined, value: number, what: string): string | undefined {
  if (least !== undefined && value < least) return `${what}, at least ${least} is allowed`;
  if (most !== undefined && value > most) return `${what}, at most ${most} is allowed`;
  return undefined;
}

function first(checks: (() => string | undefined)[]): string | undefined {
  for (const check of checks) {
    const reason = check();
    if (reason) return reason;
  }
  return undefined;
}

function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
