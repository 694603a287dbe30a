// Definitions that wait for review, in tenants that want it.
import { post, request } from "../api/client";
import type { Agent, AgentDraft } from "../api/types";
import { List } from "./list";

export const reviews = new List<AgentDraft>(() => "/v1/agents?status=draft&limit=1000", 15_000);

const path = (name: string, more: string): string => `/v1/agents/${encodeURIComponent(name)}${more}`;

// publish names the hash of the draft that was looked at: the gateway refuses another one.
export const publish = (draft: AgentDraft): Promise<Agent> => post<Agent>(path(draft.name, "/publish"), { hash: draft.hash });
export const discard = (draft: AgentDraft): Promise<unknown> => request("DELETE", path(draft.name, "/draft"));
