import { ArgumentsError } from "./errors.js";
import { checkSchema, type FromSchema, mismatch, type ObjectSchema } from "./schema.js";

/** A picture: data in base64 with its media type, or a URL. */
export interface Image {
  media_type?: string;
  data?: string;
  url?: string;
}

/** A file in a result: data in base64 or a URL, with a media type, or the id of an uploaded file of the run's tenant. */
export interface ResultFile {
  file_id?: string;
  name?: string;
  media_type?: string;
  data?: string;
  url?: string;
}

/**
 * A result with more than a content. `pending` means that the tool has accepted the call and its result comes later, by
 * `Run.toolResult`: only for tools that the agent declares async.
 */
export class Result {
  constructor(readonly content: unknown, readonly more: { images?: Image[]; files?: ResultFile[]; pending?: boolean } = {}) {}
}

/** The call that a function makes. */
export interface Context {
  readonly runId: string;
  readonly callId: string;
  /** The same for every attempt at this call and for no other: pass it to the system that the tool changes. */
  readonly idempotencyKey: string;
  readonly deadline: Date | undefined;
  readonly traceParent: string;
  /** Aborted at the deadline and when the caller stops waiting. */
  readonly signal: AbortSignal;
  /** Reports progress to current readers of the run's events: the first 1,000 bytes. Reports may be lost: workers
   * forward at most one every 200 ms for each call and drop the others. */
  progress(text: string): void;
}

/** What a tool is made of. */
export interface ToolOptions<S extends ObjectSchema> {
  name: string;
  /** For the model: what the tool does, and when to use it. */
  description?: string;
  /** A semantic version; default 1.0.0. */
  version?: string;
  /** How many calls run at once in this process; default 64. Others wait. */
  concurrency?: number;
  /** The JSON Schema of the arguments. Arguments that do not match never reach `run`. */
  input: S;
  /** Returns a text, or anything that is JSON. */
  run(input: FromSchema<S>, context: Context): unknown;
}

/** A function that agents may call. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly version: string;
  readonly concurrency: number;
  readonly schema: ObjectSchema;
  /** Makes a call. Throws ArgumentsError if the arguments do not match the schema. */
  call(input: unknown, context: Context): Promise<unknown>;
}

/**
 * Makes a tool. The types of the arguments are those of the schema. An object without `additionalProperties` takes no
 * others than its properties. Throws a TypeError if the name, the version or the schema cannot be used.
 */
export function tool<const S extends ObjectSchema>(o: ToolOptions<S>): Tool {
  if (!/^[a-zA-Z0-9_-]{1,64}$/.test(o.name)) throw new TypeError(`tool ${o.name}: its name is not valid: use 1 to 64 letters, digits, - and _`);
  const version = o.version ?? "1.0.0";
  if (!/^\d+\.\d+\.\d+([-+].+)?$/.test(version)) throw new TypeError(`tool ${o.name}: its version ${version} is not a semantic version: write one such as 1.0.0`);
  checkSchema(o.input, `tool ${o.name}`);
  const schema: ObjectSchema = o.input.properties ? { additionalProperties: false, ...o.input } : o.input;
  return {
    name: o.name, description: o.description ?? "", version, concurrency: o.concurrency ?? 64, schema,
    async call(input, context) {
      const object = typeof input === "object" && input !== null && !Array.isArray(input);
      const reason = object ? mismatch(schema, input) : "they are not a JSON object: send one";
      if (reason) throw new ArgumentsError(`Invalid arguments for tool "${o.name}": ${reason}`);
      return o.run(input as FromSchema<S>, context);
    },
  };
}
