// A tool in TypeScript: agents find it by its name while this program runs.
import { serve, tool, ToolError } from "turnpike";

const greet = tool({
  name: "greet",
  description: "Greets a person. Use it for everyone who arrives.",
  input: {
    type: "object",
    properties: { name: { type: "string", description: "who is greeted" }, times: { type: "integer" } },
    required: ["name"],
  },
  run({ name, times = 1 }, context) {
    if (times > 3) throw new ToolError("At most 3 greetings: more would be odd.");
    context.progress(`greets ${name}`);
    return `Hello, ${name}! `.repeat(times);
  },
});

await serve([greet]);
