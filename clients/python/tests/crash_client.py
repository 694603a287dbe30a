"""Follows a run and submits another while the gateway is killed. internal/verify/clients has the other side."""

import sys

from turnpike import Client

client = Client(retry_for=120)

run = client.submit("approval", "Hi")
print(f"run {run.id}", flush=True)
seen = []
for event in run.events(timeout=120):
    if event["seq"] is not None:
        seen.append(event["seq"])
    if event["type"] == "run.waiting":
        print("following", flush=True)
assert seen == list(range(1, len(seen) + 1)), seen
assert run.get()["status"] == "completed", run.get()
print("followed", flush=True)

sys.stdin.readline()
made = client.submit("hello", "Hi", metadata={"once": "yes"})
assert [r["id"] for r in client.runs(metadata={"once": "yes"})] == [made.id]
assert made.result(timeout=120) == "Hello."
print("submitted", flush=True)
