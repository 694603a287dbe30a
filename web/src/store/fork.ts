// What may be changed in a fork: the version of the agent, its instructions, what was said, what
// tools answered in the turn behind which it begins.
import { signal, type Signal } from "@preact/signals";
import { get } from "../api/client";
import type { Agent, AgentVersions, Event, Message, Part, Run } from "../api/types";
import type { ForkChange } from "./actions";
import { conversationOf } from "../lib/conversation";

// Called is a call of the turn, with what it has come to.
export interface Called {
  key: string;
  id: string;
  name: string;
  turn: number;
  content: string;
  isError: boolean;
}

// Edits are what somebody has written; what is left out stays as it is.
export interface Edits {
  version?: number;
  instructions?: string;
  message?: string;
  results: { [key: string]: string };
}

export class ForkModel {
  readonly versions: Signal<number[]> = signal([]);
  readonly definitions: Signal<ReadonlyMap<number, Agent>> = signal(new Map());

  constructor(readonly run: Run) {
    void this.read();
    void this.want(run.agent_version);
  }

  private path = (more: string): string => `/v1/agents/${encodeURIComponent(this.run.agent)}${more}`;

  private async read(): Promise<void> {
    try {
      const page = await get<AgentVersions>(this.path("/versions?limit=50"));
      this.versions.value = page.items.map((v) => v.version);
    } catch {
      this.versions.value = []; // a draft, or an agent that was removed: it has this version alone
    }
  }

  // want reads the definition of a version, if it is there.
  async want(version: number): Promise<void> {
    if (this.definitions.peek().has(version)) return;
    try {
      const a = await get<Agent>(this.path(`?version=${version}`));
      this.definitions.value = new Map(this.definitions.peek()).set(version, a);
    } catch {
      return; // the gateway says what is wrong with it when the fork is sent
    }
  }

  instructions(version: number): string | null {
    const d = this.definitions.value.get(version)?.definition;
    if (!d) return null;
    return typeof d["instructions"] === "string" ? d["instructions"] : "";
  }
}

// calledIn lists the calls of a turn that have a result.
export function calledIn(entries: Event[], turn: number): Called[] {
  const out: Called[] = [];
  for (const item of conversationOf(entries)) {
    if (item.kind !== "message" || item.message?.turn !== turn || !item.results) continue;
    for (const [id, e] of item.results) {
      const part = e.message?.parts?.find((p) => p.call_id === id);
      const name = item.message.parts?.find((p) => p.type === "tool_call" && p.id === id)?.name ?? id;
      if (part) out.push({ key: `${item.key}/${id}`, id, name, turn: e.message?.turn ?? turn, content: part.content ?? "", isError: !!part.is_error });
    }
  }
  return out;
}

// submittedIn is what was said last in the submission, if it has a text.
export function submittedIn(entries: Event[]): Message | null {
  const all = entries[0]?.messages ?? [];
  return all.filter((m) => m.role === "user" && textOf(m) !== null).at(-1) ?? null;
}

export const textOf = (m: Message): string | null => m.parts?.find((p) => p.type === "text")?.text ?? null;

function withText(m: Message, text: string): Part[] {
  const first = m.parts?.findIndex((p) => p.type === "text");
  return (m.parts ?? []).map((p, i) => (i === first ? { ...p, text } : p));
}

// changeOf is the request of what somebody has written, without what they left as it was.
export function changeOf(model: ForkModel, turn: number, said: Message | null, calls: Called[], edits: Edits): ForkChange {
  const out: ForkChange = { turn };
  const version = edits.version ?? model.run.agent_version;
  if (version !== model.run.agent_version) out.agent_version = version;
  if (edits.instructions !== undefined && edits.instructions !== model.instructions(version)) out.instructions = edits.instructions;
  if (said) {
    if (edits.message !== undefined && edits.message !== textOf(said)) out.messages = [{ id: said.id, parts: withText(said, edits.message) }];
  } else if (edits.message) {
    out.input = edits.message;
  }
  const results = calls.filter((c) => edits.results[c.key] !== undefined && edits.results[c.key] !== c.content);
  if (results.length) out.tool_results = results.map((c) => ({ call_id: c.id, turn: c.turn, content: edits.results[c.key]!, is_error: c.isError }));
  return out;
}
