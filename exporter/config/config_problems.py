"""Errors of pydantic as sentences: path, value, what would be right.

Values are shown as the file has them, never with variables set, and those of headers
not at all.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from exporter.config.config_file import Document, FilePath, dotted, kind_of, read
from exporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

AnyModel = TypeVar("AnyModel", bound=BaseModel)

_SHOWN: Final = 80
# A reference to a variable tells nothing.
_USER_OF_URL: Final = re.compile(r"//(?![^/@\s]*\$\{env:)[^/@\s]*@")

Node = dict[str, Any]
"""The JSON schema of one place."""


def validated(
    model: type[AnyModel], raw: bytes, source: str, environment: Mapping[str, str]
) -> AnyModel:
    """Return the values of `raw`, validated as `model`.

    Raises:
        ConfigError: with every problem found.
    """
    document = read(raw, source, environment)
    found = [*document.problems, *check(document, model)]
    try:
        value = model.model_validate(document.value)
    except ValidationError as error:
        found += problems(error, document, model)
    else:
        if not found:
            return value
    raise ConfigError(source, list(dict.fromkeys(found)))


def check(document: Document, model: type[BaseModel]) -> list[str]:
    """Return the values that pydantic accepts by mistake: `true` for a number."""
    schema = _schema_of(model)
    return [
        f"{dotted(path)}: found {json.dumps(value)}; want a number"
        for path, value, node in schema.leaves(document.written, (), schema.root)
        if isinstance(value, bool) and _takes_numbers_only(node)
    ]


def problems(
    error: ValidationError, document: Document, model: type[BaseModel]
) -> list[str]:
    """A sentence for each thing that `error` says."""
    schema = _schema_of(model)
    errors = [
        (item, _Place(item["loc"], schema)) for item in error.errors(include_url=False)
    ]
    paths = [place.path for _, place in errors]
    found: list[str] = []
    for item, place in errors:
        # A value without its variable is wrong in ways that mean nothing, and a list
        # is called too short when all its entries are wrong.
        is_unset = any(place.path[: len(path)] == path for path in document.unset)
        hollow = any(path[:-1] == place.path for path in paths)
        if item["type"] == "too_short" and hollow:
            continue
        if item["type"] == "extra_forbidden" or not is_unset:
            found += _sentences(item, place, document)
    return found


def plain_problems(error: ValidationError) -> list[str]:
    """Return a sentence for each error of values that do not come from a file."""
    return [
        (f"{dotted(item['loc'])}: " if item["loc"] else "")
        + item["msg"].removeprefix("Value error, ")
        for item in error.errors()
    ]


@functools.cache
def _schema_of(model: type[BaseModel]) -> _Schema:
    return _Schema(model)


class _Schema:
    """The JSON schema of a settings model, to walk along a path of the file."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.root: Node = model.model_json_schema()

    def plain(self, node: Node) -> Node:
        """Return the node without reference, and without the null of an optional value."""
        while "$ref" in node:
            node = self.root["$defs"][node["$ref"].rpartition("/")[2]]
        options = [o for o in node.get("anyOf", ()) if o.get("type") != "null"]
        return self.plain(options[0]) if len(options) == 1 else node

    def child(self, node: Node, part: str | int) -> Node:
        """Return the schema under a key or a list position; empty where it is unknown."""
        if isinstance(part, str):
            properties = node.get("properties", {})
            child = properties.get(part) or node.get("additionalProperties")
        else:
            first = node.get("prefixItems", ())
            child = first[part] if part < len(first) else node.get("items")
        return self.plain(child) if isinstance(child, dict) else {}

    def chosen(self, node: Node, tag: object) -> Node | None:
        """Return the member of a union that `tag` names, or None if there is no such member."""
        if "discriminator" in node:
            mapping = node["discriminator"]["mapping"]
            known = isinstance(tag, str) and tag in mapping
            return self.plain({"$ref": mapping[tag]}) if known else None
        return {} if "anyOf" in node else None

    def leaves(
        self, value: Any, path: FilePath, node: Node
    ) -> Iterator[tuple[FilePath, Any, Node]]:
        """Yield every scalar value of the file, with its schema."""
        if isinstance(value, dict):
            if "discriminator" in node:
                node = self.chosen(node, value.get("kind")) or {}
            for key, item in value.items():
                yield from self.leaves(item, (*path, key), self.child(node, key))
        elif isinstance(value, list):
            for place, item in enumerate(value):
                yield from self.leaves(item, (*path, place), self.child(node, place))
        else:
            yield path, value, node


def _takes_numbers_only(node: Node) -> bool:
    types = {option.get("type") for option in node.get("anyOf", (node,))}
    return bool(types) and types <= {"integer", "number"}


