// The keys of an agent definition by place, for completion in the editor. TestEditorKnowsKeys compares
// the list with what the gateway reads.
export interface Key {
  name: string;
  about: string;
  values?: string[];
}

const k = (name: string, about: string, values?: string[]): Key => (values ? { name, about, values } : { name, about });
const yes = ["true", "false"];

const hook = [
  k("kind", "where the hook runs", ["go", "nats", "cel"]),
  k("tools", "pre_tool only: the tools whose calls it checks"),
  k("timeout", "of one call of the hook"),
  k("on_error", "what a failure of the hook means", ["deny", "allow"]),
];
const model = [
  k("provider", "the API that serves the model", ["scripted", "openai", "anthropic", "gemini"]),
  k("name", "the provider's name of the model"),
  k("api_key", "a reference: secret://NAME"),
  k("base_url", "address of a compatible server"),
  k("api", "openai only", ["responses", "chat"]),
  k("max_output_tokens", "limit of one response"),
  k("reasoning", "how much the model thinks before it answers", ["none", "low", "medium", "high", "xhigh", "max"]),
  k("temperature", "sampling temperature"),
  k("top_p", "sampling: share of the most probable tokens"),
  k("top_k", "sampling: number of the most probable tokens"),
  k("stop", "texts that end a response"),
  k("seed", "makes sampling more repeatable"),
  k("tool_choice", "whether the model calls tools; also {name: TOOL}", ["auto", "none", "any"]),
  k("parallel_tool_calls", "whether one response may call several tools", yes),
  k("service_tier", "speed and price", ["standard", "flex", "priority"]),
  k("cache", "lifetime of the provider's prompt cache", ["auto", "off", "5m", "1h"]),
  k("extra", "request fields that the operator allows"),
  k("timeout", "of one model call; default 10m"),
  k("fallback", "models to use when this one fails"),
  k("responses", "scripted only: the responses, in order"),
  k("responses_file", "scripted only: a file of responses, which the command line reads"),
];

export const keys: Record<string, Key[]> = {
  "": [
    k("name", "a-z, 0-9, _ and -; at most 64"),
    k("description", "for people; the model does not see it"),
    k("instructions", "the system prompt"),
    k("model", "the model and its settings"),
    k("loop", "how the agent works"),
    k("tools", "what the agent can do"),
    k("hooks", "checks by your own code"),
    k("limits", "limits of each run"),
    k("retention", "how long ended runs are kept"),
    k("compaction", "when the history is shortened"),
    k("webhook", "address that receives events of runs"),
    k("output_schema", "JSON Schema of the answer"),
    k("max_output_retries", "further turns for an answer that does not match; default 2"),
    k("variables", "JSON Schema of the values of {{name}} in instructions"),
  ],
  model,
  "model.fallback": model,
  webhook: [k("url", "https address"), k("secret", "a reference: secret://NAME; two while it is rotated"), k("events", "default: run.finished; also run.waiting")],
  loop: [
    k("type", "the loop", ["react", "single_call", "reflect", "two_phase"]),
    k("max_turns", "model calls; default 20, at most 200"),
    k("on_limit", "how a run ends at max_turns", ["end", "answer"]),
    k("converse", "after an answer, wait for the next message", yes),
    k("tool_loop_threshold", "end a run that repeats the same calls this many times"),
    k("confidence_threshold", "reflect only: confidence that ends the run; default 0.85"),
    k("enable_reflection", "reflect only", yes),
    k("reflect_interval", "reflect only: turns between reflections"),
    k("tell_guidance", "reflect only: show the reflection to the model", yes),
    k("terminal_tools", "reflect only: tools that complete the run"),
    k("max_steps", "two_phase only: steps of the first phase; default 5"),
  ],
  tools: [
    k("name", "unique in the agent"),
    k("kind", "where the tool runs; default go", ["go", "nats", "client", "human", "agent", "handoff", "http", "mcp", "a2a", "memory", "results", "provider"]),
    k("description", "what the model reads about the tool"),
    k("schema", "JSON Schema of the arguments"),
    k("approval", "always, never, or a CEL rule over args", ["always", "never"]),
    k("risk", "what a call does; shown to approvers", ["reads", "writes", "pays", "sends"]),
    k("idempotent", "repeating a call does no harm", yes),
    k("probe", "tool that reports the outcome of a lost call"),
    k("reuse", "false repeats a call with the same arguments", yes),
    k("async", "the result may come later", yes),
    k("timeout", "of one call; default 2m"),
    k("concurrency", "parallel, or one call at a time", ["parallel", "serial"]),
    k("max_calls", "calls in one run"),
    k("max_result", "size of a result in bytes; default 128 KiB"),
    k("url", "http, mcp and a2a only"),
    k("method", "http only", ["GET", "POST", "PUT", "PATCH", "DELETE"]),
    k("query", "http only"),
    k("headers", "http and mcp only"),
    k("token", "a2a only: a reference, secret://NAME"),
    k("command", "mcp only: the program and its arguments"),
    k("env", "mcp only: variables of the program"),
    k("allow", "mcp only: the tools to offer"),
    k("agent", "agent and handoff only: the other agent"),
    k("max_depth", "agent only: levels of child runs; default 10"),
    k("variables", "agent only: values of the other agent's variables"),
    k("max_uses", "provider only: uses in one model call"),
    k("settings", "provider only: the provider's own settings"),
  ],
  limits: [
    k("max_turns", "same as loop.max_turns"),
    k("output_tokens", "includes child runs"),
    k("total_tokens", "includes child runs"),
    k("cost_usd", "includes child runs"),
    k("deadline", "time from the submission, such as 10m"),
    k("wait", "longest wait for a person or a system, such as 24h"),
    k("runs", "child runs; default 1,000"),
    k("warn_at", "share of a limit that triggers a warning; default 0.8"),
    k("token_budget", "tokens the agent should use"),
  ],
  "limits.token_budget": [
    k("output_tokens", "tokens to use"),
    k("stop_at", "share that is enough"),
    k("min_delta", "fewest tokens of a useful continuation"),
    k("min_count", "continuations before min_delta applies"),
  ],
  retention: [k("completed", "such as 30d"), k("failed", "such as 90d"), k("events", "set by the deployment")],
  compaction: [
    k("at", "share of the window at which to compact"),
    k("window", "context window of the model in tokens"),
    k("keep", "messages to keep at the end; default 4"),
    k("summarize", "the model summarizes the rest", yes),
    k("reactive", "compactions after a prompt that was too long", ["progress", "once"]),
  ],
  hooks: [
    k("input", "before the model reads a user message"),
    k("stop", "before an answer ends the run"),
    k("stop_failure", "after a model failure ended the run"),
    k("pre_tool", "before each tool call"),
    k("post_sampling", "after each response"),
    k("max_stop_blocks", "how often stop hooks may continue a run; default 15, at most 100"),
  ],
  "hooks.input": hook,
  "hooks.stop": hook,
  "hooks.stop_failure": hook,
  "hooks.pre_tool": hook,
  "hooks.post_sampling": hook,
};

// placeOf returns the path of keys that contains a line of YAML, judged by its indentation.
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
