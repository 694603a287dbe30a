"""Convert is a tool in Python for agents of any deployment: it converts quantities.

    python3 convert.py
"""

import asyncio
import json
import os
import signal
from datetime import datetime, timezone

import mininats

DESCRIPTION = "Converts a length, a mass or a temperature to another unit."
SCHEMA = {
    "type": "object",
    "properties": {
        "value": {"type": "number"},
        "from": {"type": "string", "description": "unit of the value: m, km, ft, mi, g, kg, lb, C, F or K"},
        "to": {"type": "string", "description": "unit to convert to"},
    },
    "required": ["value", "from", "to"],
    "additionalProperties": False,
}

# Kind, factor and offset: a unit is so many of its kind's base unit, counted from an offset.
UNITS = {
    "m": ("length", 1, 0), "km": ("length", 1000, 0), "ft": ("length", 0.3048, 0), "mi": ("length", 1609.344, 0),
    "g": ("mass", 1, 0), "kg": ("mass", 1000, 0), "lb": ("mass", 453.59237, 0),
    "C": ("temperature", 1, 273.15), "F": ("temperature", 5 / 9, 459.67 * 5 / 9), "K": ("temperature", 1, 0),
}


async def convert(call: dict) -> dict:
    """Depends on nothing but its arguments, so it may be called twice for one call.

    A tool that changes the world keeps call["idempotency_key"] with the change.
    """
    args = call["arguments"]
    if not isinstance(args, dict) or set(args) != {"value", "from", "to"} or type(args["value"]) not in (int, float):
        raise ValueError("the arguments are {value: a number, from: a unit, to: a unit}")
    if args["from"] not in UNITS or args["to"] not in UNITS:
        raise ValueError(f'unknown unit: from "{args["from"]}" to "{args["to"]}": use m, km, ft, mi, g, kg, lb, C, F or K')
    (kind, factor, offset), (wanted, divisor, start) = UNITS[args["from"]], UNITS[args["to"]]
    if kind != wanted:
        raise ValueError(f"a {kind} is not a {wanted}: use two units of one kind")
    # Makes calls slow, to see what happens when an instance dies.
    await asyncio.sleep(int(os.environ.get("CONVERT_DELAY_MS", "0")) / 1000)
    return {"value": float(f"{(args['value'] * factor + offset - start) / divisor:.10g}"), "unit": args["to"]}


class Tool:
    """The protocol of Turnpike's tools: docs/how-to/nats-tools.md."""

    def __init__(self, client: mininats.Client):
        self.client = client

    async def answer(self, message: mininats.Message) -> str | None:
        """Replies to one request, and returns what went wrong, for the statistics."""
        work = asyncio.ensure_future(self.work(message))

        # The caller says when it does not listen any more ...
        async def cancel(_):
            work.cancel()

        sid = self.client.subscribe(message.reply + ".cancel", cancel)
        # ... and wants to hear that somebody works for it.
        heartbeat = asyncio.ensure_future(self.heartbeat(message))
        try:
            reply = {"content": await work}
        except (asyncio.CancelledError, TimeoutError):
            return None
        except Exception as e:
            reply = {"error": str(e) or repr(e)}
        finally:
            heartbeat.cancel()
            self.client.unsubscribe(sid)
        data = json.dumps(reply).encode()
        if len(data) > self.client.info["max_payload"]:
            reply = {"error": f"the result has {len(data)} bytes, more than the NATS server takes"}
            data = json.dumps(reply).encode()
        if failure := reply.get("error"):
            first = failure.splitlines()[0][:200].encode("ascii", "replace").decode()
            self.client.publish(message.reply, data, {"Nats-Service-Error-Code": "500", "Nats-Service-Error": first})
        else:
            self.client.publish(message.reply, data)
        return reply.get("error")

    async def work(self, message: mininats.Message):
        call = json.loads(message.data)
        left = None
        if deadline := call.get("deadline"):
            left = (datetime.fromisoformat(deadline) - datetime.now(timezone.utc)).total_seconds()
        async with asyncio.timeout(left):
            return await convert(call)

    async def heartbeat(self, message: mininats.Message):
        every = int(message.headers.get("Turnpike-Heartbeat", "0"))
        while every > 0:
            self.client.publish(message.reply, headers={"Turnpike-Heartbeat": every})
            await asyncio.sleep(max(every, 50) / 1000)


async def main():
    client = mininats.Client(mininats.url(), "tool convert")
    await client.start()
    connection = asyncio.create_task(client.run())
    root, discovery = os.environ.get("TURNPIKE_PREFIX", "turnpike"), "$SRV"
    if (tenant := os.environ.get("TURNPIKE_TENANT", "default")) != "default":
        root = f"{root}.t.{tenant}"
        discovery = root + ".srv"
    metadata = {"description": DESCRIPTION, "schema": json.dumps(SCHEMA)}
    service = mininats.Service(client, "convert", "1.0.0", DESCRIPTION, f"{root}.tool.convert", metadata, Tool(client).answer,
                               discovery)
    await client.flush()
    print(f"convert: connected, answers calls on {root}.tool.convert", flush=True)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
    await service.stop()
    connection.cancel()


asyncio.run(main())
