// Signs deliveries with the libraries of their senders, and checks deliveries with those of receivers:
// node vendors.mjs sign|verify, with JSON on standard input and standard output.
import { createHmac } from "node:crypto";
import { text } from "node:stream/consumers";
import { Webhooks } from "@octokit/webhooks";
import bolt from "@slack/bolt";
import { HTTP } from "cloudevents";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";

// The sender of Slack has no library. The signature is the one that Slack's own receiver accepts.
function slack(secret, body) {
  const seconds = Math.floor(Date.now() / 1000);
  const signature = "v0=" + createHmac("sha256", secret).update(`v0:${seconds}:${body}`).digest("hex");
  const headers = { "x-slack-signature": signature, "x-slack-request-timestamp": seconds };
  bolt.verifySlackRequest({ signingSecret: secret, body, headers });
  return { ...headers, "x-slack-request-timestamp": String(seconds) };
}

async function sign({ secret, whsec, body }) {
  const at = new Date();
  return {
    github: {
      "x-hub-signature-256": await new Webhooks({ secret }).sign(body),
      "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
      "x-github-event": "issues",
    },
    stripe: { "stripe-signature": Stripe.webhooks.generateTestHeaderString({ payload: body, secret }) },
    slack: slack(secret, body),
    standard: {
      "webhook-id": "msg_1",
      "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
      "webhook-signature": new Webhook(whsec).sign("msg_1", at, body),
    },
  };
}

function verify({ whsec, headers, body }) {
  new Webhook(whsec).verify(body, headers);
  const event = HTTP.toEvent({ headers, body });
  event.validate();
  return { id: event.id, type: event.type, source: event.source, subject: event.subject, data: event.data };
}

const request = JSON.parse(await text(process.stdin));
process.stdout.write(JSON.stringify(process.argv[2] === "sign" ? await sign(request) : verify(request)));