class _Place:
    """The place of an error in the file: pydantic's path without the tags of unions."""

    def __init__(self, loc: Sequence[str | int], schema: _Schema) -> None:
        self.path: FilePath = ()
        self.secret = False
        self.nodes: list[Node] = [schema.root]
        """Schema nodes from the root to the place."""
        for part in loc:
            node = self.nodes[-1]
            chosen = schema.chosen(node, part)
            if chosen is None:
                self.path = (*self.path, part)
                chosen = schema.child(node, part)
                self.secret = self.secret or _is_secret(chosen, schema)
            self.nodes.append(chosen)

    def keys(self) -> list[str]:
        """The keys known where the last one of the path stands."""
        return sorted(self.nodes[-2].get("properties", ()))


def _is_secret(node: Node, schema: _Schema) -> bool:
    return "writeOnly" in node or "writeOnly" in schema.child(node, "")


def _sentences(item: Any, place: _Place, document: Document) -> Iterator[str]:
    where, context = dotted(place.path), item.get("ctx", {})
    match item["type"]:
        case "extra_forbidden":
            yield f"{where}: found unknown key; {_nearest(place)}"
        case "missing":
            yield f"{where}: missing; this key is required"
        case "union_tag_not_found":
            yield f"{where}: found no {_tag_key(context)}; want {_tags(place)}"
        case "union_tag_invalid":
            key = _tag_key(context)
            shown = _shown((*place.path, key), document)
            written = _value((*place.path, key), document)
            near = _near(written, _kinds(place)) if isinstance(written, str) else None
            meant = f"did you mean {near!r}? Want" if near else "want"
            yield f"{where}.{key}: found {shown}; {meant} {_tags(place)}"
        case "value_error":
            for line in str(context["error"]).split("\n"):
                text = _as_written(line, document.secrets)
                if text.startswith("want "):
                    text = f"found {_masked(place, document)}; {text}"
                yield f"{where}: {text}" if place.path else text
        case _:
            value = _value(place.path, document)
            wanted = _wanted(item, place.nodes[-2:], value)
            yield f"{where}: found {_masked(place, document)}; want {wanted}"


def _nearest(place: _Place) -> str:
    known = place.keys()
    near = _near(place.path[-1], known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"


def _near(written: object, known: Sequence[str]) -> str | None:
    """The known word that was probably meant."""
    return next(iter(difflib.get_close_matches(str(written), known, n=1)), None)


def _tag_key(context: Mapping[str, Any]) -> str:
    """Nearly always `kind`; formats of others have names of their own."""
    return str(context["discriminator"]).strip("'")


def _tags(place: _Place) -> str:
    return _joined([repr(kind) for kind in _kinds(place)])


def _kinds(place: _Place) -> list[str]:
    return sorted(place.nodes[-1]["discriminator"]["mapping"])


def _joined(choices: Sequence[str]) -> str:
    *most, last = choices
    return f"{', '.join(most)} or {last}" if most else last


def _as_written(message: str, secrets: Mapping[str, str]) -> str:
    for value, written in secrets.items():
        message = message.replace(repr(value), repr(written))
    return message


def _masked(place: _Place, document: Document) -> str:
    return "a secret value" if place.secret else _shown(place.path, document)


def _value(path: FilePath, document: Document) -> Any:
    if path and path[-1] == "[key]":  # pydantic's word for the key before it
        return path[-2]
    value: Any = document.written
    for part in path:
        value = value[part]
    return value


def _shown(path: FilePath, document: Document) -> str:
    value = _value(path, document)
    numbers = isinstance(value, list) and all(
        isinstance(item, int | float) for item in value
    )
    # Other values of a map or a list may be secret.
    if isinstance(value, dict | list) and not numbers:
        return kind_of(value) if value else f"an empty {kind_of(value)[2:]}"
    if not isinstance(value, str | int | float | list | None):
        return kind_of(value)  # a date, a set, bytes: what JSON has no text for
    if isinstance(value, float) and not math.isfinite(value):
        return f".{value}".replace(".-", "-.")
    # Half of a surrogate pair could not be sent or printed.
    text = json.dumps(value, ensure_ascii=False)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    # A URL may carry a password.
    text = _USER_OF_URL.sub("//…@", text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_WANTED: Final = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a map of keys and values",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "frozen_set_type": "a list",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of 64 bits",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "model_attributes_type": "a map of keys and values",
    "model_type": "a map of keys and values",
    "path_type": "a path",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_long": "{max_length} or fewer entries",
    "too_short": "{min_length} or more entries",
    "tuple_type": "a list",
}


def _wanted(item: Any, nodes: Sequence[Node], value: Any) -> str:
    # Every member of a union of scalars complains; one sentence does for all.
    union = next((node["anyOf"] for node in nodes if "anyOf" in node), None)
    if union is not None:
        names = [
            name for option in union for name in _SCALARS.get(option.get("type"), ())
        ]
        return _joined(list(dict.fromkeys(names)))
    if item["type"] == "string_type":
        return "text" if isinstance(value, dict | list | None) else "text: quote it"
    template = _WANTED.get(item["type"])
    if template is None:
        return str(item["msg"])
    numbers = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value
        for key, value in item.get("ctx", {}).items()
    }
    return template.format(**numbers)


_SCALARS: Final = {
    "boolean": ("true", "false"),
    "integer": ("a finite number",),
    "number": ("a finite number",),
    "string": ("text",),
}
