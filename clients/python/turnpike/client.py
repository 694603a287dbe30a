"""The client of a gateway's HTTP API."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Literal, TypeVar, cast
from urllib.parse import quote

from .resources import Memory, Schedule, Trigger
from .run import Batch, Run
from .schema import schema_of
from .transport import Content, Transport, query
from .types import (
    Agent,
    AgentVersion,
    DeadLetter,
    Evaluation,
    EvaluationReport,
    EvaluationSummary,
    File,
    Hook,
    HookSettings,
    Limits,
    PendingEvent,
    Priority,
    RunFilter,
    RunInfo,
    ScheduleInfo,
    Submission,
    Token,
    Transcript,
    TriggerInfo,
    Webhook,
    WebhookTest,
)

T = TypeVar("T")

MAX_PAGE = 1000  # the most items that a gateway lists at once


class Client:
    """Submits runs to a gateway and reads them. Safe for concurrent use by threads.

    `url`, `token`, `tenant` and `ca_file` are by default those of TURNPIKE_URL, TURNPIKE_TOKEN, TURNPIKE_TENANT and
    TURNPIKE_CA_FILE. Without a URL it is http://127.0.0.1:7070. For `retry_for` seconds the client repeats requests
    that get 429, 503 or no answer; submissions and signals have a key, so that a repeated one counts once.
    """

    def __init__(
        self, url: str | None = None, *, token: str | None = None, tenant: str | None = None, ca_file: str | None = None,
        retry_for: float = 30, timeout: float = 60,
    ):
        env = os.environ.get
        self.retry_for = retry_for
        self._transport = Transport(
            url or env("TURNPIKE_URL") or "http://127.0.0.1:7070", token or env("TURNPIKE_TOKEN"), tenant or env("TURNPIKE_TENANT"),
            ca_file or env("TURNPIKE_CA_FILE"), retry_for, timeout,
        )

    def put_agent(self, name: str, definition: Mapping[str, Any] | str) -> Agent:
        """Stores a version of an agent: a mapping, or a text in YAML or JSON. An unchanged one makes no version."""
        body = definition.encode() if isinstance(definition, str) else dict(definition)
        kind = "application/yaml" if isinstance(definition, str) else "application/json"
        return cast(Agent, self._transport.call("PUT", _agent(name), body, content_type=kind))

    def get_agent(self, name: str, *, version: int | None = None) -> Agent:
        """Reads a version of an agent, by default the latest."""
        return cast(Agent, self._transport.call("GET", _agent(name) + query({"version": version})))

    def agents(self) -> Iterator[Agent]:
        """Yields the agents."""
        return self._pages("/v1/agents", {})

    def agent_versions(self, name: str) -> Iterator[AgentVersion]:
        """Yields the versions of an agent, the newest first, with the figures of their runs."""
        return self._pages(_agent(name) + "/versions", {})

    def delete_agent(self, name: str) -> None:
        """Removes an agent. Its runs keep their version."""
        self._transport.call("DELETE", _agent(name))

    def submit(
        self, agent: str, input: str | Sequence[Mapping[str, Any]] | Transcript, *, key: str | None = None, output: Any = None,
        output_schema: Mapping[str, Any] | None = None, limits: Limits | None = None, priority: Priority | None = None,
        start_at: str | None = None, delay: str | float | None = None, metadata: Mapping[str, str] | None = None,
        stream: Literal["turns", "deltas"] | None = None, agent_version: int | None = None, confidence: float | None = None,
        variables: Mapping[str, object] | None = None, webhook: Webhook | None = None,
    ) -> Run:
        """Submits a run and returns its handle once it is durable.

        The same `key` gives the same run, and another submission with that key raises Conflict; without one each call
        makes a run. `output` is a type whose schema the output must match: read it with `run.result(TYPE)`.
        `variables` are the values of the variables that the agent declares; Invalid names the place of a wrong one.
        `webhook` is an address that receives the run's events.
        """
        if output is not None and output_schema is None:
            output_schema = schema_of(output)
        fields = {
            "agent": agent, "input": input, "output_schema": output_schema, "limits": limits, "priority": priority, "start_at": start_at,
            "delay": delay, "metadata": metadata, "stream": stream, "agent_version": agent_version, "confidence": confidence,
            "variables": variables, "webhook": webhook,
        }
        body = {k: v for k, v in fields.items() if v is not None}
        return Run(self, self._transport.call("POST", "/v1/runs", body, key=key or secrets.token_hex(16))["id"])

    def do(
        self, agent: str, input: str | Sequence[Mapping[str, Any]] | Transcript, output: type[T], *, timeout: float | None = None, **more: Any,
    ) -> T:
        """Submits a run whose output must be of a type, and returns the output. See `submit` and `Run.result`."""
        return self.submit(agent, input, output=output, **more).result(output, timeout=timeout)

    def run(self, id: str) -> Run:
        """Returns the handle of a run. It makes no request."""
        return Run(self, id)

    def runs(self, *, metadata: Mapping[str, str] | None = None, limit: int | None = None, **filters: str | None) -> Iterator[RunInfo]:
        """Yields runs, the newest first: at most `limit`, or all. Filters are the parameters of GET /v1/runs, such as status and agent."""
        page = None if limit is None else min(max(limit, 1), MAX_PAGE)
        found = self._pages("/v1/runs", {**filters, **{f"metadata.{k}": v for k, v in (metadata or {}).items()}, "limit": page})
        return itertools.islice(found, limit)

    def cancel_runs(self, filter: RunFilter, *, reason: str = "", dry_run: bool = False) -> list[str]:
        """Aborts all runs in flight that match a filter, and returns their ids, the newest first.

        With `dry_run` it aborts none. Raises Invalid if the filter is empty. It makes a request for every 1,000 runs. If
        one fails, some runs may be aborted: call it again.
        """
        body: dict[str, Any] = {"filter": filter, "reason": reason, "dry_run": dry_run}
        ids: list[str] = []
        while True:
            page = self._transport.call("POST", "/v1/runs:cancel", body)
            ids += page["run_ids"]
            if not (cursor := page["next_cursor"]):
                return ids
            body["cursor"] = cursor

    def batch(
        self, runs: Sequence[Submission], *, max_parallel: int | None = None, count_waiting: bool = False, key: str | None = None,
    ) -> Batch:
        """Submits 1 to 1,000 runs: all of them, or none."""
        body: dict[str, Any] = {"runs": list(runs)}
        if max_parallel is not None:
            body["max_parallel"] = max_parallel
        if count_waiting:
            body["count_waiting"] = True
        made = self._transport.call("POST", "/v1/runs:batch", body, key=key or secrets.token_hex(16))
        return Batch(self, made["batch_id"], made["run_ids"])

    def upload(self, file: bytes | str | os.PathLike[str] | IO[bytes], *, name: str | None = None, media_type: str | None = None) -> File:
        """Uploads a file: its content as bytes, its path, or an open file from its position on.

        A part {"type": "file", "file_id": ID} names it. A path or an open file is sent while it is read, and its name
        is that of the file by default. Without `media_type` the gateway finds it by the name, or else by the content.

        The gateway deletes the file a day after the last run that names it. The client repeats an upload whose answer
        is lost, and the gateway deletes an unused copy after a day. A file that cannot seek, such as a pipe, is sent
        once.
        """
        if isinstance(file, (str, os.PathLike)):
            with open(file, "rb") as opened:
                return self.upload(opened, name=name or os.path.basename(file), media_type=media_type)
        body = file if isinstance(file, bytes) else Content(file)
        if name is None and isinstance(found := getattr(file, "name", None), str):
            name = os.path.basename(found)
        path = "/v1/files" + query({"name": name})
        return cast(File, self._transport.call("POST", path, body, content_type=media_type or "application/octet-stream"))

    def get_file(self, id: str) -> File:
        """Reads what is known of a file, without its content."""
        return cast(File, self._transport.call("GET", _file(id)))

    def download(self, id: str) -> bytes:
        """Reads the content of a file."""
        return cast(bytes, self._transport.call("GET", _file(id) + "/content", raw=True))

    def files(self) -> Iterator[File]:
        """Yields the files, without their contents."""
        return self._pages("/v1/files", {})

    def delete_file(self, id: str) -> None:
        """Deletes a file. Raises Conflict if a run or a schedule names it."""
        self._transport.call("DELETE", _file(id))

    def memory(self, scope: str) -> Memory:
        """Returns the memory of a scope: tenant, agent:NAME or metadata.KEY:VALUE. It makes no request."""
        return Memory(self, scope)

    def memory_scopes(self) -> Iterator[str]:
        """Yields the scopes that have a memory."""
        return (item["scope"] for item in self._pages("/v1/memory:scopes", {}))

    def schedule(self, name: str) -> Schedule:
        """Returns the handle of a schedule. It makes no request."""
        return Schedule(self, name)

    def schedules(self) -> Iterator[ScheduleInfo]:
        """Yields the schedules by name."""
        return self._pages("/v1/schedules", {})

    def trigger(self, name: str) -> Trigger:
        """Returns the handle of a trigger. It makes no request."""
        return Trigger(self, name)

    def triggers(self) -> Iterator[TriggerInfo]:
        """Yields the triggers by name."""
        return self._pages("/v1/triggers", {})

    def put_hook(self, name: str, settings: HookSettings) -> Hook:
        """Stores the settings of a hook, all of them. Gateways use them within two seconds."""
        return cast(Hook, self._transport.call("PUT", _hook(name), dict(settings)))

    def get_hook(self, name: str) -> Hook:
        """Reads a hook."""
        return cast(Hook, self._transport.call("GET", _hook(name)))

    def hooks(self) -> Iterator[Hook]:
        """Yields the hooks by name."""
        return self._pages("/v1/hooks", {})

    def delete_hook(self, name: str) -> None:
        """Removes a hook. Its runs stay."""
        self._transport.call("DELETE", _hook(name))

    def dead_letters(self) -> Iterator[DeadLetter]:
        """Yields the messages that could not be processed, the oldest first."""
        return self._pages("/v1/dead", {})

    def get_dead_letter(self, seq: int) -> DeadLetter:
        """Reads a dead letter: its cause, and what to do."""
        return cast(DeadLetter, self._transport.call("GET", f"/v1/dead/{seq}"))

    def replay_dead_letter(self, seq: int) -> DeadLetter:
        """Processes the message of a dead letter again.

        Replaying a letter again changes nothing, except that a webhook gets its event again.
        """
        return cast(DeadLetter, self._transport.call("POST", f"/v1/dead/{seq}/replay"))

    def pending_events(self) -> Iterator[PendingEvent]:
        """Yields the events that webhooks have not accepted yet, those of the oldest run first."""
        return self._pages("/v1/webhooks/pending", {})

    def test_webhook(self, url: str, secret: str | Sequence[str], *, timeout: float = 60, interval: float = 0.2) -> WebhookTest:
        """Has a worker send a made-up event to a receiver, once, and returns how that ended.

        `secret` refers to secrets of the workers, as in a Webhook. It looks every `interval` seconds, and raises
        TimeoutError after `timeout` seconds. If the answer to the request is lost, the receiver may get two events.
        """
        end = time.monotonic() + timeout
        body = {"url": url, "secret": secret if isinstance(secret, str) else list(secret)}
        test = cast(WebhookTest, self._transport.call("POST", "/v1/webhooks/tests", body))
        while test["status"] == "pending":
            if time.monotonic() > end:
                raise TimeoutError(f"no worker has ended the webhook test {test['id']}")
            time.sleep(interval)
            test = self.get_webhook_test(test["id"])
        return test

    def get_webhook_test(self, id: str) -> WebhookTest:
        """Reads a test of a webhook. The gateway keeps tests for an hour at least."""
        return cast(WebhookTest, self._transport.call("GET", "/v1/webhooks/tests/" + quote(id, safe="")))

    def put_evaluation(self, id: str, report: EvaluationReport) -> EvaluationSummary:
        """Stores the report of an evaluation, and replaces the one with that id. The tenant keeps its newest 500."""
        return cast(EvaluationSummary, self._transport.call("PUT", _evaluation(id), dict(report)))

    def get_evaluation(self, id: str) -> Evaluation:
        """Reads an evaluation with its results."""
        return cast(Evaluation, self._transport.call("GET", _evaluation(id)))

    def evaluations(self, *, agent: str | None = None) -> Iterator[EvaluationSummary]:
        """Yields the evaluations, of an agent or of all, the newest first and without their results."""
        return self._pages("/v1/evaluations", {"agent": agent})

    def delete_evaluation(self, id: str) -> None:
        """Deletes an evaluation. Its runs stay."""
        self._transport.call("DELETE", _evaluation(id))

    def create_token(
        self, user: str, *, roles: Sequence[Literal["viewer", "submitter", "approver"]] = ("viewer", "submitter"),
        agents: Sequence[str] | None = None, run: str | None = None, expires_in: str | None = None,
    ) -> Token:
        """Issues a short-lived token for a user of this program, which needs an API key with the role issuer.

        The token reaches the runs of that user only, of `agents` or the one `run` if given. Pass its text, the key
        "token", to the user's browser.
        """
        fields = {"user": user, "roles": list(roles), "agents": list(agents) if agents is not None else None, "run": run, "expires_in": expires_in}
        return cast(Token, self._transport.call("POST", "/v1/tokens", {k: v for k, v in fields.items() if v is not None}))

    def _pages(self, path: str, parameters: Mapping[str, Any]) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self._transport.call("GET", path + query({**parameters, "cursor": cursor}))
            yield from page["items"]
            if not (cursor := page["next_cursor"]):
                return


def _agent(name: str) -> str:
    return "/v1/agents/" + quote(name, safe="")


def _evaluation(id: str) -> str:
    return "/v1/evaluations/" + quote(id, safe="")


def _file(id: str) -> str:
    return "/v1/files/" + quote(id, safe="")


def _hook(name: str) -> str:
    return "/v1/hooks/" + quote(name, safe="")
