"""Reads a configuration file into plain values: bounded YAML, with variables.

YAML features that a configuration never needs are refused here, with line and column:
duplicate keys, keys that are not text, values that contain themselves, aliases that
expand to very large values, and unlimited nesting.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from exporter.errors import ConfigError, UnusableFileError
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_FILE_BYTES: Final = 1 << 20
MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 50
MAX_INTEGER_BITS: Final = 64
_SETTLED_SECONDS: Final = 0.3
_MOST_WAIT_SECONDS: Final = 2.0

FilePath = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""

_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"


@dataclass(slots=True)
class Document:
    """A file's values. `written` has the file's content, `value` has variables replaced.

    Values of variables are secrets: messages show `written`, and `unset` are the paths
    whose own problem has been reported already.
    """

    written: dict[str, Any]
    value: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unset: list[FilePath] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    """Text with variables set -> the same as written."""


def content(path: Path) -> bytes:
    """Return the bytes of a file once it has not changed for a moment.

    Raises:
        ConfigError: it cannot be read, is not a regular file, or keeps changing.
    """
    deadline = time.monotonic() + _MOST_WAIT_SECONDS
    while True:
        changed_at = _changed_at(path)
        wait = changed_at + _SETTLED_SECONDS - time.time()
        # A time in the future is that of another clock, and says nothing.
        if 0 < wait <= _SETTLED_SECONDS:
            time.sleep(wait)
        raw = _bytes_of(path)
        if _changed_at(path) == changed_at:
            return raw
        if time.monotonic() > deadline:
            problem = "is being written; reload when it is complete"
            raise ConfigError(str(path), [problem])


def is_cut_off(raw: bytes, complete: bytes) -> bool:
    """Return whether `raw` is the beginning of `complete` up to the middle of a line.

    A last line without a newline may have become shorter: it is not cut off.
    """
    missing, newline, _ = complete[len(raw) :].partition(b"\n")
    continued = bool(missing and newline)
    return complete.startswith(raw) and continued and raw[-1:] not in {b"", b"\n"}


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(str(path), [problem]) from None


def _bytes_of(path: Path) -> bytes:
    try:
        return whole_file.read(path, MAX_FILE_BYTES)
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnusableFileError as error:
        problem = f"cannot be read: {str(error).removeprefix(f'{path} ')}"
    raise ConfigError(str(path), [problem])


def read(raw: bytes, source: str, environment: Mapping[str, str]) -> Document:
    """The document in `raw`.

    Raises:
        ConfigError: it cannot be understood at all, so nothing more can be checked.
    """
    document = Document(_parsed(raw, source))
    document.value = _Substitution(document, environment).of(document.written, ())
    return document


def dotted(path: FilePath) -> str:
    """The path as messages have it: `probes[0].overrides.resnet`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def _parsed(raw: bytes, source: str) -> dict[str, Any]:
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(
            source, [f"the file is larger than the maximum of {MAX_FILE_BYTES} bytes"]
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            source, [f"byte {error.start} is not valid UTF-8; save the file as UTF-8"]
        ) from None
    problems: list[str] = []
    parsed: Any = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        problems = loader.problems
        if node is not None and not problems:
            parsed = loader.construct_document(node)
    except yaml.YAMLError as error:
        problems.append(_yaml_problem(error))
    if problems:
        raise ConfigError(source, problems)
    if parsed is None:
        raise ConfigError(
            source, ["the file is empty; write `{}` to run with all defaults"]
        )
    if not isinstance(parsed, dict):
        raise ConfigError(
            source, [f"found {kind_of(parsed)} at the top; want keys like `target:`"]
        )
    return parsed


