"""Runs and batches."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload
from urllib.parse import quote

from . import schema, transport
from .errors import Ended, OutputError, RunFailed
from .tools import Image, ResultFile, parts
from .types import TERMINAL, BatchInfo, BatchItem, Event, Message, Mode, RunInfo, Transcript, Turn

if TYPE_CHECKING:
    from .client import Client

T = TypeVar("T")
FOREVER = 1e9  # seconds
RECONNECT_DELAY = 0.25  # seconds
STEADY = 1.0  # seconds after which an open stream counts as restored: a proxy may cut streams again and again


class Run:
    """A run of an agent. Methods may be called from any thread."""

    def __init__(self, client: Client, id: str):
        self._client, self.id = client, id
        self._path = "/v1/runs/" + quote(id, safe="")

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    def get(self) -> RunInfo:
        """Reads the run as it stands."""
        info: RunInfo = self._call("GET", "")
        return info

    def wait(self, timeout: float | None = None) -> RunInfo:
        """Returns the run once it has ended or waits for a person or another program.

        Raises TimeoutError after `timeout` seconds.
        """
        return self._until(lambda info: _at_rest(info), timeout)

    @overload
    def result(self, output: None = None, *, timeout: float | None = None) -> str: ...

    @overload
    def result(self, output: type[T], *, timeout: float | None = None) -> T: ...

    def result(self, output: Any = None, *, timeout: float | None = None) -> Any:
        """Waits for the end of the run and returns its output: text, or a value of the type `output`.

        The type is as in the `output` of Client.submit: a dataclass, a TypedDict and so on. Raises RunFailed if the
        run did not complete, OutputError if its output is not of the type, and TimeoutError after `timeout` seconds.
        """
        info = self._until(lambda info: info["status"] in TERMINAL, timeout)
        if info["status"] != "completed":
            error = info["error"]
            detail = error["message"] if error else info["transition"].get("detail", "")
            raise RunFailed(self.id, info["status"], info["reason"] or "", detail)
        if output is None or output is str:
            return info["output"] or ""
        value = info["structured_output"]
        try:
            return schema.decode(output, json.loads(info["output"] or "null") if value is None else value)
        except ValueError as e:
            raise OutputError(self.id, value if value is not None else info["output"], str(e)) from None

    def events(self, after: int = 0, timeout: float | None = None) -> Iterator[Event]:
        """Yields the events after number `after` until the run has ended.

        It reconnects when the connection breaks: committed events come without gap or double. Live events, whose
        `seq` is None, are lost in between. Raises TimeoutError after `timeout` seconds.
        """
        end = time.monotonic() + (FOREVER if timeout is None else timeout)
        last_id, retries = str(after) if after else "", transport.Retries(self._client.retry_for)
        while True:
            opened = FOREVER
            try:
                stream = self._client._transport.events(f"{self._path}/events", last_id, max(end - time.monotonic(), 0.001))
                for frame in stream:
                    if frame.event == "open":
                        opened = time.monotonic()
                        continue
                    event: Event = json.loads(frame.data)
                    last_id = frame.id or last_id
                    retries.reset()
                    seq = event["seq"]
                    if seq is not None:
                        if seq <= after:
                            continue
                        after = seq
                    yield event
                    if time.monotonic() > end:
                        break
            except Exception as e:
                error = transport.as_problem(e, self._client._transport.base)
                if time.monotonic() - opened > STEADY:
                    retries.reset()
                if time.monotonic() < end:
                    retries.after(error)  # a broken connection, unless it raises
                    continue
            else:
                # A gateway that shuts down ends streams as the end of a run does.
                if time.monotonic() < end and self._ended(after):
                    return
            if time.monotonic() >= end:
                raise TimeoutError(f"run {self.id} has not ended within the timeout: wait again, or raise the timeout")
            time.sleep(RECONNECT_DELAY)

    def messages(self, *, full: bool = False) -> list[Message]:
        """Reads the transcript as the model sees it; `full` adds messages that it no longer sees."""
        items: list[Message] = self._call("GET", "/messages" + ("?view=full" if full else ""))["items"]
        return items

    def transcript(self, format: Literal["openai", "anthropic"]) -> Transcript:
        """Reads the whole transcript in the format of a provider."""
        transcript: Transcript = self._call("GET", "/messages" + transport.query({"format": format}))
        return transcript

    def turns(self) -> list[Turn]:
        """Reads the audit trail: one row a transition."""
        items: list[Turn] = self._call("GET", "/turns")["items"]
        return items

    def cancel(self, reason: str = "") -> RunInfo:
        """Aborts the run. Raises Ended if it has ended before."""
        try:
            info: RunInfo = self._call("POST", "/cancel", {"reason": reason})
            return info
        except Ended as e:
            if e.retried and (info := self.get())["status"] == "cancelled":
                return info
            raise

    def approve(self, call_id: str, *, arguments: Mapping[str, Any] | None = None, reason: str = "", hash: str = "") -> RunInfo:
        """Approves a waiting call. `arguments` replace those of the model; `hash` names the call that was reviewed."""
        return self._decide(call_id, "approve", arguments, reason, hash)

    def deny(self, call_id: str, *, reason: str = "", hash: str = "") -> RunInfo:
        """Denies a waiting call. The model reads the reason."""
        return self._decide(call_id, "deny", None, reason, hash)

    def answer(self, text: str) -> RunInfo:
        """Answers the question that the run waits with."""
        return self.signal({"answer": text})

    def message(self, message: str | Mapping[str, Any], *, mode: Mode | None = None) -> RunInfo:
        """Sends a user message: it steers a run in flight at its next turn, and continues one that has ended.

        With the mode `interrupt` it aborts the turn in flight; `rollback` also withdraws that turn, and raises
        EffectsStarted if a tool call of it has started; with `reject` a busy run raises Busy.
        """
        return self.signal({"message": message} | ({"mode": mode} if mode else {}))

    def tool_result(
        self, call_id: str, content: Any, *, is_error: bool = False, images: Sequence[Image] = (), files: Sequence[ResultFile] = (),
    ) -> RunInfo:
        """Sends the result of a call that this program made: of a client tool, or of one that answers later.

        The model reads images and files next to the content. A file is best uploaded and named by its id: the data of
        others stays in the history of the run.
        """
        body: dict[str, Any] = {"call_id": call_id, "content": content, "is_error": is_error}
        if images:
            body["images"] = parts(images)
        if files:
            body["files"] = parts(files)
        return self.signal({"tool_results": [body]})

    def signal(self, body: Mapping[str, Any], key: str | None = None) -> RunInfo:
        """Sends a signal. It counts once, however often it is sent with the same key."""
        info: RunInfo = self._call("POST", "/signals", dict(body), key or secrets.token_hex(16))
        return info

    def fork(
        self, turn: int, *, input: str | Sequence[Mapping[str, Any]] | None = None, agent_version: int | None = None,
        instructions: str | None = None, messages: Sequence[Mapping[str, Any]] | None = None,
        tool_results: Sequence[Mapping[str, Any]] | None = None, key: str | None = None, variables: Mapping[str, object] | None = None,
    ) -> Run:
        """Starts a run that shares the history through `turn`, with these changes. Turn 0 is the input alone.

        Without `variables` the fork has those of this run.
        """
        body = {"turn": turn, "input": input, "agent_version": agent_version, "instructions": instructions,
                "messages": messages, "tool_results": tool_results, "variables": variables}
        info = self._call("POST", "/fork", {k: v for k, v in body.items() if v is not None}, key or secrets.token_hex(16))
        return Run(self._client, info["id"])

    def delete(self) -> None:
        """Deletes the run with its descendants. Raises Conflict if one is in flight."""
        self._call("DELETE", "")

    def _decide(self, call_id: str, decision: str, arguments: Mapping[str, Any] | None, reason: str, hash: str) -> RunInfo:
        body: dict[str, Any] = {"call_id": call_id, "decision": decision}
        if arguments is not None:
            body["arguments"] = dict(arguments)
        if reason:
            body["reason"] = reason
        if hash:
            body["hash"] = hash
        return self.signal({"approvals": [body]})

    def _until(self, enough: Any, timeout: float | None) -> RunInfo:
        info = self.get()
        if enough(info):
            return info
        for event in self.events(timeout=timeout):
            # The event may be of an earlier wait or end.
            if event["type"] in ("run.waiting", "run.finished") and enough(info := self.get()):
                return info
        return self.get()

    def _ended(self, after: int) -> bool:
        if self.get()["status"] not in TERMINAL:
            return False
        return not self._call("GET", f"/events?limit=1&after={after}")["items"]

    def _call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        return self._client._transport.call(method, self._path + path, body, key=key)


def _at_rest(info: RunInfo) -> bool:
    waiting = info["waiting"]
    return info["status"] in TERMINAL or waiting is not None and waiting["reason"] != "waiting_child"


class Batch:
    """Runs that were submitted together. `runs` are in the order of the submission."""

    def __init__(self, client: Client, id: str, run_ids: Sequence[str]):
        self._client, self.id = client, id
        self.runs = [Run(client, i) for i in run_ids]

    def get(self, *, limit: int | None = None, cursor: str | None = None) -> BatchInfo:
        """Reads the counts and one page of runs."""
        query = transport.query({"limit": limit, "cursor": cursor})
        info: BatchInfo = self._client._transport.call("GET", f"/v1/batches/{quote(self.id, safe='')}{query}")
        return info

    def items(self) -> Iterator[BatchItem]:
        """Yields how each run stands, in the order of the submission."""
        cursor: str | None = None
        while True:
            page = self.get(cursor=cursor)
            yield from page["items"]
            if not (cursor := page["next_cursor"]):
                return

    def wait(self, timeout: float | None = None, *, interval: float = 0.5) -> BatchInfo:
        """Returns the batch once all its runs have ended, and looks every `interval` seconds.

        Raises TimeoutError after `timeout` seconds.
        """
        end = time.monotonic() + (FOREVER if timeout is None else timeout)
        while not (info := self.get())["done"]:
            if time.monotonic() > end:
                raise TimeoutError(f"batch {self.id}: {info['counts']}")
            time.sleep(interval)
        return info
