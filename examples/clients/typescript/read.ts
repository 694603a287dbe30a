// Has a model read a file, and a second one that this program returns as the result of a tool.
import { readFile } from "node:fs/promises";
import { Client } from "turnpike";

const client = new Client(); // TURNPIKE_URL, TURNPIKE_TOKEN
await client.putAgent("reader", {
  model: { provider: "scripted", responses: [
    { tool_calls: [{ name: "fetch", arguments: { name: "CONTRIBUTING.md" } }] }, { text: "I have read both." },
  ] },
  tools: [{
    name: "fetch", kind: "client", description: "Returns another file of the project.",
    schema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  }],
});

const readme = await client.upload(await readFile("README.md"), { name: "README.md" });
const run = await client.submit("reader", [{ role: "user", parts: [
  { type: "text", text: "What does it say?" }, { type: "file", file_id: readme.id },
] }]);

for (const call of (await run.wait()).waiting?.calls ?? []) {
  const { name } = call.arguments as { name: string };
  const found = await client.upload(await readFile(name), { name });
  await run.toolResult(call.id, "Here it is.", { files: [{ file_id: found.id }] });
}
console.log(await run.result());
