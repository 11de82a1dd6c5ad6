"""The configuration file as one frozen model, and every error in it at once."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from exporter.collectors import AnyCollector
from exporter.collectors.process import ProcessSettings
from exporter.collectors.server import ServerSettings
from exporter.collectors.statistics import StatisticsSettings
from exporter.errors import ConfigError
from exporter.probes import AnyProbe
from exporter.probes.synthetic import SyntheticSettings
from exporter.settings import ModelFilter, Settings

MAX_FILE_BYTES: Final = 1 << 20
MAX_NODES: Final = 100_000
_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_ADDRESS: Final = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})$")


def is_address(text: str) -> bool:
    """Whether `text` is "host:port" with a port a server can have."""
    match = _ADDRESS.match(text)
    return match is not None and 0 < int(match[2]) < 65536  # noqa: PLR2004


class TlsSettings(Settings):
    """TLS towards Triton. With no file at all the system's authorities are trusted."""

    ca_file: Path | None = Field(default=None)
    """Authorities that may have signed the server's certificate (PEM)."""
    cert_file: Path | None = Field(default=None)
    """Our certificate, for mutual TLS (PEM)."""
    key_file: Path | None = Field(default=None)
    """Our key, for mutual TLS (PEM)."""

    @model_validator(mode="after")
    def _paired(self) -> TlsSettings:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError(
                "found one of cert_file and key_file; mutual TLS needs both"
            )
        return self


class TargetSettings(Settings):
    """The Triton server that is watched."""

    grpc: str = Field(default="localhost:8001")
    """Address of Triton's gRPC service."""
    http: str | None = Field(default="localhost:8000")
    """Address of Triton's HTTP service; null where it is off."""
    metrics: str | None = Field(default="localhost:8002")
    """Address of Triton's own metrics; null where they are off."""
    tls: TlsSettings | None = Field(default=None)
    """TLS for gRPC and HTTP; Triton's metrics are plain HTTP always."""
    headers: dict[str, SecretStr] = Field(default={}, max_length=100)
    """Sent with every request: authorisation, keys of restricted APIs."""

    @field_validator("grpc", "http", "metrics")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and not is_address(value):
            raise ValueError('an address is "host:port", like "localhost:8001"')
        return value


class TapSettings(Settings):
    """Where others send traces and mirrored requests, while a collector takes them."""

    address: str = Field(default="127.0.0.1")
    """Address to bind: loopback, since whoever can reach it can add to the numbers."""
    port: int = Field(default=8004, ge=0, le=65535)
    """Port to bind; 0 takes a free one."""


class ListenSettings(Settings):
    """Where this process is to be reached."""

    address: str = Field(default="0.0.0.0")  # noqa: S104 - what is scraped is reachable
    """Address to bind."""
    port: int = Field(default=8003, ge=0, le=65535)
    """Port to bind; 0 takes a free one."""
    tap: TapSettings = Field(default=TapSettings())
    """The taps' own listener."""


class MultiTargetSettings(Settings):
    """What /probe?target= may be pointed at."""

    allow: tuple[str, ...] = Field(default=(), max_length=10_000)
    """Shell-style patterns over "host:port". Nothing else is asked."""
    open: bool = Field(default=False)
    """Ask any address. Whoever can reach /probe can then reach this network."""
    max_concurrent: int = Field(default=4, ge=1, le=64)
    """Most /probe requests worked on at once; more are answered 503."""


class LogSettings(Settings):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info")
    """Least level that is written."""
    format: Literal["logfmt", "json"] = Field(default="logfmt")
    """One line an event either way."""


class Config(Settings):
    """The whole file."""

    target: TargetSettings = Field(default=TargetSettings())
    """The Triton server that is watched."""
    models: ModelFilter = Field(default=ModelFilter())
    """Which of its models."""
    listen: ListenSettings = Field(default=ListenSettings())
    """Where this process is to be reached."""
    collectors: tuple[AnyCollector, ...] = Field(default=())
    """Settings in place of a collector's defaults; those not named run with theirs."""
    probes: tuple[AnyProbe, ...] = Field(default=(SyntheticSettings(),), max_length=32)
    """What is asked of the models; an empty list asks nothing."""
    multi_target: MultiTargetSettings = Field(default=MultiTargetSettings())
    """What /probe?target= may be pointed at."""
    log: LogSettings = Field(default=LogSettings())
    """The log."""

    @model_validator(mode="after")
    def _distinct(self) -> Config:
        kinds: list[str] = [collector.kind for collector in self.collectors]
        labels = [probe.label for probe in self.probes]
        for what, names in (("collectors of kind", kinds), ("probes called", labels)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"found two {what} {twice[0]!r}; each may stand once")
        clash = sorted(set(labels) & {c.kind for c in self.all_collectors()})
        if clash:
            raise ValueError(
                f"found a probe called {clash[0]!r}, a collector's name; choose another"
            )
        return self

    def all_collectors(self) -> tuple[AnyCollector, ...]:
        """Every collector that runs, the configured ones in place of the defaults."""
        chosen: dict[str, AnyCollector] = {
            default.kind: default
            for default in (ServerSettings(), StatisticsSettings(), ProcessSettings())
        }
        chosen.update({collector.kind: collector for collector in self.collectors})
        return tuple(chosen.values())


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """The configuration of `path`, or the defaults without one.

    Raises:
        ConfigError: with every problem of the file.
    """
    if path is None:
        return Config()
    source = str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(source, [f"cannot be read: {error.strerror}"]) from None
    return parse(raw, source, environment)


