"""Efficiency as data: the JSON reports of the curve and of a pair."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from exporter.settings import Settings

MODELLED = "model"


class Interval(Settings):
    """An estimate and its 95 % interval; null where the data cannot support one."""

    estimate: float
    low: float | None
    high: float | None


class LevelPower(Settings):
    """One boundary at one level."""

    boundary: str
    watts: float
    known: bool
    """Whether power was known all the time."""
    joules_per_inference: Interval | None
    """Null at idle, and where nothing was answered."""
    inferences_per_second_per_watt: float


class EfficiencyLevel(Settings):
    """One level of load."""

    name: str
    load_ratio: float
    """Of the calibrated maximum; 0 is idle."""
    offered_per_second: float
    inferences_per_second: float
    """Right answers, times the rows of a request."""
    miss_ratio: float
    power: tuple[LevelPower, ...]


class EfficiencyReport(Settings):
    """The curve of one mix of models."""

    format: Literal["tritonwatch-load-efficiency"] = "tritonwatch-load-efficiency"
    models: tuple[str, ...]
    maximum_per_second: float
    """Requests a second that 100 % is."""
    calibrations: tuple[float, ...]
    """Closed-loop throughputs it comes from; none where it was given."""
    concurrency: int
    level_seconds: float
    sources: dict[str, str]
    """Kind of the power source, by boundary; "model" is no measurement."""
    descriptions: dict[str, str]
    levels: tuple[EfficiencyLevel, ...]
    score: dict[str, float]
    """Inferences a second over watts, summed over all levels and idle, by boundary."""
    seed: int
    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = Field(default=())
    """What disturbed the numbers without making them invalid."""
    versions: dict[str, str]
    hardware: dict[str, Any]


class PairReport(Settings):
    """One model beside another, in pairs of blocks one right after the other."""

    format: Literal["tritonwatch-load-pair"] = "tritonwatch-load-pair"
    reference: str
    candidate: str
    pairs: int
    block_seconds: float
    concurrency: int
    speed_up: Interval
    """Candidate's inferences a second over the reference's."""
    energy_ratio: dict[str, Interval] = Field(default={})
    """Candidate's joules an inference over the reference's, by boundary."""
    accuracy: dict[str, float] = Field(default={})
    """By model, on the labelled rows."""
    accuracy_change: Interval | None = Field(default=None)
    """Candidate's accuracy less the reference's, on the same rows."""
    rows: int = 0
    sources: dict[str, str]
    descriptions: dict[str, str]
    seed: int
    valid: bool
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = Field(default=())
    """What disturbed the numbers without making them invalid."""
    versions: dict[str, str]
    hardware: dict[str, Any]


def schema(report: type[EfficiencyReport | PairReport]) -> str:
    """The JSON schema of a report."""
    return json.dumps(report.model_json_schema(), indent=2, sort_keys=True)
