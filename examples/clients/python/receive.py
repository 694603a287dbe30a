"""Has webhooks of GitHub and the messages of a JetStream stream start runs.

The gateway needs the secret of the webhook, TURNPIKE_SECRET_GITHUB_WEBHOOK, and NATS a stream ORDERS:
`nats stream add ORDERS --subjects 'orders.>' --defaults`.
"""

from turnpike import Client

client = Client()  # TURNPIKE_URL, TURNPIKE_TOKEN
client.put_agent("clerk", {"model": {"provider": "scripted", "responses": [{"text": "Noted."}]}})

hook = client.put_hook("triage", {
    "verify": "github",
    "secret": "secret://GITHUB_WEBHOOK",
    "filter": 'event.action == "opened"',
    "run": {"agent": "clerk", "input": '"Issue: " + event.issue.title'},
})
print(f"GitHub delivers to {hook['path']}.")

trigger = client.trigger("orders")
trigger.put({
    "stream": "ORDERS",
    "subjects": ["orders.paid"],
    "from": "all",
    "run": {"agent": "clerk", "input": '"Order " + string(event.number) + " was paid."'},
})
print(f"{trigger.get()['status']['dead']} orders became dead letters.")
