"""Load and chaos runs that report to the tap, for annotations and headroom."""

from __future__ import annotations

from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator

from exporter import catalogue
from exporter.access.collector_base import Access, CollectorSettings
from exporter.access.source_reads import Series, with_read_times
from exporter.features.runs.run_board import (
    CapacityNotice,
    RunBoard,
    RunNotice,
    valid_capacity,
)
from exporter.samples import Sample
from exporter.taps.tap_route import TapAnswer, TapRoute, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from exporter.taps.tap_route import TapRequest

SOURCE: Final = "runs"
_MAX_BODY_BYTES: Final = 16 << 10
_SHOWN: Final = 5
_ACCEPTED: Final = TapAnswer("accepted", HTTPStatus.NO_CONTENT)
_LEAST_APART: Final = 0.5
"""Minimum time between two readings that give a rate, as a share of the window."""

_Notice = TypeVar("_Notice", bound=BaseModel)


class RunsSettings(CollectorSettings):
    """Load runs and capacities reported to the tap by `tritonwatch load` or another tool.

    They are sent to POST /v1/runs and /v1/capacity by the option `--sidecar
    http://localhost:8004`.
    """

    kind: Literal["runs"] = "runs"
    needs_triton: ClassVar[bool] = False
    rate_window_seconds: float = Field(default=60.0, ge=1, le=3600)
    """Time over which the production rate is averaged for the headroom."""
    capacity_reports: tuple[str, ...] = Field(default=(), max_length=100)
    """Files written by `tritonwatch load capacity --json`, read at every start. Results
    that the tap receives later replace them. A file without a valid capacity is
    rejected."""

    @field_validator("capacity_reports")
    @classmethod
    def _are_reports(cls, files: tuple[str, ...]) -> tuple[str, ...]:
        for file in files:
            valid_capacity(file)
        return files

    def build(self, access: Access) -> RunsCollector:
        """The collector."""
        return RunsCollector(self, access)


class RunsCollector:
    """Receives reports from the tap, and exposes them."""

    def __init__(self, settings: RunsSettings, access: Access) -> None:
        self._board = RunBoard(access.clock)
        for file in settings.capacity_reports:
            self._board.note_capacity(valid_capacity(file))
        self._exposed = access.exposed
        self._clock = access.clock
        self._window = settings.rate_window_seconds
        self._readings: deque[tuple[float, dict[Series, float]]] = deque()

    def routes(self) -> Sequence[TapRoute]:
        """Runs and capacities."""
        return (
            self._route("/v1/runs", RunNotice, self._board.note_run),
            self._route("/v1/capacity", CapacityNotice, self._board.note_capacity),
        )

    def collect(self) -> Sequence[Sample]:
        """Active runs, capacities with their headroom, and the latest searches."""
        return (*self._running(), *self._capacities(), *self._searches())

    def _running(self) -> Iterator[Sample]:
        for run in self._board.runs():
            labels = (run.run, run.kind, run.profile, run.phase)
            yield Sample(catalogue.RUN_INFO, 1, labels)

    def _capacities(self) -> Iterator[Sample]:
        found = self._board.capacities()
        if not found:
            self._readings.clear()
        rates = self._rates({capacity.model for capacity in found}) if found else {}
        for capacity in found:
            key = (capacity.model, capacity.slo)
            for spec, value, labels in (
                (catalogue.CAPACITY, capacity.requests_per_second, (*key, "estimate")),
                (catalogue.CAPACITY, capacity.low, (*key, "low")),
                (catalogue.CAPACITY, capacity.high, (*key, "high")),
                (catalogue.CAPACITY_EFFECTIVE, capacity.effective_requests, key),
                (catalogue.CAPACITY_FOUND, capacity.found_at, key),
            ):
                if value is not None:
                    yield Sample(spec, value, labels)
            rate = rates.get(capacity.model)
            if rate is not None and capacity.requests_per_second is not None:
                left = 1.0 - rate / capacity.requests_per_second
                yield Sample(catalogue.CAPACITY_HEADROOM, left, key)

    def _searches(self) -> Iterator[Sample]:
        for search in self._board.searches():
            labels = (search.model, search.slo, search.verdict, search.reason)
            yield Sample(catalogue.CAPACITY_SEARCH, 1, labels)

    def _rates(self, models: set[str]) -> dict[str, float]:
        """Production's requests a second by model, over the window.

        Each series is compared with its first reading in the window; a model is left out
        until all its series are known for long enough.
        """
        totals, read_at = self._totals(models)
        if read_at is None:
            return {}
        if not self._readings or read_at > self._readings[-1][0]:
            self._readings.append((read_at, totals))
        # Keep one older reading: readings may be further apart than the window.
        while len(self._readings) > 1 and (
            self._readings[1][0] <= read_at - self._window
        ):
            self._readings.popleft()
        rates = dict.fromkeys((series[0] for series in totals), 0.0)
        for series, total in totals.items():
            since, before = next(
                ((at, seen[series]) for at, seen in self._readings if series in seen),
                (read_at, total),
            )
            if total < before or read_at - since < _LEAST_APART * self._window:
                rates.pop(series[0], None)
            elif series[0] in rates:
                rates[series[0]] += (total - before) / (read_at - since)
        return rates

    def _totals(self, models: set[str]) -> tuple[dict[Series, float], float | None]:
        """Return the models' requests by series, and when they were read."""
        totals: dict[Series, float] = {}
        read_at = None
        for sample, at in with_read_times(self._exposed(), self._clock()):
            if sample.spec is catalogue.REQUESTS and isinstance(sample, Sample):
                read_at = at
                if sample.labels[0] in models:
                    totals[sample.labels] = sample.value
        return totals, read_at

    def _route(
        self, path: str, form: type[_Notice], keep: Callable[[_Notice, str], None]
    ) -> TapRoute:
        def answer(request: TapRequest) -> TapAnswer:
            try:
                notice = form.model_validate_json(request.body)
            except ValidationError as error:
                return refusal("malformed", HTTPStatus.BAD_REQUEST, _reason(error))
            keep(notice, request.sender)
            return _ACCEPTED

        return TapRoute(path, SOURCE, _MAX_BODY_BYTES, answer, _ACCEPTED, control=True)


def _reason(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'the body'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:_SHOWN]
    )
