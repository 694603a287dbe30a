// Serves the tools of clients/cases/tools.json.
import { createInterface } from "node:readline";
import { NATSError, Result, serve, tool, ToolError } from "turnpike";

const none = { type: "object", properties: {} } as const;
const cancelled: string[] = [];

const released = new Promise<void>((resolve) => {
  const lines = createInterface({ input: process.stdin });
  lines.once("line", () => { lines.close(); process.stdin.unref?.(); resolve(); });
});
process.stdin.unref?.();

const greet = tool({
  name: "greet", description: "Greets a person.",
  input: {
    type: "object",
    properties: { name: { type: "string", description: "who is greeted" }, times: { type: "integer" }, loud: { type: "boolean" } },
    required: ["name"],
  },
  run({ name, times = 1, loud = false }) {
    const text = `Hello ${name}!`.repeat(times);
    return { text: loud ? text.toUpperCase() : text };
  },
});

const add = tool({
  name: "add", description: "Adds two numbers.",
  input: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] },
  run: ({ a, b }) => a + b,
});

function endless(name: string) {
  return tool({
    name, input: none,
    run: (_, context) => new Promise((_resolve, reject) => {
      context.signal.addEventListener("abort", () => { cancelled.push(context.idempotencyKey); reject(context.signal.reason as Error); });
      context.progress("begun");
    }),
  });
}

try {
  await serve([
    greet, add,
    tool({ name: "whoami", input: none, run: (_, c) => ({ call: c.callId, run: c.runId, key: c.idempotencyKey }) }),
    tool({
      name: "fails", input: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
      run({ text }) { throw new ToolError(text); },
    }),
    tool({ name: "breaks", input: none, run() { throw new RangeError("out of order"); } }),
    tool({ name: "odd", input: none, run: () => 1n }),
    tool({ name: "nothing", input: none, run() {} }),
    tool({ name: "later", input: none, run: () => new Result("", { pending: true }) }),
    tool({ name: "draw", input: none, run: () => new Result("a picture", { images: [{ media_type: "image/png", data: "aGk=" }], files: [{ name: "a.pdf", media_type: "application/pdf", data: "JVBERg==" }] }) }),
    tool({
      name: "large", input: { type: "object", properties: { bytes: { type: "integer", minimum: 0 } }, required: ["bytes"] },
      run: ({ bytes }) => "x".repeat(bytes),
    }),
    tool({
      name: "steps", input: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
      run({ n }, context) {
        for (let i = 1; i <= n; i++) context.progress(`step ${i} of ${n}:\nkön`);
        return "done";
      },
    }),
    tool({ name: "hold", description: "Waits until the program reads a line.", input: none, run: (_, c) => released.then(() => c.idempotencyKey) }),
    endless("endless"), endless("endless_thread"),
    tool({ name: "ended", description: "Returns the keys of the calls that were cancelled.", input: none, run: () => cancelled }),
  ]);
  process.exit(0); // standard input may be open
} catch (e) {
  if (!(e instanceof NATSError)) throw e;
  console.error(e.message);
  process.exit(1);
}
