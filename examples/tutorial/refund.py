"""Refund is the tool of the tutorial: it pays money back, slowly, and once for each call.

    python3 examples/tutorial/refund.py
"""

import asyncio
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools", "python"))
import mininats  # a NATS client in one file; the package nats-py does the same

SECONDS = float(os.environ.get("REFUND_SECONDS", "0"))
LEDGER = "refunds.txt"
payments = {}  # by idempotency key


async def pay(order: str, amount: float) -> str:
    print(f"refund {order}: {amount} euros, this takes {SECONDS:g} s", flush=True)
    await asyncio.sleep(SECONDS)
    with open(LEDGER, "a") as f:
        f.write(f"{order} {amount}\n")
    print(f"refund {order}: paid", flush=True)
    return f"Paid {amount} euros back for order {order}."


async def main():
    client = mininats.Client(mininats.url(), "tool refund")
    await client.start()

    async def call(message: mininats.Message):
        request = json.loads(message.data)
        # The same key is the same call, made again because its worker died: it joins
        # the payment that is in flight, or gets its result. A tool that must survive
        # its own death keeps the key in its database.
        key = request["idempotency_key"]
        if key not in payments:
            payments[key] = asyncio.ensure_future(pay(**request["arguments"]))
        else:
            print("refund: asked again with the same key, paid once", flush=True)
        try:
            reply = {"content": await asyncio.shield(payments[key])}
        except Exception as e:
            reply = {"error": str(e)}
        client.publish(message.reply, json.dumps(reply).encode())

    connection = asyncio.create_task(client.run())
    mininats.Service(client, "refund", "1.0.0", "Pays money back.", "turnpike.tool.refund", {}, call)
    await client.flush()
    print("refund: waiting for calls", flush=True)
    await connection


asyncio.run(main())
