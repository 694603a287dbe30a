import { randomUUID } from "node:crypto";
import { Changed, NotFound } from "./errors.js";
import { Run } from "./run.js";
import { query, type Transport } from "./transport.js";
import type { MemoryFile, ScheduleInfo, ScheduleSettings, TriggerInfo, TriggerSettings } from "./types.js";

/**
 * The files that agents keep for later runs, of one scope: tenant, agent:NAME or metadata.KEY:VALUE. Paths are relative
 * to /memories. A change with a `version` is made only if the file has that version, and throws Changed if not; version
 * 0 stands for no file.
 */
export class Memory {
  readonly #transport: Transport;

  constructor(transport: Transport, readonly scope: string) {
    this.#transport = transport;
  }

  /** Yields the files by path, without their contents. A memory that does not exist has none. */
  files(): AsyncGenerator<MemoryFile, void, undefined> {
    return this.#transport.pages("/v1/memory", { scope: this.scope });
  }

  /** Reads a file. Throws NotFound if there is none. */
  read(path: string): Promise<MemoryFile & { content: string }> {
    return this.#call("GET", path);
  }

  /** Writes a file. */
  async write(path: string, content: string, options: { version?: number } = {}): Promise<MemoryFile & { content: string }> {
    try {
      return await this.#call("PUT", path, { content }, options.version);
    } catch (e) {
      if (e instanceof Changed && e.retried) {
        const now = await this.#find(path);
        if (now?.content === content) return now; // by an earlier try
      }
      throw e;
    }
  }

  /** Deletes a file, or all files of a directory. */
  async delete(path: string, options: { version?: number } = {}): Promise<void> {
    try {
      await this.#call("DELETE", path, undefined, options.version);
    } catch (e) {
      if (!(e instanceof Changed && e.retried)) throw e;
      const below = path.replace(/^\/memories\//, "");
      for await (const f of this.files()) if (f.path === below || f.path.startsWith(`${below}/`)) throw e;
    }
  }

  /** Deletes the memory with all its files. Throws NotFound if there is none. */
  erase(): Promise<void> {
    return this.#transport.call("DELETE", `/v1/memory${query({ scope: this.scope })}`);
  }

  async #find(path: string): Promise<(MemoryFile & { content: string }) | undefined> {
    try {
      return await this.read(path);
    } catch (e) {
      if (e instanceof NotFound) return undefined;
      throw e;
    }
  }

  async #call<T>(method: string, path: string, body?: unknown, ifMatch?: number): Promise<T> {
    // As one segment: a server would resolve dots and slashes to another resource. URLs of Node.js resolve . and .. alone.
    if (path === "." || path === "..") throw new TypeError(`${path} is not the path of a file: write one such as notes.md`);
    const at = `/v1/memory/${encodeURIComponent(path).replaceAll(".", "%2E")}${query({ scope: this.scope })}`;
    return this.#transport.call(method, at, body, ifMatch === undefined ? {} : { ifMatch });
  }
}

/** Starts a run at fixed times. */
export class Schedule {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, readonly name: string) {
    this.#transport = transport;
    this.#path = `/v1/schedules/${encodeURIComponent(name)}`;
  }

  /** Stores the settings, all of them. The schedule fires for instants from then on. */
  put(settings: ScheduleSettings): Promise<ScheduleInfo> {
    return this.#transport.call("PUT", this.#path, settings);
  }

  /** Reads the settings, the next instants and the latest firing. */
  get(): Promise<ScheduleInfo> {
    return this.#transport.call("GET", this.#path);
  }

  /** Stops the schedule from firing until `resume`. */
  pause(): Promise<ScheduleInfo> {
    return this.#transport.call("POST", `${this.#path}/pause`);
  }

  /** Lets the schedule fire again, for instants from then on. */
  resume(): Promise<ScheduleInfo> {
    return this.#transport.call("POST", `${this.#path}/resume`);
  }

  /**
   * Starts the run now, whatever `overlap` says and also while the schedule is paused. The same key gives the same run;
   * without one each call starts a run.
   */
  async run(key: string = randomUUID()): Promise<Run> {
    const made = await this.#transport.call<{ id: string }>("POST", `${this.#path}/run`, undefined, { key });
    return new Run(this.#transport, made.id);
  }

  /** Removes the schedule. Its runs stay. */
  delete(): Promise<void> {
    return this.#transport.call("DELETE", this.#path);
  }
}

/** Starts runs, or sends signals, for the messages of a JetStream stream. */
export class Trigger {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, readonly name: string) {
    this.#transport = transport;
    this.#path = `/v1/triggers/${encodeURIComponent(name)}`;
  }

  /** Stores the settings, all of them. Gateways use them within two seconds. */
  put(settings: TriggerSettings): Promise<TriggerInfo> {
    return this.#transport.call("PUT", this.#path, settings);
  }

  /** Reads the settings, and what became of the messages. */
  get(): Promise<TriggerInfo> {
    return this.#transport.call("GET", this.#path);
  }

  /** Removes the trigger with its consumer. Its runs stay. */
  delete(): Promise<void> {
    return this.#transport.call("DELETE", this.#path);
  }
}
