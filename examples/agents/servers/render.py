"""Render is an asynchronous tool: it takes a call at once and sends the result later.

    python3 examples/agents/servers/render.py
"""

import asyncio
import json
import os
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools", "python"))
import mininats

GATEWAY = os.environ.get("TURNPIKE_URL", "http://127.0.0.1:7070")


def send(run: str, call: str, content: str):
    # The signal_id makes it safe to send the result twice.
    body = {"signal_id": call, "tool_results": [{"call_id": call, "content": content}]}
    request = urllib.request.Request(f"{GATEWAY}/v1/runs/{run}/signals", json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).read()


async def main():
    client = mininats.Client(mininats.url(), "tool render")
    await client.start()

    async def call(message: mininats.Message):
        request = json.loads(message.data)
        client.publish(message.reply, json.dumps({"pending": True}).encode())
        scene = request["arguments"]["scene"]
        print(f"render: {scene}", flush=True)
        # The gateway keeps a result that comes before the run waits for it.
        await asyncio.to_thread(send, request["run_id"], request["call_id"], f"{scene}.png, 640 x 480")

    connection = asyncio.create_task(client.run())
    mininats.Service(client, "render", "1.0.0", "Draws a scene.", "turnpike.tool.render", {}, call)
    await client.flush()
    print("render: waiting for calls", flush=True)
    await connection


asyncio.run(main())
