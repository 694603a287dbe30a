"""A NATS client on the standard library alone: what tools need, and no more."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from . import nkey
from .errors import NATSError

log = logging.getLogger("turnpike")

MAX_BUFFER = 8 << 20  # bytes that wait for a connection
RECONNECT_DELAY = 1.0  # seconds
PING_INTERVAL = 30.0  # seconds; two that are not answered end the connection
CONNECT_TIMEOUT = 5.0  # seconds
DRAIN_TIMEOUT = 5.0  # seconds: how long a program that ends waits for the server, each time


@dataclass
class Login:
    """How a connection logs in. User and password in the server's URL come first.

    Files, whose names end in _file, are read again each time that the connection is made anew.
    """

    user: str = ""
    password: str = ""
    password_file: str = ""
    token: str = ""
    nkey: str = ""  # the seed
    nkey_file: str = ""
    creds: str = ""  # what `nsc` writes: a JWT and its seed
    creds_file: str = ""
    ca: str = ""  # PEM: the authorities that sign the servers' certificates
    ca_file: str = ""
    cert: str = ""  # PEM: the certificate of this client
    cert_file: str = ""
    key: str = ""
    key_file: str = ""

    def from_env(self) -> Login:
        """Sets the fields that are not set from TURNPIKE_NATS_USER, _PASSWORD, _NKEY, _CREDS, _CA, _CERT, _KEY, and _FILE of each."""
        user_file = os.environ.get("TURNPIKE_NATS_USER_FILE")
        if user_file and not self.user:
            self.user = _file(user_file)
        for name in ("user", "password", "nkey", "creds", "ca", "cert", "key"):
            for suffix in ("", "_file"):
                if hasattr(self, name + suffix) and not getattr(self, name) and not getattr(self, name + "_file", ""):
                    setattr(self, name + suffix, os.environ.get(f"TURNPIKE_NATS_{name}{suffix}".upper(), ""))
        return self

    def check(self) -> None:
        """Raises ValueError if the login cannot be used."""
        ways = [n for n in ("creds", "nkey", "user", "token") if getattr(self, n) or getattr(self, n + "_file", "")]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} are both set, which are different ways to log in to NATS: keep one")
        self.options({"nonce": "check"}, urlsplit("nats://host"))
        self.tls()

    def value(self, name: str) -> str:
        """Returns a text, or the content of its file."""
        path = getattr(self, name + "_file", "")
        return _file(path) if path else str(getattr(self, name))

    def options(self, info: Mapping[str, Any], url: SplitResult) -> dict[str, Any]:
        """Returns the options of CONNECT that log in."""
        if url.username and url.password is None:
            return {"auth_token": unquote(url.username)}
        if url.username:
            return {"user": unquote(url.username), "pass": unquote(url.password or "")}
        if creds := self.value("creds"):
            return {"jwt": nkey.jwt_of(creds), "sig": _signature(nkey.KeyPair(nkey.seed_of(creds)), info)}
        if seed := self.value("nkey"):
            pair = nkey.KeyPair(nkey.seed_of(seed))
            return {"nkey": pair.public(), "sig": _signature(pair, info)}
        if self.user:
            return {"user": self.user, "pass": self.value("password")}
        return {"auth_token": self.token} if self.token else {}

    def tls(self) -> ssl.SSLContext | None:
        """Returns the settings of TLS, or None if nothing asks for it."""
        ca, cert, key = self.value("ca"), self.value("cert"), self.value("key")
        if bool(cert) != bool(key):
            raise ValueError("only one of the client's certificate and its key is given: give both")
        if not ca and not cert:
            return None
        context = ssl.create_default_context(cadata=ca or None)
        if cert:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:  # readable by this user only; ssl takes files alone
                both.write(cert.rstrip() + "\n" + key.rstrip() + "\n")
                both.flush()
                context.load_cert_chain(both.name)
        return context


def _file(path: str) -> str:
    with open(path, encoding="utf-8") as f:
        return f.read().rstrip()


def _signature(pair: nkey.KeyPair, info: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(pair.sign(str(info.get("nonce", "")).encode())).decode().rstrip("=")


@dataclass
class Message:
    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Message], Awaitable[None]]


class Connection:
    """A connection to one of some servers. Handlers are coroutines; each message gets a task of its own.

    A connection that breaks is made anew for as long as it takes; subscriptions stay. What is published meanwhile is
    sent afterwards, up to 8 MiB. Not safe for concurrent use by threads.
    """

    def __init__(self, servers: str, name: str, login: Login | None = None):
        self.name, self.login = name, login or Login()
        self.servers = [urlsplit(s if "://" in s else "nats://" + s) for s in servers.split(",")]
        for s in self.servers:
            if s.scheme not in ("nats", "tls") or not s.hostname:
                raise NATSError("the URL of the NATS server is not valid: write one such as nats://127.0.0.1:4222 or tls://host:4222")
        self.info: dict[str, Any] = {}
        self.reconnects = 0
        self._subscriptions: dict[str, tuple[str, str, Handler]] = {}
        self._draining: dict[str, tuple[str, str, Handler]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pongs: list[asyncio.Future[None]] = []
        self._last, self._unanswered = 0, 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._running: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Connects. Raises NATSError if no server lets this client in."""
        try:
            self.login.check()
        except (OSError, ValueError) as e:
            raise NATSError(f"the login to NATS is not valid: {e}") from None
        try:
            await self._connect_any()
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError, NATSError) as e:
            hosts = ", ".join(f"{s.hostname}:{s.port or 4222}" for s in self.servers)
            raise NATSError(f"no NATS server at {hosts} lets this program in ({e or type(e).__name__}): start `turnpike dev` in "
                            "this directory, or set TURNPIKE_NATS_URL and the login") from None
        self._running = [asyncio.create_task(self._run()), asyncio.create_task(self._ping())]

    async def close(self) -> None:
        """Ends the connection. What was published may be lost: flush before."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._writer:
            self._writer.close()

    def publish(self, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Sends a message, now or once the connection is back."""
        if headers:
            head = ("NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode()
            self._send(f"HPUB {subject} {len(head)} {len(head) + len(data)}\r\n".encode() + head + data + b"\r\n", keep=True)
        else:
            self._send(f"PUB {subject} {len(data)}\r\n".encode() + data + b"\r\n", keep=True)

    def subscribe(self, subject: str, handler: Handler, queue: str = "") -> str:
        """Has handler called for each message, until `unsubscribe` of the id that it returns."""
        self._last += 1
        sid = str(self._last)
        self._subscriptions[sid] = (subject, queue, handler)
        self._send(f"SUB {subject} {queue} {sid}\r\n".encode())
        return sid

    def unsubscribe(self, sid: str) -> None:
        if self._subscriptions.pop(sid, None):
            self._send(f"UNSUB {sid}\r\n".encode())

    async def drain(self, sids: list[str]) -> None:
        """Ends subscriptions, and returns when the messages that the server had sent before are handled.

        While there is no connection, the server sends none.
        """
        for sid in sids:
            if subscription := self._subscriptions.pop(sid, None):
                self._draining[sid] = subscription
                self._send(f"UNSUB {sid}\r\n".encode())
        if self._writer is not None:
            await self._flush_in_time()
        for sid in sids:
            self._draining.pop(sid, None)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self) -> None:
        """Ends the connection once the server has all that was published. It waits only some seconds for a server that is away."""
        if (self._writer is not None or self._buffer) and not await self._flush_in_time():
            log.warning("NATS has not answered for %g seconds: answers of calls may be lost", DRAIN_TIMEOUT)
        await self.close()

    async def _flush_in_time(self) -> bool:
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT):
                await self.flush()
        except TimeoutError:
            return False
        return True

    async def flush(self) -> None:
        """Returns when the server has all that was published, even if the connection breaks in between."""
        while True:
            pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._writer is None:
                await asyncio.sleep(RECONNECT_DELAY / 10)
                continue
            self._pongs.append(pong)
            self._send(b"PING\r\n")
            try:
                return await pong
            except ConnectionError:
                continue

    @property
    def max_payload(self) -> int:
        return int(self.info.get("max_payload", 1 << 20))

    def _send(self, data: bytes, keep: bool = False) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)
        elif keep and self._buffered + len(data) <= MAX_BUFFER:
            self._buffer.append(data)
            self._buffered += len(data)
        elif keep:
            log.error("message dropped: more than %d bytes wait for a connection to NATS", MAX_BUFFER)

    async def _connect_any(self) -> None:
        failure: Exception = NATSError("the URL names no server: name one")
        for url in list(self.servers):
            try:
                # Before Python 3.12, wait_for drops a cancellation that arrives as the attempt ends: close would wait forever.
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    return await self._connect(url)
            except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError, NATSError) as e:
                failure = e
                self.servers.append(self.servers.pop(0))  # the next one first
        raise failure

    async def _connect(self, url: SplitResult) -> None:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 4222, limit=1 << 20)
        try:
            info = json.loads((await reader.readline()).removeprefix(b"INFO "))
            context = self.login.tls()
            if url.scheme == "tls" or context or info.get("tls_required"):
                await writer.start_tls(context or ssl.create_default_context(), server_hostname=url.hostname)
            options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1, "lang": "python-turnpike",
                       "version": "1", "name": self.name, "tls_required": bool(context), **self.login.options(info, url)}
            writer.write(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
            while (line := await reader.readline()) != b"PONG\r\n":
                if not line:
                    raise NATSError("the server closed the connection")
                if line.startswith(b"-ERR"):
                    raise NATSError(line.decode("utf-8", "replace")[4:].strip())
        except BaseException:
            writer.close()
            raise
        self.info, self._reader, self._writer, self._unanswered = info, reader, writer, 0
        for sid, (subject, queue, _) in self._subscriptions.items():
            writer.write(f"SUB {subject} {queue} {sid}\r\n".encode())
        for data in self._buffer:
            writer.write(data)
        self._buffer, self._buffered = [], 0

    async def _run(self) -> None:
        """Reads, and restores the connection when it breaks, until it is cancelled."""
        while True:
            try:
                await self._read()
            except (OSError, ValueError, asyncio.IncompleteReadError) as e:
                log.warning("connection to NATS lost: %r", e)
            if self._writer:
                self._writer.close()
            self._writer = None
            for pong in self._pongs:
                if not pong.done():
                    pong.set_exception(ConnectionResetError())
            self._pongs = []
            while self._writer is None:
                await asyncio.sleep(RECONNECT_DELAY)
                try:
                    await self._connect_any()
                    self.reconnects += 1
                    log.info("connected to NATS again")
                except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError, NATSError) as e:
                    log.debug("NATS does not answer: %r", e)  # credentials that were changed may take a while, too

    async def _read(self) -> None:
        assert self._reader is not None
        while line := await self._reader.readline():
            self._unanswered = 0
            verb, *words = line.decode("utf-8", "replace").split()
            if verb in ("MSG", "HMSG"):
                total, head = int(words[-1]), int(words[-2]) if verb == "HMSG" else 0
                payload = (await self._reader.readexactly(total + 2))[:-2]
                reply = words[2] if len(words) == (5 if head else 4) else ""
                if subscription := self._subscriptions.get(words[1]) or self._draining.get(words[1]):
                    self._start(subscription[2](Message(words[0], reply, payload[head:], _headers(payload[:head]))))
            elif verb == "PING":
                self._send(b"PONG\r\n")
            elif verb == "PONG" and self._pongs:
                pong = self._pongs.pop(0)
                if not pong.done():
                    pong.set_result(None)
            elif verb == "INFO":
                self.info = json.loads(line.removeprefix(b"INFO "))
            elif verb == "-ERR":
                log.error("NATS: %s", line.decode("utf-8", "replace").strip())
        raise ConnectionResetError("the server closed it")

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ping(self) -> None:
        """Notices a server that is gone without a word."""
        while True:
            await asyncio.sleep(PING_INTERVAL)
            if self._writer is None:
                continue
            self._unanswered += 1
            if self._unanswered > 2:
                self._writer.transport.abort()
                continue
            pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            pong.add_done_callback(lambda p: p.exception())
            self._pongs.append(pong)
            self._send(b"PING\r\n")


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in head.decode("utf-8", "replace").split("\r\n")[1:] if ":" in line)
    return {k.strip(): v.strip() for k, v in pairs}


def server_url(named: str | None = None) -> str:
    """Returns the server that is named, or in TURNPIKE_NATS_URL, else that of the `turnpike dev` that runs here, else the usual one.

    The address of a `turnpike dev` gets its password, wherever it comes from.
    """
    given = named or os.environ.get("TURNPIKE_NATS_URL") or ""
    try:
        dev = _file(os.path.join(os.environ.get("TURNPIKE_DATA_DIR") or ".turnpike", "nats.url"))
    except OSError:
        dev = ""
    if not given:
        return dev or "nats://127.0.0.1:4222"
    same = dev and "," not in given and urlsplit(given).netloc == urlsplit(dev).netloc.rpartition("@")[2]
    return dev if same else given