def parse(raw: bytes, source: str, environment: Mapping[str, str]) -> Config:
    """The configuration that `raw` holds.

    Raises:
        ConfigError: with every problem found.
    """
    document = _document(raw, source)
    problems: list[str] = []
    document = _substituted(document, (), environment, problems)
    if problems:
        raise ConfigError(source, problems)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        found = [_problem(item) for item in error.errors(include_url=False)]
        raise ConfigError(source, list(dict.fromkeys(found))) from None


def _document(raw: bytes, source: str) -> dict[str, Any]:
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(
            source, [f"found {len(raw)} bytes; at most {MAX_FILE_BYTES} are read"]
        )
    try:
        document = yaml.load(raw.decode("utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError as error:
        raise ConfigError(
            source, [f"byte {error.start} is no UTF-8; save the file as UTF-8"]
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(source, [_yaml_problem(error)]) from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(
            source,
            [f"found a {type(document).__name__} at the top; want keys like `target:`"],
        )
    return document


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key standing twice, which YAML forbids."""

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002
    ) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, list | dict):
                continue  # the parent says what is wrong with that
            if key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"found key {key!r} twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be read as YAML"
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}{problem}"


def _substituted(
    value: Any,
    path: tuple[str | int, ...],
    environment: Mapping[str, str],
    problems: list[str],
    visited: list[int] | None = None,
) -> Any:
    """`value` with every ${env:VAR} replaced; what is not set goes to `problems`."""
    visited = visited if visited is not None else [0]
    visited[0] += 1
    # Aliases can make a small file stand for billions of nodes.
    if visited[0] > MAX_NODES:
        if visited[0] == MAX_NODES + 1:
            problems.append(f"found more than {MAX_NODES} values; are aliases nested?")
        return None
    if isinstance(value, dict):
        return {
            str(key): _substituted(
                item, (*path, str(key)), environment, problems, visited
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _substituted(item, (*path, place), environment, problems, visited)
            for place, item in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    problems.extend(
        f"{_dotted(path)}: found ${{env:{name}}}, which is not set; "
        "set it or write the value"
        for name in _VARIABLE.findall(value)
        if name not in environment
    )
    return _VARIABLE.sub(lambda match: environment.get(match[1], ""), value)


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


_SECRET_PARTS: Final = frozenset({"headers"})


def _problem(error: Any) -> str:
    path = _file_path(error["loc"])
    where = _dotted(path)
    if error["type"] == "extra_forbidden":
        return f"{where}: {_unknown_key(path)}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if message.startswith("found ") or error["type"] == "missing":
        return f"{where}: {message}"
    message = message[:1].lower() + message[1:]
    shown = "a secret value" if _SECRET_PARTS & set(map(str, path)) else _shown(error)
    return f"{where}: found {shown}; {message}"


def _shown(error: Any) -> str:
    text = repr(error.get("input"))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_SHOWN: Final = 80


def _file_path(loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The path as the file has it: without the tags pydantic adds for unions."""
    path: list[str | int] = []
    for part in loc:
        after_item = bool(path) and isinstance(path[-1], int)
        if after_item and path[0] in {"collectors", "probes"} and len(path) == 2:  # noqa: PLR2004, SIM102
            if part in _kinds():
                continue
        if isinstance(part, str) and part in _PYDANTIC_TAGS:
            continue
        path.append(part)
    return tuple(path)


_PYDANTIC_TAGS: Final = frozenset({"bool", "int", "float", "str"})


def _kinds() -> frozenset[str]:
    return frozenset({"server", "statistics", "process", "synthetic"})


def _unknown_key(path: tuple[str | int, ...]) -> str:
    key = str(path[-1])
    known = sorted(_fields_at(path[:-1]))
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"found unknown key {key!r}; {hint}"


def _fields_at(path: tuple[str | int, ...]) -> set[str]:
    """The keys the schema knows at `path`, over all members of a union."""
    schema = Config.model_json_schema()
    nodes = [schema]
    for part in path:
        nodes = [
            child
            for node in nodes
            for child in _children(_resolved(node, schema), part)
        ]
    return {
        name
        for node in nodes
        for option in _resolved(node, schema)
        for name in option.get("properties", {})
    }


def _resolved(node: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    options = node.get("oneOf") or node.get("anyOf")
    if options:
        return [found for option in options for found in _resolved(option, schema)]
    return [node]


def _children(nodes: list[dict[str, Any]], part: str | int) -> list[dict[str, Any]]:
    if isinstance(part, int):
        return [node["items"] for node in nodes if "items" in node]
    return [
        child
        for node in nodes
        for child in (
            node.get("properties", {}).get(part) or node.get("additionalProperties"),
        )
        if isinstance(child, dict)
    ]
