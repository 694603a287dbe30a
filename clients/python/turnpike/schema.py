"""JSON Schemas of Python types, and values of these types made of JSON."""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Field:
    """Describes a value, in `Annotated[int, Field("how many", minimum=1)]`. A plain text is a description."""

    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


class Mismatch(ValueError):
    """A value does not fit its type. The text names the place."""


_SIMPLE: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema_of(tp: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a type.

    Types are str, int, float, bool, None, Any, Literal, Enum, Optional and other unions, list, tuple, dict with
    texts as keys, dataclasses and TypedDicts, and Annotated of these. Raises TypeError for any other type.
    """
    return _schema(tp, ())


def _schema(tp: Any, within: tuple[Any, ...]) -> dict[str, Any]:
    origin, args = get_origin(tp), get_args(tp)
    if origin is Annotated:
        return _described(_schema(args[0], within), args[1:])
    if origin in (Required, NotRequired):
        return _schema(args[0], within)
    if tp in _SIMPLE:
        return {"type": _SIMPLE[tp]}
    if tp in (Any, object):
        return {}
    if origin is Literal:
        return _enumeration(list(args))
    if isinstance(tp, type) and issubclass(tp, enum.Enum):
        return _enumeration([m.value for m in tp])
    if origin in (Union, types.UnionType):
        return _union([_schema(a, within) for a in args])
    if tp in (list, tuple) or origin in (list, Sequence):
        return {"type": "array", "items": _schema(args[0], within)} if args else {"type": "array"}
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return {"type": "array", "items": _schema(args[0], within)}
        return {"type": "array", "prefixItems": [_schema(a, within) for a in args], "items": False, "minItems": len(args)}
    if tp is dict or origin in (dict, Mapping):
        if args and args[0] is not str:
            raise TypeError(f"{tp}: the keys of a JSON object must be str: change the type")
        values = _schema(args[1], within) if args else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if fields := fields_of(tp):
        if tp in within:
            raise TypeError(f"{tp.__name__} contains itself, and the arguments of a tool cannot be recursive: change the type")
        return object_schema(fields, (*within, tp))
    raise TypeError(f"{tp!r} has no JSON Schema: use str, int, float, bool, None, Literal, Enum, Optional, list, dict, "
                    "a dataclass or a TypedDict")


def object_schema(fields: Mapping[str, tuple[Any, bool]], within: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Returns the schema of an object with these fields: names to types, and whether each is required."""
    schema: dict[str, Any] = {"type": "object", "properties": {n: _schema(t, within) for n, (t, _) in fields.items()}}
    if required := [name for name, (_, needed) in fields.items() if needed]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


class Fields(dict[str, tuple[Any, bool]]):
    """The fields of a dataclass or a TypedDict. It is true even if there are none."""

    def __bool__(self) -> bool:
        return True


def fields_of(tp: Any) -> Fields | None:
    """Returns the fields of a dataclass or a TypedDict, or None for other types."""
    if isinstance(tp, type) and dataclasses.is_dataclass(tp):
        hints = get_type_hints(tp, include_extras=True)
        return Fields({
            f.name: (hints[f.name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
            for f in dataclasses.fields(tp) if f.init
        })
    if typing.is_typeddict(tp):
        hints = get_type_hints(tp, include_extras=True)
        result = Fields()
        for name, hint in hints.items():
            needed = name in tp.__required_keys__
            if get_origin(hint) in (Required, NotRequired):  # with postponed annotations the class does not know it
                needed = get_origin(hint) is Required
            result[name] = (hint, needed)
        return result
    return None


def _described(schema: dict[str, Any], notes: Sequence[Any]) -> dict[str, Any]:
    schema = dict(schema)
    for note in notes:
        if isinstance(note, str):
            note = Field(note)
        if isinstance(note, Field):
            for key, value in (("description", note.description or None), ("minimum", note.minimum), ("maximum", note.maximum),
                               ("minLength", note.min_length), ("maxLength", note.max_length), ("pattern", note.pattern)):
                if value is not None:
                    schema[key] = value
    return schema


def _enumeration(values: list[Any]) -> dict[str, Any]:
    kinds = {_SIMPLE.get(type(v)) for v in values}
    schema: dict[str, Any] = {"enum": values}
    if len(kinds) == 1 and None not in kinds:
        schema = {"type": kinds.pop(), **schema}
    return schema


def _union(options: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(o) == {"type"} for o in options):
        return {"type": [o["type"] for o in options]}
    return {"anyOf": options}


def decode(tp: Any, value: Any, at: str = "") -> Any:
    """Returns a value of a type, made of JSON. Raises Mismatch if it does not match the type's schema."""
    origin, args = get_origin(tp), get_args(tp)
    if origin is Annotated:
        made = decode(args[0], value, at)
        for note in args[1:]:
            if isinstance(note, Field):
                _check(note, made, at)
        return made
    if origin in (Required, NotRequired):
        return decode(args[0], value, at)
    if tp in _SIMPLE:
        return _simple(tp, value, at)
    if tp in (Any, object):
        return value
    if origin is Literal:
        return _one_of(list(args), value, at)
    if isinstance(tp, type) and issubclass(tp, enum.Enum):
        return tp(_one_of([m.value for m in tp], value, at))
    if origin in (Union, types.UnionType):
        return _any_of(args, value, at)
    if tp in (list, tuple) or origin in (list, tuple, Sequence):
        return _array(tp, value, at)
    if tp is dict or origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise _mismatch(at, "an object", value)
        return {k: decode(args[1] if args else Any, v, _in(at, k)) for k, v in value.items()}
    if fields := fields_of(tp):
        made = decode_fields(fields, value, at)
        return made if typing.is_typeddict(tp) else tp(**made)
    raise TypeError(f"{tp!r} cannot be decoded from JSON: use another type")


def decode_fields(fields: Mapping[str, tuple[Any, bool]], value: Any, at: str = "") -> dict[str, Any]:
    """Returns the fields of an object. Raises Mismatch for missing and for unknown ones."""
    if not isinstance(value, dict):
        raise _mismatch(at, "an object", value)
    if unknown := [name for name in value if name not in fields]:
        raise Mismatch(f"{_in(at, unknown[0])}: unknown field; the fields here are {', '.join(fields) or 'none'}")
    for name, (_, needed) in fields.items():
        if needed and name not in value:
            raise Mismatch(f"{_in(at, name)}: is missing")
    return {name: decode(fields[name][0], v, _in(at, name)) for name, v in value.items()}


def _simple(tp: Any, value: Any, at: str) -> Any:
    if tp is int and type(value) is float and value.is_integer():
        return int(value)  # JSON does not tell 3.0 from 3
    if tp is float and type(value) is int:
        return float(value)
    if type(value) is not tp:
        raise _mismatch(at, {"string": "a string", "null": "null"}.get(_SIMPLE[tp], f"of type {_SIMPLE[tp]}"), value)
    return value


def _one_of(allowed: list[Any], value: Any, at: str) -> Any:
    for option in allowed:
        if type(option) is type(value) and option == value:
            return option
    raise _mismatch(at, "one of " + ", ".join(repr(a) for a in allowed), value)


def _any_of(options: Sequence[Any], value: Any, at: str) -> Any:
    for option in options:  # an exact type first, so that 1 stays an int in float | int
        if option in _SIMPLE and type(value) is option:
            return value
    reasons = []
    for option in options:
        try:
            return decode(option, value, at)
        except Mismatch as e:
            reasons.append(str(e))
    raise Mismatch("; or ".join(reasons))


def _array(tp: Any, value: Any, at: str) -> Any:
    if not isinstance(value, list):
        raise _mismatch(at, "an array", value)
    origin, args = get_origin(tp), get_args(tp)
    if origin is tuple and not (len(args) == 2 and args[1] is ...):
        if len(value) != len(args):
            raise _mismatch(at, f"an array of {len(args)}", value)
        return tuple(decode(t, v, f"{at}[{i}]") for i, (t, v) in enumerate(zip(args, value, strict=True)))
    made = [decode(args[0] if args else Any, v, f"{at}[{i}]") for i, v in enumerate(value)]
    return tuple(made) if tp is tuple or origin is tuple else made


def _check(field: Field, value: Any, at: str) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and field.minimum is not None and value < field.minimum:
        raise Mismatch(f"{at or 'the value'}: is {value}, at least {field.minimum} is allowed")
    if number and field.maximum is not None and value > field.maximum:
        raise Mismatch(f"{at or 'the value'}: is {value}, at most {field.maximum} is allowed")
    if isinstance(value, str):
        if field.min_length is not None and len(value) < field.min_length:
            raise Mismatch(f"{at or 'the value'}: has {len(value)} characters, at least {field.min_length} are needed")
        if field.max_length is not None and len(value) > field.max_length:
            raise Mismatch(f"{at or 'the value'}: has {len(value)} characters, at most {field.max_length} are allowed")
        if field.pattern is not None and not re.search(field.pattern, value):
            raise Mismatch(f"{at or 'the value'}: does not match {field.pattern}")


def _in(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _mismatch(at: str, want: str, got: Any) -> Mismatch:
    return Mismatch(f"{at or 'the value'}: is {str(got) if len(str(got)) < 80 else str(got)[:80] + '…'!r}, but must be {want}")
