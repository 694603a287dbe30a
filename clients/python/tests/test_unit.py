"""Tests that need no server."""

import asyncio
import base64
import enum
import errno
import http.server
import inspect
import io
import json
import os
import pathlib
import re
import tempfile
import threading
import traceback
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Annotated, Any, Literal, NotRequired, Optional, TypedDict

from turnpike import ArgumentsError, Client, Context, Field, Memory, Run, nats, nkey, schema, serve, tool
from turnpike.errors import Cancelled, Conflict, Ended, Full, Invalid, NotFound, NotWaiting, Unavailable
from turnpike.errors import problem as problem_of
from turnpike.tools import Image, parts
from turnpike.transport import Content, Retries, may_pass, parse_events


class Unit(enum.Enum):
    KM = "km"
    MI = "mi"


@dataclass
class Stop:
    city: str
    days: Annotated[int, Field("how long", minimum=1)] = 1


class Options(TypedDict):
    unit: Unit
    note: NotRequired[str]


@tool(name="plan-trip", version="2.0.0")
def plan(stops: list[Stop], options: Options, speed: Literal["slow", "fast"], context: Context, limit: Optional[float] = None,
         extra: dict[str, Any] = {}) -> str:
    """Plans a trip.

    Use it for more than one city.

    Args:
        stops: the cities in the order
            in which they are visited
        speed (str): how fast
    """
    return f"{stops} {options} {speed} {limit} {extra}"


class Schema(unittest.TestCase):
    def test_tool(self) -> None:
        self.assertEqual((plan.name, plan.description), ("plan-trip", "Plans a trip.\n\nUse it for more than one city."))
        self.assertEqual(plan.schema, {
            "type": "object",
            "properties": {
                "stops": {"type": "array", "description": "the cities in the order in which they are visited", "items": {
                    "type": "object", "required": ["city"], "additionalProperties": False,
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "description": "how long", "minimum": 1}}}},
                "options": {"type": "object", "required": ["unit"], "additionalProperties": False,
                            "properties": {"unit": {"type": "string", "enum": ["km", "mi"]}, "note": {"type": "string"}}},
                "speed": {"type": "string", "enum": ["slow", "fast"], "description": "how fast"},
                "limit": {"type": ["number", "null"]},
                "extra": {"type": "object"},
            },
            "required": ["stops", "options", "speed"],
            "additionalProperties": False,
        })

    def test_arguments(self) -> None:
        good: dict[str, Any] = {"stops": [{"city": "Rome"}, {"city": "Oslo", "days": 2.0}], "options": {"unit": "km"}, "speed": "slow", "limit": 3}
        made = plan.arguments(good)
        self.assertEqual(made["stops"], [Stop("Rome"), Stop("Oslo", 2)])
        self.assertIs(made["options"]["unit"], Unit.KM)
        self.assertIsInstance(made["limit"], float)
        changes: list[tuple[dict[str, Any], str]] = [
            ({"stops": [{"city": "Rome"}, {}]}, "stops[1].city"), ({"stops": [{"city": "Rome", "days": 0}]}, "stops[0].days"),
            ({"stops": "Rome"}, "stops"), ({"options": {"unit": "ft"}}, "options.unit"), ({"options": {"unit": "km", "x": 1}}, "options.x"),
            ({"speed": "SLOW"}, "speed"), ({"limit": "3"}, "limit"), ({"limit": True}, "limit"), ({"context": {}}, "context"),
        ]
        for change, place in changes:
            with self.subTest(place), self.assertRaises(ArgumentsError) as caught:
                plan.arguments({**good, **change})
            self.assertIn(place, str(caught.exception))
        with self.assertRaises(ArgumentsError):
            plan.arguments(None)

    def test_refused(self) -> None:
        def untyped(x): ...  # type: ignore[no-untyped-def]
        def bytes_(x: bytes) -> None: ...
        def rest(*x: int) -> None: ...
        def keys(x: dict[int, str]) -> None: ...
        functions: list[Any] = [untyped, bytes_, rest, keys]
        for f in functions:
            with self.subTest(f.__name__), self.assertRaises(TypeError):
                tool(f)
        for name in ("", "a.b", "x" * 65):
            with self.assertRaises(TypeError):
                tool(name=name or "ä")(bytes_)

    def test_unions(self) -> None:
        self.assertEqual(schema.schema_of(Stop | None)["anyOf"][1], {"type": "null"})
        self.assertEqual(schema.schema_of(tuple[int, str])["minItems"], 2)
        self.assertEqual(schema.decode(float | int, 1), 1)
        self.assertEqual(schema.decode(Stop | str, "x"), "x")
        self.assertEqual(schema.decode(tuple[int, ...], [1, 2]), (1, 2))
        with self.assertRaises(schema.Mismatch):
            schema.decode(Stop | str, 1)


