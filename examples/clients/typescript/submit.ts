// Runs an agent, follows it, approves its call, and reads a typed output.
import { Client, RunFailed } from "turnpike";

const arrival = {
  type: "object",
  properties: { guest: { type: "string" }, greeted: { type: "boolean" } },
  required: ["guest", "greeted"],
  additionalProperties: false,
} as const;

const client = new Client(); // TURNPIKE_URL, TURNPIKE_TOKEN
await client.putAgent("porter", {
  model: {
    provider: "scripted",
    responses: [{ tool_calls: [{ name: "greet", arguments: { name: "Ada" } }] }, { text: '{"guest": "Ada", "greeted": true}' }],
  },
  tools: [{ name: "greet", kind: "nats", approval: "always" }],
});

const run = await client.submit("porter", "Ada is here.", { output_schema: arrival });
for await (const event of run.events()) {
  console.log(event.seq, event.type);
  for (const call of event.waiting?.calls ?? []) await run.approve(call.id);
}

try {
  const { guest, greeted } = await run.result({ output: arrival });
  console.log(`${guest} was greeted: ${greeted}`);
} catch (e) {
  if (!(e instanceof RunFailed)) throw e;
  console.log(`the run ended ${e.status}: ${e.reason}`);
}