class _Loader(yaml.SafeLoader):
    """SafeLoader that limits the size of the document before building values."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[str] = []
        self._levels = 0
        self._nodes = 0
        self._extents: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._levels += 1
        self._nodes += 1
        self._refuse_excess(self._nodes, self._levels, event.start_mark)
        node = super().compose_node(parent, index)
        self._levels -= 1
        if node is None:
            return None
        if not isinstance(event, yaml.AliasEvent):
            self._extents[id(node)] = self._extent(node)
        elif id(node) not in self._extents:
            raise _refusal(
                f"alias *{event.anchor} refers to itself",
                event.start_mark,
            )
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - the base class has it so
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
            kind = node.tag.rpartition(":")[2]
            raise _refusal(
                f"found a value that YAML reads as {kind} but that is invalid; quote "
                "it if it is text",
                node.start_mark,
            ) from None

    def _extent(self, node: yaml.Node) -> tuple[int, int]:
        """Nodes and levels of `node` with every alias written out."""
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            children = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        extents = [self._extents[id(child)] for child in children]
        nodes = 1 + sum(extent[0] for extent in extents)
        levels = 1 + max((extent[1] for extent in extents), default=0)
        self._refuse_excess(nodes, levels, node.start_mark)
        return nodes, levels

    def _refuse_excess(self, nodes: int, levels: int, mark: Any) -> None:
        excess = ""
        if nodes > MAX_NODES:
            excess = f"found more than {MAX_NODES} values, with aliases expanded"
        elif levels > MAX_DEPTH:
            excess = f"found more than {MAX_DEPTH} levels, with aliases expanded"
        if excess:
            raise _refusal(f"{excess}; that is the maximum", mark)

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == _MERGE_TAG:
                continue
            if key.tag != _TEXT_TAG:
                self._complain(key, f"found {_key_text(key)} as a key; want text")
            elif not key.value.isprintable():
                self._complain(key, f"found key {key.value!a}; want printable text")
            elif key.value in seen:
                self._complain(key, f"found key {key.value!r} twice; keep one of them")
            else:
                seen.add(key.value)

    def _complain(self, node: yaml.Node, problem: str) -> None:
        self.problems.append(f"{_place(node.start_mark)}{problem}")


def _refusal(problem: str, mark: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(None, None, problem, mark)


def _key_text(key: yaml.Node) -> str:
    if isinstance(key, yaml.ScalarNode):
        return f"{key.value!r}, which YAML reads as {key.tag.rpartition(':')[2]},"
    return "a map" if isinstance(key, yaml.MappingNode) else "a list"


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        return (
            f"found character {error.character:#06x} at position {error.position}, "
            "which YAML does not allow"
        )
    if not isinstance(error, yaml.MarkedYAMLError):
        return "cannot be read as YAML"
    # The context says what the parser was at: half of the explanation.
    parts = [part for part in (error.context, error.problem) if part]
    return f"{_place(error.problem_mark)}{': '.join(parts)}"


def kind_of(value: Any) -> str:
    """Return YAML's name for the type of a value."""
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


_KINDS: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (dict, "a map"),
    ((list, tuple), "a list"),
    (set, "a set"),
    (str, "text"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (bytes, "binary data"),
    (type(None), "null"),
)


class _Substitution:
    """Replaces variables; errors go to `problems`."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._environment = environment

    def of(self, value: Any, path: FilePath) -> Any:
        """`value` with every ${env:VAR} replaced."""
        if isinstance(value, dict):
            return {key: self.of(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item, (*path, place)) for place, item in enumerate(value)]
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            self._refuse(
                path, "a whole number of more than 64 bits; want a smaller one"
            )
        elif not isinstance(value, bool | int | float | None):
            self._refuse(path, f"{kind_of(value)}; quote it if it is text")
        return value

    def _text(self, text: str, path: FilePath) -> str:
        if len(_VARIABLE.findall(text)) != text.count("${env:"):
            self._refuse(path, "a variable that is not like ${env:NAME}")
        for name in _VARIABLE.findall(text):
            if name not in self._environment:
                self._refuse(
                    path,
                    f"${{env:{name}}}, which is not set; set it or write the value",
                )
        if path in self._document.unset:
            return text
        value = _VARIABLE.sub(lambda match: self._environment[match[1]], text)
        if value != text:
            self._document.secrets[value] = text
        try:
            value.encode()
        except UnicodeEncodeError:
            self._refuse(path, "text that is not valid Unicode; want UTF-8")
            return ""
        return value

    def _refuse(self, path: FilePath, what: str) -> None:
        self._document.problems.append(f"{dotted(path)}: found {what}")
        self._document.unset.append(path)
