// Has webhooks of GitHub and the messages of a JetStream stream start runs.
//
// The gateway needs the secret of the webhook, TURNPIKE_SECRET_GITHUB_WEBHOOK, and NATS a stream ORDERS:
// `nats stream add ORDERS --subjects 'orders.>' --defaults`.
import { Client } from "turnpike";

const client = new Client(); // TURNPIKE_URL, TURNPIKE_TOKEN
await client.putAgent("clerk", { model: { provider: "scripted", responses: [{ text: "Noted." }] } });

const hook = await client.putHook("triage", {
  verify: "github",
  secret: "secret://GITHUB_WEBHOOK",
  filter: 'event.action == "opened"',
  run: { agent: "clerk", input: '"Issue: " + event.issue.title' },
});
console.log(`GitHub delivers to ${hook.path}.`);

const trigger = client.trigger("orders");
await trigger.put({
  stream: "ORDERS",
  subjects: ["orders.paid"],
  from: "all",
  run: { agent: "clerk", input: '"Order " + string(event.number) + " was paid."' },
});
console.log(`${(await trigger.get()).status.dead} orders became dead letters.`);
