"""Tensors of trace files to the hub: production's data with nothing in its path."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import structlog

from exporter import catalogue
from exporter.access.mirror_hub import Mirrored
from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.errors import MirrorBodyError
from exporter.features.traces.trace_tensors import REASONS, arrays
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.features.traces.trace_records import Parsed, TracedInference
    from exporter.taps.mirroring.intake import Intake
    from exporter.taps.tap_route import Outcome

log = structlog.get_logger()

SOURCE: Final = "traces"
_UNREAD: Final = "unknown"


class TracedMirror:
    """Publishes the tensors of trace files. Not thread-safe."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._outcomes: Counter[Outcome] = Counter()
        self._refused: Counter[str] = Counter()

    def add(self, parsed: Parsed) -> None:
        """Publish the tensors of one file, as far as they can be read."""
        for datatype, number in parsed.refused.items():
            if datatype not in self._refused:
                log.warning(
                    "trace_tensors_refused",
                    datatype=datatype,
                    reason=REASONS.get(datatype, _UNREAD),
                )
            self._refused[datatype] += number
        for inference in parsed.inferences:
            self._outcomes[self._publish(inference)] += 1

    def samples(self) -> Iterator[Sample]:
        """Yield the number of requests by outcome, and of unreadable tensors by datatype."""
        for outcome, number in sorted(self._outcomes.items()):
            yield Sample(catalogue.TAP_REQUESTS, number, (SOURCE, outcome))
        for datatype, number in sorted(self._refused.items()):
            reason = REASONS.get(datatype, _UNREAD)
            yield Sample(catalogue.TRACE_TENSORS_REFUSED, number, (datatype, reason))
        yield from self._intake.samples()

    def _publish(self, inference: TracedInference) -> Outcome:
        whose = inference.identity
        if whose.request_id.startswith(REQUEST_ID_PREFIX):
            return "own"
        refused = self._intake.admit(whose.model, "request")
        if refused is not None:
            return refused
        try:
            mirrored = Mirrored(
                SOURCE,
                whose.model,
                whose.version,
                whose.request_id,
                inputs=arrays(inference.tensors.inputs),
                outputs=arrays(inference.tensors.outputs),
            )
        except MirrorBodyError:
            return "malformed"
        self._intake.hand_on(mirrored)
        return "accepted"
