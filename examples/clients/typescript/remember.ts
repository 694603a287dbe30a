// Writes what an agent will know about a user, and has a schedule start its runs.
import { Changed, Client } from "turnpike";

const client = new Client(); // TURNPIKE_URL, TURNPIKE_TOKEN
await client.putAgent("news", {
  model: { provider: "scripted", responses: [{ text: "Nothing is new." }] },
  tools: [{ name: "memory", kind: "memory", scope: "metadata.user" }],
});

const memory = client.memory("metadata.user:bob");
const file = await memory.write("preferences.md", "Vegetarian.\n");
await memory.write("preferences.md", "Vegan.\n", { version: file.version });

try {
  await memory.write("preferences.md", "Eats everything.\n", { version: file.version });
} catch (e) {
  if (!(e instanceof Changed)) throw e;
  console.log(e.message);
}

const schedule = client.schedule("daily");
await schedule.put({
  cron: "0 9 * * MON-FRI",
  run: { agent: "news", input: "What is new?", metadata: { user: "bob" } },
});
console.log(await (await schedule.run()).result());
