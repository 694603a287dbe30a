"""HTTP requests to a gateway, with retries, and streams of server-sent events."""

from __future__ import annotations

import http.client
import io
import json
import os
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple, cast
from urllib.parse import urlencode, urlsplit

from .errors import Invalid, NotFound, Problem, Unavailable, problem

FIRST_DELAY, MOST_DELAY = 0.1, 2.0  # seconds before the first retry, and between later ones

# A gateway sends a comment every 15 s on a stream without events.
SILENCE = 45.0

BLOCK = 64 << 10  # bytes of a file in memory


class ServerEvent(NamedTuple):
    id: str
    event: str
    data: str


class _Unread(Exception):
    """Reading a body has failed, with the cause, as opposed to the connection."""


class Content:
    """A file as the body of a request, from its position on. It is read while it is sent.

    A file that can seek is sent again if the request is repeated; `size` is None for one that cannot.
    """

    def __init__(self, file: IO[bytes]):
        if isinstance(file, io.TextIOBase):
            raise TypeError("the file is open in text mode: open it in binary mode")
        self.file, self.start = file, 0
        self.size: int | None = None
        if file.seekable():
            self.start = file.tell()
            self.size = max(file.seek(0, os.SEEK_END) - self.start, 0)

    def __iter__(self) -> Iterator[bytes]:
        left = self.size
        try:
            if left is not None:
                self.file.seek(self.start)
            # No more than was announced, also of a file that grows.
            while block := self.file.read(BLOCK if left is None else min(left, BLOCK)):
                if left is not None:
                    left -= len(block)
                yield block
            if left:
                raise ValueError(f"the file became {left} bytes shorter while it was being sent: send it again")
        except (OSError, ValueError) as e:
            raise _Unread from e


class _Connection(http.client.HTTPConnection):
    # A gateway answers before it has read a body that it refuses, and closes the connection.
    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        if self.sock is None:
            self.connect()
        try:
            super().endheaders(message_body, encode_chunked=encode_chunked)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            if message_body is None:
                raise  # else the caller reads the answer, or gets an error there


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _HTTP(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Connection, req)


class _HTTPS(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext):
        super().__init__(context=context)
        self.context = context

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(cast(Any, _SecureConnection), req, context=self.context)


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
            raise ValueError(f"{url!r} is not the address of a gateway: write one such as http://127.0.0.1:7070")
        self.base, self.retry_for, self.timeout = url.rstrip("/"), retry_for, timeout
        self.headers = {"User-Agent": "turnpike-python"}
        if token := (token or "").strip():  # a key that was read from a file may end with a new line
            if not token.isascii() or not token.isprintable():
                raise ValueError("the token has characters that no token has: copy it again")
            self.headers["Authorization"] = f"Bearer {token}"
        if tenant:
            self.headers["Turnpike-Tenant"] = tenant
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _HTTP()]
        if parts.scheme == "https":
            handlers.append(_HTTPS(ssl.create_default_context(cafile=ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None, content_type: str = "application/json",
             if_match: int | None = None, raw: bool = False) -> Any:
        """Makes a request that may be repeated, and returns the answer's JSON, or its bytes if `raw`.

        Retries 429, 503 and connections that fail, for `retry_for` seconds, after the time that the gateway names.
        """
        data = body if body is None or isinstance(body, (bytes, Content)) else json.dumps(body, allow_nan=False).encode()
        headers = {"Accept": "*/*" if raw else "application/json"}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        if data is not None:
            headers["Content-Type"] = content_type
        if isinstance(data, Content) and data.size is not None:
            headers["Content-Length"] = str(data.size)
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
            except _Unread as e:
                raise e.__cause__ or e from None
            except Exception as e:
                error = as_problem(e, self.base)
                if isinstance(error, Problem):
                    error.retried = retried
                if isinstance(data, Content) and data.size is None:
                    raise error from error.__cause__  # its first bytes cannot be read again
                if method == "DELETE" and retried and isinstance(error, NotFound):
                    return None  # by an earlier try
                tries.after(error)
                retried = retried or isinstance(error, Unavailable)
        raise AssertionError("Retries ends with an error")

    def open(self, method: str, path: str, headers: Mapping[str, str], data: bytes | Content | None, timeout: float) -> Any:
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
        """Waits before the next try, or raises the error if it will last or no time is left.

        The error says all that the caller needs, so its traceback leaves out the errors that it was made of.
        """
        if not may_pass(error):
            raise error from error.__cause__
        self.end = self.end or time.monotonic() + self.seconds
        wait = self.delay * random.uniform(0.5, 1)
        wait = max(wait, getattr(error, "retry_after", None) or 0)
        if time.monotonic() + wait > self.end:
            raise error from error.__cause__
        time.sleep(wait)
        self.delay = min(self.delay * 2, MOST_DELAY)


def may_pass(error: Exception) -> bool:
    """Reports whether the same request may succeed later."""
    return isinstance(error, Unavailable) and error.status in (0, 502, 503, 504) or getattr(error, "status", None) == 429


def as_problem(error: Exception, address: str) -> Exception:
    """Returns the error to raise: that of the answer, or Unavailable for a failed connection to the gateway's address."""
    if isinstance(error, urllib.error.HTTPError):
        with error:
            return _refusal(error)
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, ssl.SSLCertVerificationError):
        return Invalid({"code": "certificate", "detail": f"{error.reason}: name the authority in ca_file"}, 0)
    if isinstance(error, (OSError, http.client.HTTPException)):  # URLError and timeouts are OSErrors
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Unavailable({"code": "unreachable", "detail": f"no gateway answers at {address} ({reason or type(reason).__name__}): start it, "
                            "for example with `turnpike dev`, or set TURNPIKE_URL or the url of the Client to another address"}, 0)
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
