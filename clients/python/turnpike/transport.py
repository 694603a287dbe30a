"""HTTP requests to a gateway, with retries, and streams of server-sent events."""

from __future__ import annotations

import http.client
import json
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from .errors import Invalid, NotFound, Problem, Unavailable, problem

FIRST_DELAY, MOST_DELAY = 0.1, 2.0  # seconds before the first retry, and between later ones

# A gateway sends a comment every 15 s on a stream without events.
SILENCE = 45.0


class ServerEvent(NamedTuple):
    id: str
    event: str
    data: str


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    # A gateway redirects no API request, and the token must not reach another host.
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Transport:
    """Makes requests to one gateway. Safe for concurrent use: each request has a connection of its own."""

    def __init__(self, url: str, token: str | None, tenant: str | None, ca_file: str | None, retry_for: float, timeout: float):
        if re.match(r"(\[[^/@?#]+\]|[^/@:?#]+):\d+(/|$)", url):  # a host and a port alone
            url = "http://" + url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address of a gateway is like http://127.0.0.1:7070, not {url!r}")
        self.base, self.retry_for, self.timeout = url.rstrip("/"), retry_for, timeout
        self.headers = {"User-Agent": "turnpike-python"}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        if tenant:
            self.headers["Turnpike-Tenant"] = tenant
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, content_type: str = "application/json",
             if_match: int | None = None, raw: bool = False) -> Any:
        """Makes a request that may be repeated, and returns the answer's JSON, or its bytes if `raw`.

        Retries 429, 503 and connections that fail, for `retry_for` seconds, after the time that the gateway names.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body, allow_nan=False).encode()
        headers = {"Accept": "*/*" if raw else "application/json"}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        if data is not None:
            headers["Content-Type"] = content_type
        if key:
            headers["Idempotency-Key"] = key
        retried = False
        for tries in Retries(self.retry_for):
            try:
                with self.open(method, path, headers, data, self.timeout) as answer:
                    text = answer.read()
                    if raw:
                        return text
                    if not text:
                        return None
                    try:
                        return json.loads(text)
                    except ValueError:
                        raise foreign(answer.status, text) from None
            except Exception as e:
                error = as_problem(e)
                if isinstance(error, Problem):
                    error.retried = retried
                if method == "DELETE" and retried and isinstance(error, NotFound):
                    return None  # by an earlier try
                tries.after(error)
                retried = retried or isinstance(error, Unavailable)
        raise AssertionError("Retries ends with an error")

    def open(self, method: str, path: str, headers: Mapping[str, str], data: bytes | None, timeout: float) -> Any:
        """Sends one request. The answer is a context manager that closes the connection."""
        request = urllib.request.Request(self.base + path, data=data, headers={**self.headers, **headers}, method=method)
        return self._opener.open(request, timeout=timeout)

    def events(self, path: str, last_id: str, timeout: float) -> Iterator[ServerEvent]:
        """Reads one connection's worth of a stream, from behind the event with this id.

        The first one, without data, says that the stream is open.
        """
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        with self.open("GET", path, headers, None, min(timeout, SILENCE)) as answer:
            yield ServerEvent(last_id, "open", "")
            yield from parse_events(answer)


class Retries:
    """Tries of one request: `for tries in Retries(30)`, with `tries.after(error)` for each that failed.

    The seconds count from the first failure.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.reset()

    def reset(self) -> None:
        """Forgets the failures so far."""
        self.end, self.delay = 0.0, FIRST_DELAY

    def __iter__(self) -> Iterator[Retries]:
        while True:
            yield self

    def after(self, error: Exception) -> None:
        """Waits before the next try, or raises the error if it will last or no time is left."""
        if not may_pass(error):
            raise error
        self.end = self.end or time.monotonic() + self.seconds
        wait = self.delay * random.uniform(0.5, 1)
        wait = max(wait, getattr(error, "retry_after", None) or 0)
        if time.monotonic() + wait > self.end:
            raise error
        time.sleep(wait)
        self.delay = min(self.delay * 2, MOST_DELAY)


def may_pass(error: Exception) -> bool:
    """Reports whether the same request may succeed later."""
    return isinstance(error, Unavailable) and error.status in (0, 502, 503, 504) or getattr(error, "status", None) == 429


def as_problem(error: Exception) -> Exception:
    """Returns the error to raise: that of the answer, or Unavailable for a connection that failed."""
    if isinstance(error, urllib.error.HTTPError):
        with error:
            return _refusal(error)
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, ssl.SSLCertVerificationError):
        return Invalid({"code": "certificate", "detail": f"{error.reason}: name the authority in ca_file"}, 0)
    if isinstance(error, (OSError, http.client.HTTPException)):  # URLError and timeouts are OSErrors
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Unavailable({"code": "unreachable", "detail": f"no gateway answers: {reason or type(reason).__name__}"}, 0)
    return error


def _refusal(error: urllib.error.HTTPError) -> Exception:
    try:
        text = error.read(64 << 10)
        body = json.loads(text)
    except (OSError, http.client.HTTPException):
        text, body = b"", None
    except ValueError:
        body = None
    try:
        retry_after = float(error.headers.get("Retry-After") or "")
    except ValueError:
        retry_after = None
    if isinstance(body, dict) and body.get("code"):
        return problem(body, error.code, retry_after)
    made = foreign(error.code, text)
    made.retry_after = retry_after
    return made


def query(parameters: Mapping[str, Any]) -> str:
    """Returns the part of an address behind its path. Parameters that are None are left out."""
    given = {k: v for k, v in parameters.items() if v is not None}
    return "?" + urlencode(given) if given else ""


def foreign(status: int, text: bytes) -> Problem:
    """Returns the error for an answer that is not a gateway's."""
    start = text[:100].decode("utf-8", "replace")
    return problem({"code": "foreign", "detail": f"the answer is not that of a gateway: {start!r}"}, status)


def parse_events(lines: Any) -> Iterator[ServerEvent]:
    """Yields the events of a stream. An event that is cut off is dropped."""
    last, event = "", ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\n").rstrip("\r")
        if not line:
            if data:
                yield ServerEvent(last, event or "message", "\n".join(data))
            event, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            last = value
