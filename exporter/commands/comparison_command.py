"""`tritonwatch compare`: one comparison from begin to verdict, and a gate for pipelines."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from exporter.app import Sidecar
from exporter.commands.compare_report import Report
from exporter.config import configuration, connect, logs
from exporter.config.config_problems import plain_problems
from exporter.errors import ConfigError, GoldenDataError
from exporter.features.comparison.comparison_collector import (
    Comparison,
    ComparisonCollector,
)
from exporter.features.comparison.comparison_inputs import GoldenInputs
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.features.discovery.server_collector import ServerSettings
from exporter.features.statistics.statistics_collector import StatisticsSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from exporter.features.comparison.comparison_settings import Metric

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
    labelled = data is not None and _labelled(data)
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


def _labelled(data: Path) -> bool:
    try:
        return GoldenInputs(data, "label", 0).labelled
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
    try:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = time.monotonic()
            report = _report(sidecar, settings, now - started)
            if report is not None and (
                _decided(report) or now - started > duration_seconds
            ):
                return report
            if report is None and now - started > _STARTING_SECONDS:
                raise ConfigError("compare", [_reason(sidecar)])
            if report is not None and now - reported_at >= 1:
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
    """Return the report; None before the comparison has started."""
    comparison = _comparison(sidecar)
    if comparison is None or comparison.keys is None or comparison.problem:
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
