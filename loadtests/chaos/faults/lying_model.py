"""A model starts to lie: status, shape and dtype are right, and the values are not."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from loadtests.chaos.faults.wrapped_model import WrappedModel


class LyingModel(WrappedModel):
    """Nothing of the server's own tells it: only whoever knows the right answer can."""

    kind: Literal["lying_model"] = "lying_model"
    lie: Literal[
        "zeros", "nan", "shifted_class", "stale", "int8_overflow", "int8_scale"
    ] = Field(default="shifted_class")
    """What is answered; deploy/faults/README.md describes each."""
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the rows that are struck."""

    def over_it(self) -> dict[str, Any]:
        """The lie."""
        return {
            "fault": self.lie,
            "after_requests": self.after_requests,
            "share": self.share,
            "seed": self.seed,
        }
