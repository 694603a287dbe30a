// The keys of a definition and where they stand, for completion. A test holds the list to
// what the gateway reads.
export interface Key {
  name: string;
  about: string;
  values?: string[];
}

const k = (name: string, about: string, values?: string[]): Key => (values ? { name, about, values } : { name, about });
const yes = ["true", "false"];

const hook = [
  k("kind", "who is asked", ["go", "nats", "cel"]),
  k("tools", "of pre_tool: the tools whose calls it is asked about"),
  k("timeout", "of one question"),
  k("on_error", "what a hook that fails amounts to", ["deny", "allow"]),
];
const model = [
  k("provider", "who serves the model", ["scripted", "openai", "anthropic", "gemini"]),
  k("name", "of the model"),
  k("api_key", "a reference: secret://NAME"),
  k("base_url", "of a compatible server"),
  k("api", "of the provider openai", ["responses", "chat"]),
  k("max_output_tokens", "of one response"),
  k("reasoning", "how much it thinks before it answers", ["none", "low", "medium", "high", "xhigh", "max"]),
  k("temperature", "of sampling"),
  k("top_p", "of sampling: share of the probable tokens"),
  k("top_k", "of sampling: number of the probable tokens"),
  k("stop", "texts at which an answer ends"),
  k("seed", "of sampling, for answers that are more alike"),
  k("tool_choice", "whether it calls tools; also {name: TOOL}", ["auto", "none", "any"]),
  k("parallel_tool_calls", "whether one answer may call several tools", yes),
  k("service_tier", "how fast, and for which price", ["standard", "flex", "priority"]),
  k("extra", "fields of the request that the operator allows"),
  k("timeout", "of one model call; default 10m"),
  k("fallback", "models that are asked when this one fails"),
  k("responses", "of the scripted provider: what it says, one after the other"),
  k("responses_file", "a file that has them, read by the command line"),
];

export const keys: Record<string, Key[]> = {
  "": [
    k("name", "a-z, 0-9, _ and -; at most 64"),
    k("description", "for people only"),
    k("instructions", "what the model is told first"),
    k("model", "which model it talks to"),
    k("loop", "how it goes about its work"),
    k("tools", "what it can do"),
    k("hooks", "who may object"),
    k("limits", "what each run may take"),
    k("retention", "how long its runs are kept"),
    k("compaction", "when the history is shortened"),
    k("output_schema", "a JSON Schema of the answer"),
    k("max_output_retries", "how often an answer that does not match is returned; default 2"),
    k("variables", "a JSON Schema of the values that {{name}} in instructions stands for"),
  ],
  model,
  "model.fallback": model,
  loop: [
    k("type", "the loop", ["react", "single_call", "reflect", "two_phase"]),
    k("max_turns", "model calls; default 20, at most 200"),
    k("on_limit", "how a run ends at max_turns", ["end", "answer"]),
    k("converse", "an answer waits for the next message", yes),
    k("tool_loop_threshold", "ends a run that makes the same calls so often in a row"),
    k("confidence_threshold", "of reflect: ends the run; default 0.85"),
    k("enable_reflection", "of reflect", yes),
    k("reflect_interval", "of reflect: in every how many turns"),
    k("tell_guidance", "of reflect: tells the model what was found", yes),
    k("terminal_tools", "of reflect: tools after which the run is complete"),
    k("max_steps", "of two_phase: of its first phase; default 5"),
  ],
  tools: [
    k("name", "once in an agent"),
    k("kind", "what it is; default go", ["go", "nats", "client", "human", "agent", "http", "mcp", "a2a"]),
    k("description", "what the model sees"),
    k("schema", "a JSON Schema of its arguments"),
    k("approval", "always, never, or a rule over args", ["always", "never"]),
    k("risk", "what a call does, for whoever decides about it", ["reads", "writes", "pays", "sends"]),
    k("idempotent", "a second call does no harm", yes),
    k("probe", "who knows what a lost call came to"),
    k("reuse", "false makes the same call again", yes),
    k("async", "may answer later", yes),
    k("timeout", "of one call; default 2m"),
    k("concurrency", "alone, or beside others", ["parallel", "serial"]),
    k("max_calls", "in one run"),
    k("max_result", "bytes that the model sees; default 128 KiB"),
    k("url", "of http, mcp, a2a"),
    k("method", "of http", ["GET", "POST", "PUT", "PATCH", "DELETE"]),
    k("query", "of http"),
    k("headers", "of http, mcp"),
    k("token", "of a2a: a reference, secret://NAME"),
    k("command", "of mcp: the program and its arguments"),
    k("env", "of mcp: variables of the program"),
    k("allow", "of mcp: the tools that are taken"),
    k("agent", "of agent: whom it calls"),
    k("max_depth", "of agent: how far down; default 10"),
    k("variables", "of agent: values of its variables"),
  ],
  limits: [
    k("max_turns", "as loop.max_turns"),
    k("output_tokens", "with child runs"),
    k("total_tokens", "with child runs"),
    k("cost_usd", "with child runs"),
    k("deadline", "from the submission: 10m"),
    k("wait", "of each wait for somebody: 24h"),
    k("runs", "below it; default 1,000"),
    k("warn_at", "share of a limit; default 0.8"),
    k("token_budget", "makes the agent work on"),
  ],
  "limits.token_budget": [k("output_tokens", "to be used"), k("stop_at", "share"), k("min_delta", "tokens"), k("min_count", "continuations")],
  retention: [k("completed", "30d"), k("failed", "90d"), k("events", "7d")],
  compaction: [k("at", "share of the window"), k("window", "tokens"), k("keep", "messages at the end; default 4"), k("summarize", "the model writes what replaces the rest", yes)],
  hooks: [k("stop", "when an answer would end the run"), k("stop_failure", "when a model failure has ended it"), k("pre_tool", "before each tool call"), k("post_sampling", "after each response"), k("max_stop_blocks", "default 15")],
  "hooks.stop": hook,
  "hooks.stop_failure": hook,
  "hooks.pre_tool": hook,
  "hooks.post_sampling": hook,
};

// placeOf says under which keys a line of YAML stands, going by its indentation.
export function placeOf(before: string[], indent: number): string {
  const path: string[] = [];
  let at = indent;
  for (let i = before.length - 1; i >= 0 && at > 0; i--) {
    const m = /^(\s*)((?:- )*)([\w"-]+)\s*:\s*(#.*)?$/.exec(before[i]!);
    const first = /^(\s*)((?:- )+)/.exec(before[i]!);
    if (m && m[1]!.length + m[2]!.length < at) {
      path.unshift(m[3]!.replaceAll('"', ""));
      at = m[1]!.length;
    } else if (first && first[1]!.length < at) {
      at = first[1]!.length + (first[1]!.length === 0 ? 0.5 : 0); // a list may stand as far left as its key
    }
  }
  return path.join(".");
}
