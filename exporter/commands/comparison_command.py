"""`tritonwatch compare`: one comparison from begin to verdict, and a gate for pipelines."""

from __future__ import annotations

import asyncio
import json
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from exporter.app import Sidecar
from exporter.config import configuration, connect, logs
from exporter.config.config_problems import plain_problems
from exporter.errors import ConfigError, GoldenDataError
from exporter.features.comparison.comparison_collector import (
    Comparison,
    ComparisonCollector,
    shown,
)
from exporter.features.comparison.comparison_inputs import GoldenInputs
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.features.discovery.server_collector import ServerSettings
from exporter.features.statistics.statistics_settings import StatisticsSettings
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporter.features.comparison.comparison_settings import (
        Metric,
    )
    from exporter.features.comparison.confidence import Finding

Outcome = Literal["passed", "failed", "undecided"]
EXIT_CODES: Final[dict[Outcome, int]] = {"passed": 0, "failed": 1, "undecided": 3}
MEASURED: Final[frozenset[Metric]] = frozenset({"energy", "memory"})
"""Metrics that are reported where they are measured, and fail no gate elsewhere."""
_ABSENT: Final = {
    "energy": "not measured here; see `tritonwatch load pair`",
    "memory": "not reported by Triton; see `tritonwatch coldstart --pid`",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one comparison and the conditions they were made under."""

    settings: ComparisonSettings
    document: dict[str, Any]
    findings: tuple[Finding, ...]
    seconds: float
    inputs_sha256: str | None
    server: str

    @property
    def outcome(self) -> Outcome:
        """Return whether the challenger is not worse in any of the configured metrics."""
        found = {finding.metric: finding for finding in self.findings}
        if any(f.verdict == "worse" for f in self.findings):
            return "failed"
        needed = [m for m in self.settings.wanted if m in found or m in self.waited]
        passed = all(m in found and found[m].passes for m in needed)
        return "passed" if passed else "undecided"

    @property
    def waited(self) -> list[Metric]:
        """Return the metrics that must be known: all but those that may be unmeasured.

        All of them if none else is compared.
        """
        wanted = self.settings.wanted
        return [metric for metric in wanted if metric not in MEASURED] or list(wanted)

    @property
    def held_back(self) -> str:
        """Return what the next pair waits for, and for how long; "" if for nothing."""
        if self.document["problem"]:
            return f"; waiting: {self.document['problem']}"
        wait, budget = self.document["next_pair"], self.settings.budget
        if wait is None or wait["limit"] == "rate":
            return ""
        limit, seconds = wait["limit"], wait["seconds"]
        if limit == "idle" and seconds is not None:
            return ""
        why = {
            "requests": f"{budget.request_ratio or 0:.3g} of the champion's production "
            "requests (--budget)",
            "busy": f"{budget.busy_ratio or 0:.3g} of the champion's production busy "
            "time (--budget)",
            "idle": "idle_pairs_per_second 0 while production is idle",
            "statistics": "production's rate, which is not known yet",
            "inputs": f"an input from {self.document['inputs']}",
        }[limit]
        when = "" if seconds is None else f"; next pair in {seconds:.1f} s"
        return f"; delayed by {why}{when}"

    def to_json(self) -> str:
        """The report for programs."""
        return json.dumps(
            {
                **self.document,
                "metrics": [shown(finding) for finding in self.findings],
                "outcome": self.outcome,
                "not_measured": self._absent(),
                "why_not_measured": {m: _why_absent(m) for m in self._absent()},
                "seconds": round(self.seconds, 3),
                "seed": self.settings.seed,
                "inputs_sha256": self.inputs_sha256,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": {
                    "tritonwatch": version("tritonwatch"),
                    "triton": self.server,
                    "python": platform.python_version(),
                },
                "model_versions": self.document["versions"],
                "machine": platform.machine(),
            },
            indent=2,
        )

    def to_text(self) -> str:
        """The report for people."""
        settings, pairs = self.settings, self.document["pairs"]
        lines = [
            (
                f"{settings.challenger} against {settings.champion}: {self.outcome} after "
                f"{sum(pairs.values())} pairs in {self.seconds:.1f} s"
                f"{self.held_back if self.outcome == 'undecided' else ''}"
            ),
            (
                f"{'metric':<17} {'effect':>9}  {'interval':<22} {'margin':>7} "
                f"{'eff. pairs':>10}  verdict"
            ),
        ]
        lines += [_line(finding) for finding in self.findings]
        lines += [f"{metric:<17} {_why_absent(metric)}" for metric in self._absent()]
        lines.append(
            "All intervals hold at all times together with probability "
            f"{percent(1 - settings.alpha)}; 0 is no difference. Effective pairs: the "
            "number of independent pairs that would give the same interval."
        )
        lines += [_speed_up(f) for f in self.findings if f.metric == "latency_mean"]
        return "\n".join(line for line in lines if line) + "\n"

    def _absent(self) -> list[str]:
        found = {finding.metric for finding in self.findings}
        return [metric for metric in self.settings.wanted if metric not in found]


def _why_absent(metric: str) -> str:
    return _ABSENT.get(metric, "not known yet")


def _line(finding: Finding) -> str:
    interval = finding.interval
    why = f": {interval.withheld}" if interval.withheld else ""
    ends = f"{_percent(interval.low)} to {_percent(interval.high)}"
    return (
        f"{finding.metric:<17} {_percent(interval.estimate):>9}  {ends:<22} "
        f"{percent(finding.margin):>7} {interval.worth:>10.0f}  {finding.verdict}{why}"
    )


def _percent(value: float) -> str:
    if abs(value) == float("inf"):
        return "?"
    return percent(value, "+")


def _speed_up(finding: Finding) -> str:
    """Return the mean latency as speed: 1.25 is a quarter more in the same time."""
    interval = finding.interval
    if interval.low <= -1 or interval.high == float("inf"):
        return ""
    return (
        f"speed-up {1 / (1 + interval.estimate):.3f} "
        f"({1 / (1 + interval.high):.3f} to {1 / (1 + interval.low):.3f})"
    )


QUALITY: Final[tuple[Metric, ...]] = (
    "agreement",
    "success",
    "latency_mean",
    "latency_p95",
)
"""Metrics of a gate by default; accuracy comes first where there are labels."""
PRECISION: Final[tuple[Metric, ...]] = (
    "accuracy",
    "agreement",
    "output_distance",
    "success",
    "latency_mean",
    "latency_p50",
    "latency_p95",
    "energy",
    "memory",
)
_POLL_SECONDS: Final = 0.25
_STARTING_SECONDS: Final = 10.0


def settings_of(
    champion: str,
    challenger: str,
    *,
    data: Path | None,
    metrics: tuple[Metric, ...],
    margins: dict[str, float],
    alpha: float,
    budget: dict[str, float | None],
    seed: int,
) -> ComparisonSettings:
    """The comparison that the options describe.

    Raises:
        ConfigError: they contradict each other or are out of range, or the data
            cannot be used.
    """
    labelled = data is not None and _labelled(data, "label")
    chosen = metrics or (("accuracy", *QUALITY[1:]) if labelled else QUALITY)
    if "accuracy" in chosen and not labelled:
        problem = "found metric accuracy and no labels; want --data with a `label`"
        raise ConfigError("compare", [problem])
    inputs = {"source": "golden", "file": data} if data else {"source": "synthetic"}
    try:
        return ComparisonSettings.model_validate(
            {
                "name": "compare",
                "champion": champion,
                "challenger": challenger,
                "metrics": chosen,
                "margins": margins,
                "alpha": alpha,
                "seed": seed,
                "inputs": inputs,
                "budget": budget,
            }
        )
    except ValidationError as error:
        raise ConfigError("compare", plain_problems(error)) from None


def decidable(settings: ComparisonSettings) -> ComparisonSettings:
    """Return it with the metrics that its inputs support, if it lists none.

    Raises:
        ConfigError: the file of inputs cannot be used.
    """
    chosen, file = settings.wanted, settings.inputs.file
    if (
        not settings.metrics
        and file is not None
        and not _labelled(file, settings.inputs.label)
    ):
        chosen = tuple(metric for metric in chosen if metric != "accuracy")
    return settings.model_copy(update={"metrics": chosen})


def _labelled(data: Path, label: str) -> bool:
    try:
        return GoldenInputs(data, label, 0).labelled
    except GoldenDataError as error:
        raise ConfigError("compare", [str(error)]) from None


def run(
    config_file: Path | None,
    settings: ComparisonSettings,
    duration_seconds: float,
    progress: Callable[[str], None],
) -> Report:
    """Compare until everything is decided, or until the time is over.

    Raises:
        ConfigError: the configuration cannot be used, the server or a model is not
            there, or the two do not take the same.
    """
    loaded = configuration.load(config_file)
    connect.triton(loaded, "compare")
    config = _config(loaded, settings)
    logs.configure(configuration.LogSettings(level="error"))
    return asyncio.run(_compare(config, settings, duration_seconds, progress))


async def _compare(
    config: configuration.Config,
    settings: ComparisonSettings,
    duration_seconds: float,
    progress: Callable[[str], None],
) -> Report:
    sidecar = Sidecar(config, seed=settings.seed)
    sidecar.start()
    started = reported_at = time.monotonic()
    # Once begun it may begin again, after a reload, and have a problem until then.
    patience = _STARTING_SECONDS
    try:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = time.monotonic()
            report = _report(sidecar, settings, now - started)
            if report is not None and (
                _decided(report) or now - started > duration_seconds
            ):
                return report
            if report is None and now - started > patience:
                raise ConfigError("compare", [_reason(sidecar)])
            if report is None:
                continue
            patience = max(patience, duration_seconds)
            if now - reported_at >= 1:
                reported_at = now
                progress(
                    f"{sum(report.document['pairs'].values())} pairs, "
                    f"{report.outcome} so far{report.held_back}"
                )
    finally:
        await sidecar.stop()


def _report(
    sidecar: Sidecar, settings: ComparisonSettings, seconds: float
) -> Report | None:
    """Return the report; None before the comparison has started.

    A problem after its first pair, like a server that restarts, may pass.
    """
    comparison = _comparison(sidecar)
    if comparison is None or comparison.source is None:
        return None
    if comparison.source.keys is None:
        return None
    if comparison.problem and not any(comparison.source.outcomes.values()):
        return None
    golden = getattr(comparison.source, "golden", None)
    info = sidecar.access.board.current.info
    return Report(
        settings,
        comparison.document(),
        comparison.findings,
        seconds,
        None if golden is None else golden.sha256,
        "unknown" if info is None else info.version,
    )


def _comparison(sidecar: Sidecar) -> Comparison | None:
    for collector in sidecar.collectors:
        if isinstance(collector, ComparisonCollector):
            return collector.comparisons[0]
    return None


def _reason(sidecar: Sidecar) -> str:
    if not sidecar.access.board.current.up:
        return f"no answer from Triton at {sidecar.config.target.address}"
    comparison = _comparison(sidecar)
    return comparison.problem if comparison else "the comparison did not begin"


def _decided(report: Report) -> bool:
    if report.outcome == "failed":
        return True
    found = {finding.metric: finding for finding in report.findings}
    return bool(report.document["complete"]) or all(
        m in found and found[m].verdict != "undecided" for m in report.waited
    )


def _config(
    config: configuration.Config, settings: ComparisonSettings
) -> configuration.Config:
    """The file's server and power, and nothing running but this comparison."""
    often = {"interval_seconds": 0.5, "deadline_seconds": 4.0}
    return config.model_copy(
        update={
            "collectors": (
                ServerSettings.model_validate(often),
                StatisticsSettings.model_validate(often),
            ),
            "probes": (),
            "slos": (),
            "drift": (),
            "otlp": None,
            "comparisons": (settings,),
        }
    )
