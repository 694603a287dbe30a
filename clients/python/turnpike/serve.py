"""Serves tools over NATS: docs/how-to/nats-tools.md has the protocol."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from . import nats
from .errors import ArgumentsError, Cancelled, NATSError, ToolError
from .tools import Context, Result, Tool, encode, parts

log = logging.getLogger("turnpike")

HEARTBEAT, PROGRESS, TRACE = "Turnpike-Heartbeat", "Turnpike-Progress", "traceparent"
LEAST_HEARTBEAT = 50  # milliseconds
MOST_PROGRESS, MOST_ERROR, MOST_FIRST_LINE = 1000, 64 << 10, 200  # bytes
MAY_HAVE_ACTED = "The call may have had an effect: check that before you repeat it"
_TENANT = re.compile(r"[a-z0-9-]{1,40}")


def serve(
    *tools: Tool[Any, Any], url: str | None = None, prefix: str | None = None, tenant: str | None = None, login: nats.Login | None = None,
) -> None:
    """Serves tools until SIGINT or SIGTERM. Then it accepts no more calls, answers those in flight, and returns.

    It does not wait for calls that were cancelled or whose deadline has passed, and only some seconds for a NATS server that
    is away. A second signal ends the program at once.

    Without `url` the server is that of TURNPIKE_NATS_URL, or of the `turnpike dev` that runs in the working directory.
    `prefix` and `tenant` are by default TURNPIKE_PREFIX and TURNPIKE_TENANT, the login that of `Login.from_env`. If no
    server answers at the start, the program ends with one line; a connection that breaks later is made anew.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    async def run() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop(number: int, _: object) -> None:
            if signalled:
                os._exit(128 + number)
            signalled.append(number)
            loop.call_soon_threadsafe(stopped.set)

        signalled: list[int] = []
        # Unlike a handler of the loop, this one is called while a coroutine blocks the loop.
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            await serve_until(stopped, *tools, url=url, prefix=prefix, tenant=tenant, login=login)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    try:
        asyncio.run(run())
    except NATSError as e:
        raise SystemExit(str(e)) from None


async def serve_until(
    stopped: asyncio.Event, *tools: Tool[Any, Any], url: str | None = None, prefix: str | None = None, tenant: str | None = None,
    login: nats.Login | None = None,
) -> None:
    """Is `serve` for programs with a loop of their own: it serves until `stopped` is set. Raises NATSError."""
    if not tools:
        raise ValueError("serve tools: the list of tools is empty: pass at least one tool")
    prefix = prefix or os.environ.get("TURNPIKE_PREFIX") or "turnpike"
    tenant = tenant or os.environ.get("TURNPIKE_TENANT") or "default"
    if not _TENANT.fullmatch(tenant):
        raise ValueError(f"serve tools: the tenant {tenant!r} is not valid: use 1 to 40 lowercase letters, digits and hyphens")
    connection = nats.Connection(nats.server_url(url), "tool " + tools[0].name, login if login is not None else nats.Login().from_env())
    await connection.connect()
    services = [Service(connection, t, prefix, tenant) for t in tools]
    await connection.flush()
    for service in services:
        log.info("%s: answers calls on %s", service.tool.name, service.subject)
    await stopped.wait()
    sids = [sid for service in services for sid in service.leave()]
    await connection.drain(sids)
    await connection.finish()