class Cancellation(unittest.TestCase):
    def test_cancelled(self) -> None:
        context = Context()
        self.assertIs(context.cancelled, False)
        self.assertFalse(context.cancel_event.wait(0))
        context.check()
        context.cancel_event.set()
        self.assertIs(context.cancelled, True)
        with self.assertRaises(Cancelled):
            context.check()


class Docs(unittest.TestCase):
    def test_signatures(self) -> None:
        page = (pathlib.Path(__file__).parents[3] / "docs/how-to/use-the-clients.md").read_text()
        owners = {"client": Client, "run": Run, "memory": Memory}
        rows = re.findall(r"^\| `(?:(\w+)\.)?(\w+)\((.*)\)`.* \| `.*\)` \|$", page, re.MULTILINE)
        self.assertGreater(len(rows), 15)
        for owner, name, written in rows:
            function = getattr(owners[owner], name) if owner else {"Client": Client, "serve": serve}[name]
            made: list[str] = []
            for p in inspect.signature(function).parameters.values():
                if p.kind is p.KEYWORD_ONLY and not any(m.startswith("*") for m in made):
                    made.append("*")
                made.append("*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD) + p.name)
            self.assertEqual(written, ", ".join(made[1:] if owner else made), name)


class Wire(unittest.TestCase):
    def test_events(self) -> None:
        stream = b": alive\n\nid: 1\nevent: a\ndata: {\"x\":\ndata: 1}\n\ndata:2\r\n\r\nid: 3\ndata: cut off"
        events = list(parse_events(io.BytesIO(stream)))
        self.assertEqual([tuple(e) for e in events], [("1", "a", '{"x":\n1}'), ("1", "message", "2")])

    def test_problems(self) -> None:
        for code, status, kind in (("not_waiting", 409, NotWaiting), ("run_finished", 409, Ended), ("new_code", 409, Conflict),
                                   ("too_many_waits", 429, Full), ("invalid_json", 400, Invalid), ("overloaded", 503, Unavailable)):
            made = problem_of({"code": code, "detail": "why", "request_id": "r"}, status, 2.0)
            self.assertIs(type(made), kind)
            self.assertEqual((made.code, made.status, made.detail, made.retry_after, made.request_id), (code, status, "why", 2.0, "r"))
            self.assertEqual(may_pass(made), status in (429, 503))

    def test_retries(self) -> None:
        late = problem_of({"code": "overloaded"}, 503, 60.0)
        with self.assertRaises(Unavailable):
            Retries(1).after(late)  # at once: the gateway wants more time than there is
        with self.assertRaises(Conflict):
            Retries(1).after(problem_of({"code": "x"}, 409))

    def test_refused(self) -> None:
        class Refuses(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(404)
                self.end_headers()
                self.wfile.write(b'{"code": "not_found", "detail": "there is no such run"}')

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port}"
            run = Client(address, retry_for=0).run("run_1")
            reads: list[Callable[[], object]] = [run.get, lambda: list(run.events())]
            for read in reads:
                with self.assertRaises(NotFound) as refused:
                    read()
                self.assertNotIn("HTTPError", "".join(traceback.format_exception(refused.exception)))
            server.shutdown()
        # The server is gone.
        for read in reads:
            with self.assertRaises(Unavailable) as silent:
                read()
            text = "".join(traceback.format_exception(silent.exception))
            self.assertNotIn("URLError", text)
            self.assertIn(f"no gateway answers at {address} (", text)
            self.assertIn("TURNPIKE_URL", text)


class Pages(unittest.TestCase):
    def test_limit(self) -> None:
        class Lists(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                body = b'{"items": [{"id": "a"}, {"id": "b"}], "next_cursor": "c"}'  # endless
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        asked: list[str] = []
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lists) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            client = Client(f"127.0.0.1:{server.server_port}")
            self.assertEqual([r["id"] for r in client.runs(limit=3)], ["a", "b", "a"])
            self.assertEqual(asked, ["/v1/runs?limit=3", "/v1/runs?limit=3&cursor=c"])
            self.assertEqual(len(list(client.runs(limit=0))), 0)
            self.assertEqual(len(list(client.runs(limit=1001))), 1001)
            self.assertIn("/v1/runs?limit=1000", asked)
            server.shutdown()


def piped() -> IO[bytes]:
    reads, writes = os.pipe()
    os.write(writes, b"piped")
    os.close(writes)
    return open(reads, "rb")


class Uploads(unittest.TestCase):
    def test_repeated(self) -> None:
        class Files(http.server.BaseHTTPRequestHandler):
            statuses = [0, 503, 201, 201, 503]  # 0 is no answer
            seen: list[tuple[str, str, bytes]] = []

            def do_POST(self) -> None:
                if not (status := self.statuses.pop(0)):
                    return  # without having read the body
                length, body = self.headers["Content-Length"] or "", b""
                if length:
                    body = self.rfile.read(int(length))
                else:
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                self.seen.append((self.path, length, body))
                self.send_response(status)
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(b'{"id": "file_1"}')

            def log_message(self, *args: object) -> None:
                pass

        content = os.urandom(300_000)
        with http.server.HTTPServer(("127.0.0.1", 0), Files) as server, tempfile.TemporaryFile() as file:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            client = Client(f"127.0.0.1:{server.server_port}", retry_for=10)
            file.write(content)
            file.seek(7)
            self.assertEqual(client.upload(file, name="a b.txt")["id"], "file_1")
            with piped() as pipe:
                client.upload(pipe)
            with piped() as pipe, self.assertRaises(Unavailable):
                client.upload(pipe)  # it cannot be repeated
            server.shutdown()
        once = ("/v1/files?name=a+b.txt", str(len(content) - 7), content[7:])
        self.assertEqual(Files.seen, [once, once] + 2 * [("/v1/files", "", b"piped")])

    def test_changed(self) -> None:
        file = io.BytesIO(b"x" * 100)
        content = Content(file)
        file.write(b"more")
        self.assertEqual(b"".join(content), b"x" * 100)

        class Shrinks(io.BytesIO):
            def seek(self, offset: int, whence: int = 0) -> int:
                return 100 if whence else super().seek(offset)

        class Breaks(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                raise OSError(errno.EIO, "the disk is broken")

        with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:  # which never answers
            client = Client(f"127.0.0.1:{server.server_port}", timeout=5, retry_for=0)
            with self.assertRaisesRegex(ValueError, "40 bytes shorter"):
                client.upload(Shrinks(b"x" * 60))
            with self.assertRaises(OSError) as caught:
                client.upload(Breaks(b"x"))
            self.assertEqual(caught.exception.errno, errno.EIO)
        with self.assertRaises(TypeError):
            Client().upload(io.StringIO("x"))  # type: ignore[arg-type]


class Tokens(unittest.TestCase):
    def test_new_line(self) -> None:
        client = Client("http://127.0.0.1:1", token="tp_id_SECRET\n")
        self.assertEqual(client._transport.headers["Authorization"], "Bearer tp_id_SECRET")

    def test_invalid(self) -> None:
        with self.assertRaises(ValueError) as raised:
            Client("http://127.0.0.1:1", token="tp_id_SEC\nRET")
        self.assertNotIn("RET", str(raised.exception))


class Parts(unittest.TestCase):
    def test_bytes(self) -> None:
        self.assertEqual(parts([Image("image/png", b"hi"), Image("image/png", "aGk=")]), [{"media_type": "image/png", "data": "aGk="}] * 2)


class Connections(unittest.IsolatedAsyncioTestCase):
    async def test_closed_as_attempt_fails(self) -> None:
        connection = nats.Connection("nats://127.0.0.1:1", "test")
        attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def connect(_: object) -> None:
            await attempt

        connection._connect = connect  # type: ignore[assignment]
        connecting = asyncio.create_task(connection._connect_any())
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # asyncio.wait_for would run the attempt in a task of its own
        attempt.set_exception(ConnectionRefusedError())
        connecting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await connecting


class NKey(unittest.TestCase):
    def test_known(self) -> None:
        # The first test vector of RFC 8032, as a seed of NATS.
        raw = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
        head = bytes([18 << 3 | (20 << 3) >> 5, ((20 << 3) & 31) << 3])
        seed = base64.b32encode(head + raw + nkey._crc16(head + raw)).decode().rstrip("=")
        pair = nkey.KeyPair(nkey.seed_of(f"# comment\n{seed}\n"))
        self.assertEqual(pair.sign(b"").hex(), "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
                                               "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b")
        self.assertTrue(pair.public().startswith("U"))
        for text in ("", seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:], "SO" + seed[2:]):
            with self.assertRaises(ValueError):
                nkey.KeyPair(nkey.seed_of(text))

    def test_creds(self) -> None:
        self.assertEqual(nkey.jwt_of("-----BEGIN NATS USER JWT-----\nabc.def\n------END NATS USER JWT------\n"), "abc.def")
        with self.assertRaises(ValueError):
            nkey.jwt_of(json.dumps({}))


if __name__ == "__main__":
    unittest.main()
