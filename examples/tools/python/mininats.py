"""A small NATS client on the standard library alone: enough to serve tools.

It speaks to one server, without TLS, and comes back when the connection breaks.
With the package nats-py, where it can be installed, this file is not needed.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from urllib.parse import unquote, urlsplit


@dataclass
class Message:
    subject: str
    reply: str
    data: bytes
    headers: dict = field(default_factory=dict)


def url() -> str:
    """The server of TURNPIKE_NATS_URL, else of the `turnpike dev` that runs here, else the usual one."""
    given = os.environ.get("TURNPIKE_NATS_URL")
    try:
        with open(os.path.join(os.environ.get("TURNPIKE_DATA_DIR") or ".turnpike", "nats.url")) as f:
            dev = f.read().strip()
    except OSError:
        return given or "nats://127.0.0.1:4222"
    # Its address gets its password, wherever it comes from.
    return dev if not given or urlsplit(given).netloc == urlsplit(dev).netloc.rpartition("@")[2] else given


class Client:
    """A connection. Handlers are coroutines; each message gets a task of its own."""

    def __init__(self, url: str, name: str):
        self.url, self.name = urlsplit(url if "://" in url else "nats://" + url), name
        self.subscriptions, self.tasks, self.last, self.writer, self.pongs = {}, set(), 0, None, []

    async def start(self):
        """Connects, or ends the program with one sentence if nobody listens."""
        try:
            await self.connect()
        except OSError:
            sys.exit(f"no NATS server at {self.url.hostname}:{self.url.port or 4222}: start `turnpike dev` in this "
                     "directory, or set TURNPIKE_NATS_URL")

    async def connect(self):
        if self.url.scheme != "nats":
            raise ValueError(f"{self.url.scheme}:// is beyond this client: use nats:// or the package nats-py")
        self.reader, self.writer = await asyncio.open_connection(self.url.hostname, self.url.port or 4222, limit=1 << 20)
        self.info = json.loads((await self.reader.readline()).partition(b" ")[2])
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1,
                   "lang": "python", "version": "0", "name": self.name}
        if self.url.username and self.url.password is None:
            options["auth_token"] = unquote(self.url.username)
        elif self.url.username:
            options["user"], options["pass"] = unquote(self.url.username), unquote(self.url.password)
        self.send(f"CONNECT {json.dumps(options)}\r\n".encode())
        for sid, (subject, queue, _) in self.subscriptions.items():
            self.send(f"SUB {subject} {queue} {sid}\r\n".encode())

    async def run(self):
        """Serves the connection until the task is cancelled, and restores it when it breaks."""
        while True:
            try:
                await self.read()
            except (OSError, asyncio.IncompleteReadError, ValueError) as e:
                print(f"connection to NATS lost: {e!r}", flush=True)
                self.writer.close()
                while True:
                    await asyncio.sleep(1)
                    try:
                        await self.connect()
                        print("connected to NATS again", flush=True)
                        break
                    except (OSError, ValueError):
                        pass  # nobody listens yet, or another program does

    async def read(self):
        while line := await self.reader.readline():
            verb, *words = line.decode().split()
            if verb in ("MSG", "HMSG"):
                total = int(words[-1])
                head = int(words[-2]) if verb == "HMSG" else 0
                payload = (await self.reader.readexactly(total + 2))[:-2]
                reply = words[2] if len(words) == (5 if head else 4) else ""
                if subscription := self.subscriptions.get(words[1]):
                    message = Message(words[0], reply, payload[head:], parse(payload[:head]))
                    task = asyncio.create_task(subscription[2](message))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
            elif verb == "PING":
                self.send(b"PONG\r\n")
            elif verb == "PONG" and self.pongs:
                self.pongs.pop(0).set()
            elif verb == "-ERR":
                print("NATS:", line.decode().strip(), flush=True)
        raise ConnectionResetError("the server closed it")

    def send(self, data: bytes):
        if not self.writer.is_closing():
            self.writer.write(data)

    def publish(self, subject: str, data: bytes = b"", headers: dict | None = None):
        head = b""
        if headers:
            head = ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode()
            self.send(f"HPUB {subject} {len(head)} {len(head) + len(data)}\r\n".encode() + head + data + b"\r\n")
        else:
            self.send(f"PUB {subject} {len(data)}\r\n".encode() + data + b"\r\n")

    def subscribe(self, subject: str, handler, queue: str = "") -> str:
        self.last += 1
        sid = str(self.last)
        self.subscriptions[sid] = (subject, queue, handler)
        self.send(f"SUB {subject} {queue} {sid}\r\n".encode())
        return sid

    def unsubscribe(self, sid: str):
        if self.subscriptions.pop(sid, None):
            self.send(f"UNSUB {sid}\r\n".encode())

    async def flush(self):
        """Returns when the server has everything that was sent."""
        pong = asyncio.Event()
        self.pongs.append(pong)
        self.send(b"PING\r\n")
        await pong.wait()


def parse(head: bytes) -> dict:
    pairs = (line.split(":", 1) for line in head.decode().split("\r\n")[1:] if ":" in line)
    return {k.strip(): v.strip() for k, v in pairs}


class Service:
    """A NATS micro service with one endpoint, which `nats micro ls` finds."""

    def __init__(self, client: Client, name: str, version: str, description: str, subject: str, metadata: dict, handler,
                 discovery: str = "$SRV"):
        self.client, self.handler = client, handler
        self.identity = {"name": name, "id": secrets.token_hex(11), "version": version, "metadata": metadata}
        self.description = description
        self.endpoint = {"name": name, "subject": subject, "queue_group": "q"}
        self.requests, self.errors, self.last_error, self.nanoseconds = 0, 0, "", 0
        self.started = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        self.sid = client.subscribe(subject, self.take, queue="q")
        self.control = [
            client.subscribe(".".join([discovery, verb, *to]), self.reporter(report))
            for verb, report in (("PING", self.ping), ("INFO", self.info), ("STATS", self.stats))
            for to in ((), (name,), (name, self.identity["id"]))
        ]

    def ping(self):
        return {"type": "io.nats.micro.v1.ping_response", **self.identity}

    def info(self):
        endpoint = {**self.endpoint, "metadata": self.identity["metadata"]}
        return {"type": "io.nats.micro.v1.info_response", **self.identity, "description": self.description, "endpoints": [endpoint]}

    def stats(self):
        endpoint = {**self.endpoint, "num_requests": self.requests, "num_errors": self.errors, "last_error": self.last_error,
                    "processing_time": self.nanoseconds, "average_processing_time": self.nanoseconds // max(self.requests, 1)}
        return {"type": "io.nats.micro.v1.stats_response", **self.identity, "started": self.started, "endpoints": [endpoint]}

    def reporter(self, report):
        async def answer(message: Message):
            if message.reply:
                self.client.publish(message.reply, json.dumps(report()).encode())
        return answer

    async def take(self, message: Message):
        if not message.reply:
            return  # nobody would hear of it
        began = time.monotonic_ns()
        try:
            if failure := await self.handler(message):
                self.errors, self.last_error = self.errors + 1, failure
        finally:
            self.requests, self.nanoseconds = self.requests + 1, self.nanoseconds + time.monotonic_ns() - began

    async def stop(self):
        """Takes no more requests, and returns when those that it has are answered."""
        for sid in self.control:
            self.client.unsubscribe(sid)
        # What was sent before the server heard of it still comes.
        self.client.send(f"UNSUB {self.sid}\r\n".encode())
        await self.client.flush()
        await asyncio.gather(*self.client.tasks, return_exceptions=True)
        await self.client.flush()
