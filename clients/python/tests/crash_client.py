"""Follows runs and makes changes while the gateway is killed. internal/verify/clients has the other side."""

import sys
from concurrent.futures import ThreadPoolExecutor

from turnpike import Client

client = Client(retry_for=120)
memory, schedule = client.memory("tenant"), client.schedule("asks")
stopped, old = client.submit("approval", "Hi"), memory.read("old.md")["version"]

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

# Changes whose answers are lost, so that they are repeated.
sys.stdin.readline()
with ThreadPoolExecutor() as pool:
    cancelled = pool.submit(stopped.cancel)
    submitted = pool.submit(client.submit, "hello", "Hi", metadata={"once": "yes"})
    fired = pool.submit(schedule.run)
    written = pool.submit(memory.write, "new.md", "new", version=0)
    removed = [pool.submit(memory.delete, "old.md", version=old), pool.submit(client.schedule("old").delete)]
assert cancelled.result()["status"] == "cancelled", cancelled.result()
made = submitted.result()
assert [r["id"] for r in client.runs(metadata={"once": "yes"})] == [made.id]
assert made.result(timeout=120) == "Hello."
assert [r["id"] for r in client.runs(metadata={"schedule": "asks"})] == [fired.result().id]
assert [(f["path"], f["version"]) for f in memory.files()] == [("new.md", written.result()["version"])]
assert [r.result() for r in removed] == [None, None]
assert [s["name"] for s in client.schedules()] == ["asks"]
print("submitted", flush=True)

assert fired.result().wait(timeout=120)["status"] == "waiting"
print(f"waits {fired.result().id}", flush=True)
assert fired.result().result(timeout=120) == "Done."
print("done", flush=True)
