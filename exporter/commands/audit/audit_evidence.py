"""The observations of an audit, as frozen records: all that checks may use."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from exporter.access.inventory import Inventory
from exporter.commands.audit.model_seen import ModelSeen
from exporter.triton.protocol_types import ModelStatistics, ServerInfo
from exporter.triton.upstream import GPU_ENERGY, GPU_POWER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.model_seen import Answers
    from exporter.triton.protocol_types import IndexEntry

Part = Literal["http", "statistics", "metrics", "traces"]
"""Sources that can be missing while the server itself answers."""
NO_SERIES: Final = "the answer has none of Triton's series"
"""The problem of a metrics page that is not Triton's."""
NOT_CONFIGURED: Final = "the config has no address for it"
"""Problem of a part that is left out on purpose."""
MOST_TRACE_SETTINGS: Final = 200
"""Models whose trace settings are read."""
SUMMARIES: Final = "nv_inference_request_summary_us_count"
SUCCESSES: Final = "nv_inference_request_success"
INFERENCES: Final = "nv_inference_count"
READ_SERIES: Final = {SUMMARIES, SUCCESSES, INFERENCES, GPU_POWER.name, GPU_ENERGY.name}
"""Series of Triton's metrics page that are read."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Triton's metrics page at one instant, `at` in seconds since the audit began."""

    at: float = math.nan
    series: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)

    def values(self, name: str) -> Mapping[Labels, float]:
        """Label set -> value of one series."""
        return self.series.get(name, {})


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of the repository index; `refused` is why its metadata cannot be read."""

    entry: IndexEntry
    refused: str = ""

    @property
    def key(self) -> ModelKey:
        """Model and version."""
        return self.entry.name, self.entry.version

    @property
    def failed(self) -> bool:
        """Return whether it failed to load; one that is loading or unloading did not."""
        return self.entry.state == "UNAVAILABLE" and self.entry.reason != "unloaded"


@dataclass(frozen=True)
class Evidence:
    """One inspection. What could not be read is empty, and as a number NaN.

    `first` and `second` bracket the window in which only others sent requests; the pages
    were read before it and after our own requests, which follow it.
    """

    inventory: Inventory = field(default_factory=Inventory)
    no_answer: str = ""
    """Reason why the gRPC service does not answer; "" when it does."""
    http: str = ""
    """Readiness of the server, as its HTTP service reports it."""
    network_seconds: float = math.nan
    """Round trip of a call that does nothing."""
    window_seconds: float = 0.0
    problems: Mapping[Part, str] = field(default_factory=dict)
    """Reason why a part could not be read."""
    unreadable: Mapping[ModelKey, str] = field(default_factory=dict)
    """Listed as ready, but its metadata is refused; why."""
    unread: int = 0
    """Ready models that were not inspected for lack of time."""
    first: Mapping[ModelKey, ModelStatistics] = field(default_factory=dict)
    second: Mapping[ModelKey, ModelStatistics] = field(default_factory=dict)
    first_page: Page = field(default_factory=Page)
    last_page: Page = field(default_factory=Page)
    trace_settings: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict
    )
    """Model -> settings in force; "" is the global ones."""
    answers: tuple[Answers, ...] = ()
    not_asked: int = 0
    """Ways to ask a model, one for each protocol, that gave no verdict in time."""

    @property
    def key(self) -> ModelKey:
        """Of the server as a whole."""
        return "", ""

    # Models.

    @cached_property
    def models(self) -> tuple[ModelSeen, ...]:
        """The ready model versions that could be read."""
        answers: dict[ModelKey, list[Answers]] = defaultdict(list)
        for given in self.answers:
            answers[given.target.key].append(given)
        requests: dict[ModelKey, float] = defaultdict(float)
        for labels, value in self.last_page.values(SUCCESSES).items():
            of = dict(labels)
            requests[of.get("model", ""), of.get("version", "")] += value
        return tuple(
            ModelSeen(
                spec,
                first=self.first.get(key, ModelStatistics(*key)),
                second=self.second.get(key, ModelStatistics(*key)),
                counted="statistics" not in self.problems,
                window_seconds=self.window_seconds,
                network_seconds=self.network_seconds,
                page_requests=requests.get(key, math.nan),
                answers=tuple(answers[key]),
                trace_settings=self.trace_settings.get(spec.name, {}),
            )
            for key, spec in self.inventory.models.items()
        )

    @property
    def listed(self) -> Iterator[Listed]:
        """All lines of the repository index."""
        for entry in self.inventory.index:
            yield Listed(entry, self.unreadable.get((entry.name, entry.version), ""))

    @property
    def asked(self) -> int:
        """Number of models with verdicts."""
        return sum(model.asked > 0 for model in self.models)

    @property
    def well(self) -> int:
        """Number of models that answered every request."""
        return sum(0 < model.asked == model.ok for model in self.models)

    @property
    def broken(self) -> int:
        """Number of versions that failed to load."""
        return sum(listed.failed for listed in self.listed)

    # The server.

    @property
    def info(self) -> ServerInfo:
        """Name and version that the server reports."""
        return self.inventory.info or ServerInfo("triton", "")

    def older_than(self, *fixed_in: int) -> bool:
        """Return whether this is a Triton below a version."""
        return self.info.numbers is not None and self.info.numbers < fixed_in

    @property
    def missing(self) -> dict[Part, str]:
        """Triton's extensions that another server lacks, with its answers.

        Its metrics page is one: no other server has Triton's series.
        """
        if self.info.is_triton:
            return {}
        return {
            part: answer
            for part, answer in self.problems.items()
            if answer.startswith("UNIMPLEMENTED")
            or (part == "metrics" and answer != NOT_CONFIGURED)
        }

    def failing(self, part: Part) -> str:
        """Reason why a part that this server should have cannot be read; "" if it can."""
        problem = self.problems.get(part, "")
        return "" if part in self.missing or problem == NOT_CONFIGURED else problem

    @property
    def traced(self) -> bool:
        """Return whether requests to any model are traced."""
        levels = (m.trace_setting("trace_level") for m in self.models)
        return any(level not in ("", "OFF") for level in levels)

    @property
    def traces_unread(self) -> int:
        """Number of models whose trace settings could not be read."""
        unread = sum(not model.trace_settings for model in self.models)
        # Of very many models only some are asked for.
        capped = min(unread, MOST_TRACE_SETTINGS - len(self.trace_settings) + 1)
        return 0 if "traces" in self.missing else max(0, capped)

    # The metrics page.

    @property
    def page_seconds(self) -> float:
        """Time between the two pages."""
        return self.last_page.at - self.first_page.at

    @property
    def joules(self) -> float:
        """Energy of all GPUs between the pages; NaN if one does not count."""
        rises = self._rises(GPU_ENERGY.name)
        return sum(rises) if rises and all(r > 0 for r in rises) else math.nan

    @property
    def watts(self) -> float:
        """Mean power of all GPUs between the pages."""
        return self.joules / self.page_seconds

    @property
    def inferences(self) -> float:
        """Inferences between the pages."""
        return sum(self._rises(INFERENCES)) or math.nan

    def _rises(self, name: str) -> Sequence[float]:
        before, after = self.first_page.values(name), self.last_page.values(name)
        return [after[labels] - before[labels] for labels in after.keys() & before]
