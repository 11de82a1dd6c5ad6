"""The configuration file as one frozen model, and every error in it at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from exporter.catalogue import energy_metrics
from exporter.config import config_file, config_problems
from exporter.config.kinds import AnyCollector, AnyProbe
from exporter.config.openai_target import OpenAiTarget, patient
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.features.discovery.server_collector import ServerSettings
from exporter.features.drift.drift_settings import DriftSettings, doubled_entries
from exporter.features.energy.energy_settings import CostSettings, PowerSettings
from exporter.features.process.process_collector import ProcessSettings
from exporter.features.slo.objectives import AnyObjective, Objective, expanded
from exporter.features.statistics.backend_page_collector import BackendPageSettings
from exporter.features.statistics.statistics_settings import StatisticsSettings
from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.network.addresses import is_address, without_brackets
from exporter.output.otlp_settings import OtlpSettings
from exporter.samples import MetricSpec
from exporter.settings import Headers, ModelFilter, ModelMention, Settings, below
from exporter.taps.mirroring.mirror_collector import MirrorSettings
from exporter.triton.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def _checked(text: str) -> str:
    if not is_address(text):
        raise ValueError('want "host:port", like "localhost:8001"')
    return text


Address = Annotated[str, AfterValidator(_checked)]
BindAddress = Annotated[str, AfterValidator(without_brackets)]

# Sections of the file that become collectors.
_SECTIONS: Final = {"slo", "drift", "energy", "comparison"}
_NO_PAGE: Final = (
    "found a collector of kind backend_page, which needs target.kind openai; of Triton's "
    "page the collector statistics has the same"
)


class TlsSettings(TlsFiles):
    """TLS towards Triton.

    Without `ca_file`, the certificate authorities of the system are trusted.
    """

    protocols: tuple[Literal["grpc", "http"], ...] = Field(
        default=("grpc", "http"), min_length=1
    )
    """Protocols that use TLS; `[grpc]` for a Triton with `--grpc-use-ssl` only."""


class TargetSettings(Settings):
    """The Triton server to watch.

    One target is one server process. Behind a name that resolves to several servers,
    each request reaches a different one, and counts are wrong.
    """

    kind: Literal["triton"] = "triton"
    grpc: Address = Field(default="localhost:8001")
    """Address of Triton's gRPC service."""
    http: Address | None = Field(default="localhost:8000")
    """Address of Triton's HTTP service; null if it is off."""
    metrics: Address | None = Field(default="localhost:8002")
    """Address of Triton's metrics; null if they are off."""
    tls: TlsSettings | None = Field(default=None)
    """TLS for gRPC, HTTP or both. Triton serves its metrics over plain HTTP only."""
    headers: Headers = Field(default={}, max_length=100)
    """Headers sent with every request, such as authorisation or keys of restricted
    APIs."""

    @property
    def address(self) -> str:
        """The main address."""
        return self.grpc


def _with_kind(target: object) -> object:
    """The target as the file has it, a Triton unless it names another kind."""
    if isinstance(target, dict) and "kind" not in target:
        return {"kind": "triton", **target}
    return target


AnyTarget = Annotated[
    TargetSettings | OpenAiTarget,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]


class TapSettings(Settings):
    """The listeners for traces and mirrored requests.

    They are open while a collector uses them.
    """

    address: BindAddress = Field(default="127.0.0.1")
    """Address to bind. The default is loopback, since anyone who can reach the tap can
    falsify the metrics."""
    port: int = Field(default=8004, ge=0, le=65535)
    """Port to bind; 0 selects a free port."""
    grpc_port: int = Field(default=8005, ge=0, le=65535)
    """Port of the gRPC tap, for mirrored requests; 0 selects a free port."""


class ListenSettings(Settings):
    """Address at which this process serves its pages."""

    address: BindAddress = Field(default="0.0.0.0")  # noqa: S104 - what is scraped is reachable
    """Address to bind; `::` is every address of IPv6 and IPv4."""
    port: int = Field(default=8003, ge=0, le=65535)
    """Port to bind; 0 selects a free port."""
    hosts: tuple[str, ...] = Field(default=(), max_length=1_000)
    """Further host names (shell-style patterns) under which browsers may open the pages
    and clients may report runs, capacities and acknowledgements to the tap. Always
    allowed: IP addresses, names without a dot, *.local, *.internal and *.svc."""
    memory_bytes: int | None = Field(default=None, ge=64 << 20)
    """Resident memory above which the taps refuse data. Three quarters of the control
    group's limit apply if that is lower or if this is not set. A change needs a
    restart.
    """
    tap: TapSettings = Field(default=TapSettings())
    """The listener of the taps."""

    @field_validator("hosts")
    @classmethod
    def _are_names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in hosts:
            if ":" in pattern:
                raise ValueError(f"found {pattern!r}; want a host name without a port")
        return tuple(pattern.lower() for pattern in hosts)


