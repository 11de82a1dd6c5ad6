"""Tokens of our own requests, which backends count among production's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.triton.protocol_types import InferReply


@dataclass(frozen=True, slots=True)
class OwnTokens:
    """Tokens of own requests in one direction; those of `unknown` requests are not known."""

    known: int = 0
    unknown: int = 0
    answered: int = 0
    """Requests of `unknown` that were answered."""
    responses: int = 0
    """Responses to these in all."""

    def __add__(self, other: OwnTokens) -> OwnTokens:
        return OwnTokens(
            self.known + other.known,
            self.unknown + other.unknown,
            self.answered + other.answered,
            self.responses + other.responses,
        )

    def plus_unknown(self, requests: int) -> OwnTokens:
        """Return the sum with requests of whose tokens and answers nothing is known."""
        return replace(self, unknown=self.unknown + requests)

    def plus(self, tokens: int | None, reply: InferReply | None) -> OwnTokens:
        """Return the sum with one request; `tokens` None are not known."""
        if tokens is not None:
            return replace(self, known=self.known + tokens)
        return OwnTokens(
            self.known,
            self.unknown + 1,
            self.answered + (reply is not None),
            self.responses + (0 if reply is None else reply.responses),
        )
