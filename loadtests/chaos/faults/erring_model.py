"""A model starts to err: it answers requests with an error of its own.

Triton 2.51 books such an answer as a success, so that its failure counter stays still.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from loadtests.chaos.faults.wrapped_model import WrappedModel


class ErringModel(WrappedModel):
    """The server is live and ready, the model is ready, and its requests fail."""

    kind: Literal["erring_model"] = "erring_model"
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of the requests that fail."""

    def over_it(self) -> dict[str, Any]:
        """The error."""
        return {
            "fault": "error",
            "after_requests": self.after_requests,
            "share": self.share,
            "seed": self.seed,
        }