_ENERGY: Final = frozenset(
    spec.name for spec in vars(energy_metrics).values() if isinstance(spec, MetricSpec)
)
_INTERNAL_DOMAINS: Final = frozenset({"internal", "lan", "local", "localhost", "svc"})
"""Top-level domains that no public DNS server can answer for."""


class MultiTargetSettings(Settings):
    """Addresses that /probe?target= may probe."""

    allow: tuple[str, ...] = Field(default=(), max_length=10_000)
    """Shell-style patterns for "host:port". Other addresses are refused."""
    open: bool = Field(default=False)
    """Allow any address. Anyone who can reach /probe can then send requests into this
    network."""
    max_concurrent: int = Field(default=4, ge=1, le=64)
    """Maximum number of concurrent /probe requests of one address. All addresses together
    have twice as many, and one may not have more than it leaves free. Further ones get
    status 503."""

    @property
    def broad(self) -> list[str]:
        """Patterns of `allow` that match names in domains which anyone may register."""
        return [pattern for pattern in self.allow if _is_broad(pattern)]


def _is_broad(pattern: str) -> bool:
    """Return whether the pattern also matches host names in domains of others."""
    _, star, rest = pattern.rpartition(":")[0].rpartition("*")
    label, dot, domain = rest.partition(".")
    if not star:
        return False
    open_ended = not dot or (label != "" and "." not in domain)
    return open_ended or ("." not in domain and domain not in _INTERNAL_DOMAINS)


class LogSettings(Settings):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info")
    """Lowest level that is written."""
    format: Literal["logfmt", "json"] = Field(default="logfmt")
    """Format of the log. Both formats write one line per event."""


