"""Policy is a hook over NATS: it denies payments to Mallory, and wants an apology at the end.

    python3 examples/agents/servers/policy.py
"""

import asyncio
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "python"))
import mininats


def decide(request: dict) -> dict:
    if request["point"] == "pre_tool" and request["call"]["arguments"].get("to") == "Mallory":
        return {"deny": "Mallory is on the list of those who get nothing."}
    if request["point"] == "stop" and "sorry" not in request["output"].lower():
        return {"block": "Say that you are sorry."}
    return {}


async def main():
    client = mininats.Client(mininats.url(), "policy")
    await client.start()

    async def ask(message: mininats.Message):
        request = json.loads(message.data)
        answer = decide(request)
        print(f"policy: {request['point']} {answer}", flush=True)
        client.publish(message.reply, json.dumps(answer).encode())

    mininats.Service(client, "policy", "1.0.0", "Says who may be paid.", "policy.payments", {}, ask)
    connection = asyncio.create_task(client.run())
    await client.flush()
    print("policy: waiting for questions", flush=True)
    await connection


asyncio.run(main())
