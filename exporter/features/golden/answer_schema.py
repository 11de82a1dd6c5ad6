"""A subset of JSON Schema (2020-12) for answers: without references, formats and unions."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Schema = dict[str, Any] | bool
_MOST_DEPTH: Final = 32
_MOST_SHOWN: Final = 60
_NOTES: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples"}
)
_INNER: Final = frozenset({"items", "additionalProperties"})


@lru_cache(maxsize=1024)
def compiled(pattern: str, where: str = "") -> Any:
    """Return the regular expression, as RE2 compiles it: it matches in linear time.

    Raises:
        ValueError: it is not valid, or needs more than RE2 has (lookaround, backreferences).
    """
    import re2  # noqa: PLC0415 - only with such checks

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args else "invalid"
        place = where and f"{where}: "
        raise ValueError(
            f"{place}found {pattern!r:.80}: {reason} (the syntax is RE2's)"
        ) from None


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _equals(value: Any, other: Any) -> bool:
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_equals, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _equals(item, other[key]) for key, item in value.items()
        )
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == math.floor(value),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class _Keyword(NamedTuple):
    """A keyword about one value."""

    concerns: Callable[[Any], bool]
    """True if the keyword applies to a value of this type."""
    wants: str
    """The kind of argument that it takes, for errors."""
    takes: Callable[[Any], bool]
    holds: Callable[[Any, Any], bool]
    """True if a value meets the argument."""


def _about_size(kind: str, *, is_least: bool) -> _Keyword:
    return _Keyword(
        _TYPES[kind],
        "a whole number of at least 0",
        lambda bound: _TYPES["integer"](bound) and bound >= 0,
        lambda value, bound: len(value) >= bound if is_least else len(value) <= bound,
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_KEYWORDS: Final = {
    "type": _Keyword(
        lambda _: True,
        f"{', '.join(_TYPES)}, or a list of them",
        lambda names: all(isinstance(n, str) and n in _TYPES for n in _listed(names)),
        lambda value, names: any(_TYPES[name](value) for name in _listed(names)),
    ),
    "enum": _Keyword(
        lambda _: True,
        "a list",
        _TYPES["array"],
        lambda value, choices: any(_equals(value, choice) for choice in choices),
    ),
    "const": _Keyword(lambda _: True, "", lambda _: True, _equals),
    "required": _Keyword(
        _TYPES["object"],
        "a list of names",
        lambda names: (
            isinstance(names, list) and all(isinstance(n, str) for n in names)
        ),
        lambda value, names: set(names) <= value.keys(),
    ),
    "pattern": _Keyword(
        _TYPES["string"],
        "text",
        _TYPES["string"],
        lambda value, pattern: compiled(pattern).search(value) is not None,
    ),
    "minimum": _Keyword(
        _is_number, "a number", _is_number, lambda v, bound: v >= bound
    ),
    "maximum": _Keyword(
        _is_number, "a number", _is_number, lambda v, bound: v <= bound
    ),
    "minLength": _about_size("string", is_least=True),
    "maxLength": _about_size("string", is_least=False),
    "minItems": _about_size("array", is_least=True),
    "maxItems": _about_size("array", is_least=False),
}


def check_schema(schema: object, where: str = "", depth: int = 0) -> None:
    """Check a schema that stands at `where`, a JSON pointer.

    Raises:
        ValueError: a keyword is not known, or has a value that it cannot have.
    """
    if isinstance(schema, bool):
        return
    if depth > _MOST_DEPTH:
        raise ValueError(f"{where}: more than {_MOST_DEPTH} schemas deep")
    if not isinstance(schema, dict):
        raise _wrong(where, schema, "a map")
    for name, value in schema.items():
        place = f"{where}/{name}"
        if name == "properties":
            if not isinstance(value, dict):
                raise _wrong(place, value, "a map of schemas")
            for key, inner in value.items():
                check_schema(inner, f"{place}/{key}", depth + 1)
        elif name in _INNER:
            check_schema(value, place, depth + 1)
        elif name not in _NOTES:
            _check_keyword(name, value, place)


def _check_keyword(name: str, value: Any, place: str) -> None:
    keyword = _KEYWORDS.get(name)
    if keyword is None:
        known = ", ".join(sorted({*_KEYWORDS, *_INNER, "properties"}))
        raise ValueError(f"{place}: not supported; known are {known}")
    if not keyword.takes(value):
        raise _wrong(place, value, keyword.wants)
    if name == "pattern":
        compiled(value, place)


def faults(value: Any, schema: Schema, where: str = "") -> Iterator[str]:
    """Yield how a JSON value differs from a schema that was checked."""
    if isinstance(schema, bool):
        if not schema:
            yield f"at {where or '/'}: not allowed"
        return
    for name, given in schema.items():
        keyword = _KEYWORDS.get(name)
        if keyword and keyword.concerns(value) and not keyword.holds(value, given):
            yield f"at {where or '/'}: found {_shown(value)}; want {name} {_shown(given)}"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for key, item in value.items():
            yield from faults(item, known.get(key, others), f"{where}/{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, schema.get("items", True), f"{where}/{number}")


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:_MOST_SHOWN]


def _wrong(where: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"{where or '/'}: found {_shown(value)}; want {wanted}")