class Config(Settings):
    """The whole file."""

    target: AnyTarget = Field(default=TargetSettings())
    """The server to watch."""
    models: ModelFilter = Field(default=ModelFilter())
    """The models of the server to watch."""
    listen: ListenSettings = Field(default=ListenSettings())
    """Address at which this process serves its pages."""
    collectors: tuple[AnyCollector, ...] = Field(default=())
    """Collectors to run, with their settings. `process`, `server` and `statistics` (with
    `target.kind: openai` `backend_page`) run also if not listed."""
    probes: tuple[AnyProbe, ...] = Field(default=(SyntheticSettings(),), max_length=32)
    """Probes: requests sent to the models. The default synthetic probe also runs unless
    a synthetic probe is listed. An empty list, or one with `enabled: false`, turns it
    off.
    """
    multi_target: MultiTargetSettings = Field(default=MultiTargetSettings())
    """Addresses that /probe?target= may probe."""
    slos: tuple[AnyObjective, ...] = Field(default=(), max_length=200)
    """Service level objectives; `tritonwatch rules` writes their alerts."""
    drift: tuple[DriftSettings, ...] = Field(default=(), max_length=100)
    """Models whose inputs or outputs are watched for drift, each with its reference.
    The taps supply the data."""
    comparisons: tuple[ComparisonSettings, ...] = Field(default=(), max_length=32)
    """Comparisons of a champion with a challenger, with a bounded error rate."""
    power: PowerSettings | None = Field(default=PowerSettings())
    """Sources of power readings; null turns power and energy off."""
    cost: CostSettings = Field(default=CostSettings())
    """Prices and other inputs of the cost of an inference."""
    otlp: OtlpSettings | None = Field(default=None)
    """Also push all samples to an OpenTelemetry collector."""
    log: LogSettings = Field(default=LogSettings())
    """The log."""

    @model_validator(mode="after")
    def _distinct(self) -> Config:
        kinds: list[str] = [collector.kind for collector in self.collectors]
        labels = [probe.label for probe in self._with_defaults()]
        datasets = [p.dataset for p in self.probes if p.kind == "golden"]
        objectives = [objective.name for objective in expanded(self.slos)]
        problems = [
            f"found two {what} {name!r}; want one"
            for what, names in (
                ("collectors of kind", kinds),
                ("probes named", labels),
                ("golden datasets named", datasets),
                ("slos named", objectives),
                ("comparisons named", [c.name for c in self.comparisons]),
            )
            for name in sorted({name for name in names if names.count(name) > 1})
        ]
        problems += doubled_entries(self.drift)
        problems += self._without_limits()
        if self.target.kind == "openai":
            problems += _triton_only(self)
        else:
            problems += self._without_events(kinds)
            problems += [_NO_PAGE] if "backend_page" in kinds else []
        problems += [
            f"probe {name!r} has the name of a collector; choose another"
            for name in sorted(
                set(labels) & ({c.kind for c in self.all_collectors()} | _SECTIONS)
            )
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _without_events(self, kinds: list[str]) -> Iterator[str]:
        """Yield the objectives whose events nothing reads."""
        for objective in expanded(self.slos):
            if objective.kind == "signal":
                if self.power is None and objective.metric in _ENERGY:
                    yield (
                        f"slo {objective.name!r} judges {objective.metric}, which needs "
                        "the section power; remove `power: null`"
                    )
            elif objective.needs and objective.needs not in kinds:
                yield (
                    f"slo {objective.name!r} has the source {objective.source}, which "
                    f"needs a collector of kind {objective.needs}; add one"
                )

    def _without_limits(self) -> list[str]:
        known = {
            name for c in self.collectors if c.kind == "traces" for name in c.limits
        }
        return [
            f"slo {objective.name!r} names the limits {objective.limits!r}; the "
            "collector of kind traces has "
            + (", ".join(sorted(known)) if known else "no limits")
            for objective in self.slos
            if objective.kind == "goodput" and objective.limits not in known
        ]

    def all_probes(self) -> tuple[AnyProbe, ...]:
        """Every probe that runs, the configured ones in place of the defaults."""
        probes = [probe for probe in self._with_defaults() if probe.enabled]
        if self.target.kind == "openai":
            return tuple(map(patient, probes))
        return tuple(probes)

    def _with_defaults(self) -> tuple[AnyProbe, ...]:
        has_synthetic = any(probe.kind == "synthetic" for probe in self.probes)
        if has_synthetic or not self.probes:
            return self.probes
        return (SyntheticSettings(), *self.probes)

    def model_mentions(self) -> Iterator[ModelMention]:
        """Every model that the file names, with the path of the setting."""
        named: list[tuple[str, Settings]] = [
            ("models", self.models),
            *((f"probes.{probe.label}", probe) for probe in self.all_probes()),
            *((f"collectors.{c.kind}", c) for c in self.all_collectors()),
            *((f"slos.{objective.name}", objective) for objective in self.slos),
            *((f"drift.{place}", entry) for place, entry in enumerate(self.drift)),
            ("cost", self.cost),
            *([("power", self.power)] if self.power else []),
        ]
        for place, settings in named:
            yield from below(place, settings.model_mentions())

    def all_collectors(self) -> tuple[AnyCollector, ...]:
        """Every collector that runs, the configured ones in place of the defaults."""
        is_openai = self.target.kind == "openai"
        counts = BackendPageSettings() if is_openai else StatisticsSettings()
        chosen: dict[str, AnyCollector] = {
            default.kind: default
            for default in (ServerSettings(), counts, ProcessSettings())
        }
        chosen.update({collector.kind: collector for collector in self.collectors})
        shadowed = any(c.inputs.source == "mirror" for c in self.comparisons)
        if self.drift or shadowed or "outputs" in chosen:
            # They look at mirrored requests, and have none without it.
            chosen.setdefault("mirror", MirrorSettings())
        return tuple(chosen.values())


def _triton_only(config: Config) -> Iterator[str]:
    """Yield a problem for each setting that needs Triton."""
    for collector in config.collectors:
        if collector.needs_triton:
            yield _needs_triton(f"a collector of kind {collector.kind}")
    for probe in config.probes:
        if probe.kind == "synthetic" and "http" not in probe.protocols:
            yield _needs_triton(f"a probe {probe.label!r} over gRPC alone")
        elif probe.kind == "golden" and probe.data.embeddings:
            yield _needs_triton(f"a check by embeddings of the probe {probe.label!r}")
    if any(entry.embedding is not None for entry in config.drift):
        yield _needs_triton("drift of embeddings")
    if config.comparisons:
        yield _needs_triton("the section comparisons")
    if config.multi_target.open or config.multi_target.allow:
        yield _needs_triton("the section multi_target")
    for objective in expanded(config.slos):
        yield from _unjudged(objective)


def _unjudged(objective: Objective) -> Iterator[str]:
    if objective.kind == "goodput":
        yield _needs_triton(f"an objective of kind goodput ({objective.name})")
    elif objective.kind != "signal" and objective.source != "probes":
        yield (
            f"found the source {objective.source} in slos called "
            f"{objective.name!r}, which needs Triton, and target.kind openai; "
            "judge probes: `source: probes`"
        )


def _needs_triton(what: str) -> str:
    return f"found {what}, which needs Triton, and target.kind openai; remove it"


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> Config:
    """The configuration of `path`, or the defaults without one.

    Raises:
        ConfigError: with every problem of the file.
    """
    if path is None:
        return Config()
    return parse(config_file.content(path), str(path), environment)


def parse(raw: bytes, source: str, environment: Mapping[str, str]) -> Config:
    """The configuration that `raw` holds.

    Raises:
        ConfigError: with every problem found.
    """
    return config_problems.validated(Config, raw, source, environment)
