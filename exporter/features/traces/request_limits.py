"""Several limits that a request has to meet at once: goodput.

Zhong et al., DistServe (OSDI 2024): goodput is the rate of requests that meet the
objectives on the first token and on the time per token both.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from exporter.settings import Settings

if TYPE_CHECKING:
    from exporter.features.traces.traced_request import Responses


class RequestLimits(Settings):
    """Limits that a client's request has to meet all at once."""

    models: str = Field(default="*", max_length=200)
    """Shell-style pattern of the models whose requests count."""
    first_response_seconds: float | None = Field(default=None, gt=0, le=3600)
    """Longest time until the first response."""
    mean_gap_seconds: float | None = Field(default=None, gt=0, le=3600)
    """Longest mean time from one response to the next, which is the time per output
    token if each response is one token. A request with a single response meets this
    limit."""
    total_seconds: float | None = Field(default=None, gt=0, le=86_400)
    """Longest time until the last response."""

    @model_validator(mode="after")
    def _some(self) -> RequestLimits:
        limits = (
            self.first_response_seconds,
            self.mean_gap_seconds,
            self.total_seconds,
        )
        if limits == (None, None, None):
            raise ValueError(
                "found no limit; set at least one of first_response_seconds, "
                "mean_gap_seconds and total_seconds"
            )
        return self

    def matches(self, model: str) -> bool:
        """Return whether requests to `model` are judged."""
        return fnmatchcase(model, self.models)

    def met(self, total_seconds: float, responses: Responses | None) -> bool:
        """Return whether a request met all of them; one without a response does not."""
        if responses is None:
            return False
        gaps = responses.gaps
        return all(
            limit is None or seconds <= limit
            for limit, seconds in (
                (self.first_response_seconds, responses.first_seconds),
                (self.mean_gap_seconds, sum(gaps) / len(gaps) if gaps else 0.0),
                (self.total_seconds, total_seconds),
            )
        )
