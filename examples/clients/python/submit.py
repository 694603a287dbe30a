"""Runs an agent, follows it, approves its call, and reads a typed output."""

from dataclasses import dataclass

from turnpike import Client, RunFailed


@dataclass
class Arrival:
    guest: str
    greeted: bool


client = Client()  # TURNPIKE_URL, TURNPIKE_TOKEN
client.put_agent("porter", {
    "model": {"provider": "scripted", "responses": [
        {"tool_calls": [{"name": "greet", "arguments": {"name": "Ada"}}]},
        {"text": '{"guest": "Ada", "greeted": true}'},
    ]},
    "tools": [{"name": "greet", "kind": "nats", "approval": "always"}],
})

run = client.submit("porter", "Ada is here.", output=Arrival)
for event in run.events():
    print(event["seq"], event["type"])
    if event["type"] == "run.waiting":
        for call in event["waiting"]["calls"]:
            run.approve(call["id"])

try:
    arrival = run.result(Arrival)
    print(f"{arrival.guest} was greeted: {arrival.greeted}")
except RunFailed as e:
    print(f"the run ended {e.status}: {e.reason}")
