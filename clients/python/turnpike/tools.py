"""Tools: functions that agents call."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import inspect
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints, overload

from . import schema
from .errors import ArgumentsError, Cancelled

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_VERSION = re.compile(r"\d+\.\d+\.\d+([-+].+)?")
_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """A picture: data with its media type, as bytes or as text in base64, or a URL."""

    media_type: str = ""
    data: str | bytes = ""
    url: str = ""


@dataclass(frozen=True)
class ResultFile:
    """A file in a result: data or a URL with a media type, or the id of an uploaded file of the run's tenant.

    Data is bytes, or text in base64.
    """

    file_id: str = ""
    name: str = ""
    media_type: str = ""
    data: str | bytes = ""
    url: str = ""


@dataclass(frozen=True)
class Result:
    """A result with more than a content. A text reaches the model as it is, anything else as JSON.

    `pending` means that the tool has accepted the call and its result comes later, by `Run.tool_result`: only for
    tools that the agent declares async.
    """

    content: Any = ""
    images: tuple[Image, ...] = ()
    files: tuple[ResultFile, ...] = ()
    pending: bool = False


@dataclass(frozen=True)
class Context:
    """The call that a function makes. A function that wants it has a parameter with this type.

    `idempotency_key` is the same for every attempt at this call and for no other: pass it to the system that the tool
    changes. `cancelled` becomes true at the deadline and when the caller stops waiting; a coroutine is cancelled then.
    Other functions look at it, call `check`, or wait for `cancel_event`.
    """

    run_id: str = ""
    call_id: str = ""
    idempotency_key: str = ""
    deadline: datetime | None = None
    trace_parent: str = ""
    cancel_event: threading.Event = field(default_factory=threading.Event)
    report: Callable[[str], None] = lambda text: None

    def progress(self, text: str) -> None:
        """Reports progress to current readers of the run's events: the first 1,000 bytes. Reports may be lost: workers
        forward at most one every 200 ms for each call and drop the others. May be called from any thread."""
        self.report(text)

    @property
    def cancelled(self) -> bool:
        """Whether the deadline has passed or the caller no longer waits: nobody reads the result."""
        return self.cancel_event.is_set()

    def check(self) -> None:
        """Raises Cancelled if the caller no longer waits. It ends the call; the program logs no error."""
        if self.cancelled:
            raise Cancelled("the caller no longer waits for the result")


class Tool(Generic[P, R]):
    """A function that agents may call. Calling it calls the function."""

    def __init__(self, function: Callable[P, R], name: str, description: str, version: str, concurrency: int):
        self.function, self.name, self.description, self.version, self.concurrency = function, name, description, version, concurrency
        if not _NAME.fullmatch(name):
            raise TypeError(f"tool {name!r}: its name is not valid: use 1 to 64 letters, digits, - and _")
        if not _VERSION.fullmatch(version):
            raise TypeError(f"tool {name}: its version {version!r} is not a semantic version: write one such as 1.0.0")
        if concurrency < 1:
            raise TypeError(f"tool {name}: its concurrency is {concurrency}: set 1 or more")
        self._context: str | None = None
        self._fields = self._inspect()
        self.schema = schema.object_schema(self._fields)
        for parameter, text in _described(inspect.getdoc(function) or "").items():
            if parameter in self._fields:
                self.schema["properties"][parameter].setdefault("description", text)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        return asyncio.iscoroutinefunction(self.function)

    def arguments(self, value: Any) -> dict[str, Any]:
        """Returns the function's arguments, made of JSON. Raises ArgumentsError if they do not match the schema."""
        if not isinstance(value, dict):
            raise ArgumentsError(f'Invalid arguments for tool "{self.name}": they are not a JSON object: send one')
        try:
            return schema.decode_fields(self._fields, value)
        except schema.Mismatch as e:
            raise ArgumentsError(f'Invalid arguments for tool "{self.name}": {e}') from None

    def bound(self, arguments: dict[str, Any], context: Context) -> Callable[[], Any]:
        """Returns the function with its arguments."""
        if self._context is not None:
            arguments = {**arguments, self._context: context}
        return lambda: self.function(**arguments)

    def _inspect(self) -> schema.Fields:
        try:
            hints = get_type_hints(self.function, include_extras=True)
        except NameError as e:
            raise TypeError(f"tool {self.name}: {e}: define the types of its parameters at the top of a module") from None
        fields = schema.Fields()
        for p in inspect.signature(self.function).parameters.values():
            if hints.get(p.name) is Context:
                self._context = p.name
                continue
            if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
                raise TypeError(f"tool {self.name}: parameter {p.name} cannot be passed by name: make it a keyword parameter")
            if p.name not in hints:
                raise TypeError(f"tool {self.name}: parameter {p.name} has no type: annotate it")
            try:
                schema.schema_of(hints[p.name])
            except TypeError as e:
                raise TypeError(f"tool {self.name}: parameter {p.name}: {e}") from None
            fields[p.name] = (hints[p.name], p.default is p.empty)
        return fields


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, version: str = "1.0.0", concurrency: int = 64,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, *, name: str | None = None, description: str | None = None, version: str = "1.0.0",
    concurrency: int = 64,
) -> Any:
    """Makes a tool of a function: its name, its description and the schema of its arguments are the function's.

    The description is the docstring up to its section "Args:", whose lines describe the parameters. A parameter with
    a default may be left out. Arguments that do not match the types never reach the function. It returns a text, or
    anything that is JSON, a dataclass too. A function that is no coroutine runs in a thread. At most `concurrency`
    calls run at once in this process; others wait. Raises TypeError if the parameters have no JSON Schema.
    """
    def make(f: Callable[P, R]) -> Tool[P, R]:
        text = _SECTION.split(inspect.getdoc(f) or "", maxsplit=1)[0].strip()
        return Tool(f, name or f.__name__, text if description is None else description, version, concurrency)

    return make if function is None else make(function)


def _described(doc: str) -> dict[str, str]:
    """Returns the descriptions of parameters in the section "Args:" of a docstring."""
    parts = _SECTION.split(doc)
    texts: dict[str, str] = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=False):
        if heading not in ("Args", "Arguments", "Parameters"):
            continue
        last = ""
        indent: int | None = None
        for line in body.splitlines():
            stripped = line.strip()
            if not stripped:
                continue
            depth = len(line) - len(line.lstrip())
            indent = depth if indent is None else indent
            found = re.match(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)", stripped)
            if found and depth == indent:
                last = found[1]
                texts[last] = found[2]
            elif last:
                texts[last] = f"{texts[last]} {stripped}".strip()
    return texts


def encode(value: Any) -> Any:
    """Returns a result as values of JSON. Raises ValueError or TypeError if it has none."""
    return json.loads(json.dumps(value, default=_plain, allow_nan=False))


def parts(items: Iterable[Image | ResultFile]) -> list[dict[str, str]]:
    """Returns images or files as values of JSON, without the fields that are empty."""
    return [{k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in vars(item).items() if v} for item in items]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")