class Service:
    """Runs the calls of one tool, as a NATS micro service that `nats micro ls` and `turnpike tools ls` find."""

    def __init__(self, connection: nats.Connection, tool: Tool[Any, Any], prefix: str, tenant: str):
        self.connection, self.tool = connection, tool
        root, discovery = prefix, "$SRV"
        if tenant != "default":
            root = f"{prefix}.t.{tenant}"
            discovery = root + ".srv"
        self.subject = f"{root}.tool.{tool.name}"
        self.slots = asyncio.Semaphore(tool.concurrency)
        metadata = {"description": tool.description, "schema": json.dumps(tool.schema, ensure_ascii=False)}
        self.identity = {"name": tool.name, "id": secrets.token_hex(11), "version": tool.version, "metadata": metadata}
        self.endpoint = {"name": tool.name, "subject": self.subject, "queue_group": "q"}
        self.requests, self.errors, self.last_error, self.nanoseconds = 0, 0, "", 0
        self.started = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.sid = connection.subscribe(self.subject, self._take, queue="q")
        self.control = [
            connection.subscribe(".".join([discovery, verb, *to]), self._reporter(report))
            for verb, report in (("PING", self._ping), ("INFO", self._info), ("STATS", self._stats))
            for to in ((), (tool.name,), (tool.name, str(self.identity["id"])))
        ]

    def leave(self) -> list[str]:
        """Is no longer found, and returns the ids of the subscriptions to drain."""
        for sid in self.control:
            self.connection.unsubscribe(sid)
        return [self.sid]

    def _ping(self) -> dict[str, Any]:
        return {"type": "io.nats.micro.v1.ping_response", **self.identity}

    def _info(self) -> dict[str, Any]:
        endpoint = {**self.endpoint, "metadata": self.identity["metadata"]}
        return {"type": "io.nats.micro.v1.info_response", **self.identity, "description": self.tool.description, "endpoints": [endpoint]}

    def _stats(self) -> dict[str, Any]:
        endpoint = {**self.endpoint, "num_requests": self.requests, "num_errors": self.errors, "last_error": self.last_error,
                    "processing_time": self.nanoseconds, "average_processing_time": self.nanoseconds // max(self.requests, 1)}
        return {"type": "io.nats.micro.v1.stats_response", **self.identity, "started": self.started, "endpoints": [endpoint]}

    def _reporter(self, report: Callable[[], dict[str, Any]]) -> nats.Handler:
        async def answer(message: nats.Message) -> None:
            if message.reply:
                self.connection.publish(message.reply, json.dumps(report()).encode())
        return answer

    async def _take(self, message: nats.Message) -> None:
        if not message.reply:
            return  # the caller expects no answer
        began = time.monotonic_ns()
        failure = await _Call(self, message).answer()
        self.requests += 1
        self.nanoseconds += time.monotonic_ns() - began
        if failure:
            self.errors, self.last_error = self.errors + 1, failure


class _Call:
    """One call: from its request to its reply."""

    def __init__(self, service: Service, message: nats.Message):
        self.tool, self.connection, self.slots = service.tool, service.connection, service.slots
        self.message, self.over = message, False
        self.loop = asyncio.get_running_loop()

    async def answer(self) -> str:
        """Replies to the request. Returns the first line of the error that the caller received, or nothing."""
        try:
            request = json.loads(self.message.data, parse_constant=_refuse_constant)
            context = self._context(request)
        except (ValueError, TypeError) as e:
            return self._refuse("400", f'The request to tool "{self.tool.name}" is not a valid request of a worker ({e}): '
                                       "send a JSON object with the field arguments")
        work = asyncio.ensure_future(self._work(request.get("arguments"), context))

        def stop() -> None:
            context.cancel_event.set()
            work.cancel()

        async def cancel(_: nats.Message) -> None:
            stop()

        sid = self.connection.subscribe(self.message.reply + ".cancel", cancel)
        timer = None
        if context.deadline is not None:
            timer = self.loop.call_later((context.deadline - datetime.now(timezone.utc)).total_seconds(), stop)
        heartbeats = asyncio.ensure_future(self._heartbeats())
        try:
            content = await work
        except (asyncio.CancelledError, Cancelled):
            return ""  # the caller no longer listens
        except ArgumentsError as e:
            return self._refuse("400", str(e))
        except ToolError as e:
            return self._refuse("500", str(e))
        finally:
            self.over = True
            heartbeats.cancel()
            if timer is not None:
                timer.cancel()
            self.connection.unsubscribe(sid)
        return self._reply(content)

    def _context(self, request: Any) -> Context:
        if not isinstance(request, dict):
            raise ValueError("it is not a JSON object")
        run, call, key = texts = [request.get(name) or "" for name in ("run_id", "call_id", "idempotency_key")]
        if not all(isinstance(t, str) for t in texts):
            raise ValueError("run_id, call_id or idempotency_key is not a string")
        deadline = None
        if request.get("deadline"):
            deadline = datetime.fromisoformat(request["deadline"])
        return Context(run, call, key, deadline, self.message.headers.get(TRACE, ""), report=self._report)

    async def _work(self, raw: Any, context: Context) -> Any:
        """Calls the function. Raises ToolError, Cancelled or CancelledError, whatever the function raises."""
        try:
            async with self.slots:
                call = self.tool.bound(self.tool.arguments(raw), context)
                if self.tool.is_async:
                    return await call()
                return await self._in_thread(call)
        except (asyncio.CancelledError, GeneratorExit, Cancelled, ToolError):
            raise
        except BaseException as e:
            # SystemExit and KeyboardInterrupt would end the loop, and all other calls with it, if they left this task.
            log.exception("tool %s failed", self.tool.name)
            raise ToolError(f'Tool "{self.tool.name}" failed: {type(e).__name__}: {e}. {MAY_HAVE_ACTED}; '
                            "the author of the tool must correct it") from e

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Calls a function in a thread of its own, and leaves it there when the call is cancelled.

        Python waits for the threads of an executor before it exits, and not for daemon threads.
        """
        done: asyncio.Future[tuple[Any, BaseException | None]] = self.loop.create_future()

        def settle(result: Any, failure: BaseException | None) -> None:
            if not done.done():
                done.set_result((result, failure))

        def work() -> None:
            result, failure = None, None
            try:
                result = call()
            except BaseException as e:
                failure = e
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(settle, result, failure)

        threading.Thread(target=work, name=self.tool.name, daemon=True).start()
        result, failure = await done
        if failure is not None:
            raise failure
        return result

    @property
    def _every(self) -> int:
        text = self.message.headers.get(HEARTBEAT, "")
        return int(text) if text.isdigit() else 0

    async def _heartbeats(self) -> None:
        while self._every > 0:
            self.connection.publish(self.message.reply, headers={HEARTBEAT: str(self._every)})
            await asyncio.sleep(max(self._every, LEAST_HEARTBEAT) / 1000)

    def _report(self, text: str) -> None:
        """Sends progress, if the caller can tell it from the reply."""
        line = json.dumps(_cut(text, MOST_PROGRESS), ensure_ascii=False)

        def send() -> None:
            if self._every > 0 and not self.over:
                self.connection.publish(self.message.reply, headers={HEARTBEAT: str(self._every), PROGRESS: line})

        self.loop.call_soon_threadsafe(send)

    def _reply(self, result: Any) -> str:
        made = result if isinstance(result, Result) else Result(result)
        try:
            reply: dict[str, Any] = {"content": encode("" if made.content is None else made.content)}
            if made.images:
                reply["images"] = parts(made.images)
            if made.files:
                reply["files"] = parts(made.files)
            if made.pending:
                reply["pending"] = True
            data = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        except (TypeError, ValueError) as e:
            return self._refuse("500", f'Tool "{self.tool.name}" was called, but its result cannot be written as JSON ({e}). '
                                       "Continue without it; the author of the tool must correct it")
        if len(data) > self.connection.max_payload:
            return self._refuse("500", f'Tool "{self.tool.name}" was called, but its result has {len(data)} bytes, and the NATS server accepts '
                                       f"at most {self.connection.max_payload}: return less, or raise max_payload of the server")
        self.connection.publish(self.message.reply, data)
        return ""

    def _refuse(self, code: str, text: str) -> str:
        """Replies with an error, in the body for models and in the headers for NATS micro clients."""
        text = _cut(text or f'Tool "{self.tool.name}" failed without a message. {MAY_HAVE_ACTED}', MOST_ERROR)
        first = _cut((text.splitlines() or [""])[0], MOST_FIRST_LINE)
        data = json.dumps({"error": text}, ensure_ascii=False).encode("utf-8", "replace")
        self.connection.publish(self.message.reply, data, {"Nats-Service-Error": first, "Nats-Service-Error-Code": code})
        return first


def _cut(text: str, most: int) -> str:
    """Returns the first bytes of a text, without half a character at the end."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
