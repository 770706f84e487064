"""Frozen dataclasses to JSON and back, with the standard library only.

Unknown keys are ignored when reading, so that a newer fulltilt of the same schema may add fields; a schema number from
the future is refused by name.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class CodecError(ValueError):
    """A record that cannot be read."""


def to_json(record: Any) -> str:
    """One line of JSON; nan and infinities become strings, as JSON has no word for them."""
    return json.dumps(to_plain(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, strings, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_key_of(field): to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_json(record_type: type[T], text: str | bytes) -> T:
    """The record of `record_type` that `text` holds.

    Raises:
        CodecError: when it is not JSON, lacks a field, or has a schema this version does not know.
    """
    try:
        plain = json.loads(text)
    except (ValueError, UnicodeDecodeError) as error:
        raise CodecError(f"not JSON: {error}") from error
    return from_plain(record_type, plain)


def from_plain(record_type: type[T], plain: Any) -> T:
    """The inverse of `to_plain` for a known type."""
    return typing.cast(T, _decode(record_type, plain, record_type.__name__))


def _decode(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _decode_dataclass(hint, value, path)
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _decode(next(choice for choice in arguments if choice is not type(None)), value, path)
    if origin is tuple:
        return _decode_tuple(arguments, value, path)
    if origin is dict:
        _expect(isinstance(value, dict), path, "an object", value)
        return {key: _decode(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    if hint is float:
        return _decode_float(value, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _decode_enum(hint, value, path)
    if hint is Any:
        return value
    _expect(isinstance(value, hint) and not (hint is int and isinstance(value, bool)), path, hint.__name__, value)
    return value


def _decode_dataclass(record_type: type, value: Any, path: str) -> Any:
    _expect(isinstance(value, dict), path, "an object", value)
    hints = _hints(record_type)
    fields = {field.name: field for field in dataclasses.fields(record_type)}
    _check_schema(fields, value, path)
    keys = {name: _key_of(field) for name, field in fields.items()}
    arguments = {name: _decode(hints[name], value[key], f"{path}.{key}") for name, key in keys.items() if key in value}
    missing = [
        keys[name]
        for name, field in fields.items()
        if name not in arguments
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise CodecError(f"{path} lacks {', '.join(missing)}")
    return record_type(**arguments)


def _check_schema(fields: dict[str, Any], value: dict[str, Any], path: str) -> None:
    if "schema" in fields and value.get("schema", 0) > fields["schema"].default:
        raise CodecError(
            f"{path} has schema {value['schema']}, this fulltilt reads up to {fields['schema'].default}; "
            "a newer fulltilt wrote it"
        )


def _decode_tuple(arguments: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    _expect(isinstance(value, list | tuple), path, "a list", value)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decode(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    return tuple(
        _decode(hint, item, f"{path}[{index}]") for index, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def _decode_float(value: Any, path: str) -> float:
    if value in ("nan", "inf", "-inf"):
        return float(value)
    _expect(isinstance(value, int | float) and not isinstance(value, bool), path, "a number", value)
    return float(value)


def _decode_enum(hint: type[Enum], value: Any, path: str) -> Enum:
    try:
        return hint(value)
    except ValueError:
        allowed = ", ".join(str(choice.value) for choice in hint)
        raise CodecError(f"{path} is {value!r}; it can be {allowed}") from None


def _expect(condition: bool, path: str, wanted: str, value: Any) -> None:
    if not condition:
        raise CodecError(f"{path} must be {wanted}, not {value!r}")


def _key_of(field: dataclasses.Field[Any]) -> str:
    """A field's name in JSON: its own, or the one its metadata gives (such as "class", a word of Python)."""
    return str(field.metadata.get("json", field.name))


@functools.cache
def _hints(record_type: type) -> dict[str, Any]:
    return typing.get_type_hints(record_type)
