"""The requests of a run: bodies made once before it, grouped into weighted entries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.triton.protocol_types import Array, ModelSpec

Style = Literal["unary", "stream", "sequence"]
MAX_ENTRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Body:
    """One request, ready for the wire.

    For gRPC the serialised ModelInferRequest; for HTTP the JSON and then the tensors'
    binary content, `header_bytes` of it being JSON that ends in "}}": all of it, where
    tensors are JSON.
    """

    data: bytes
    header_bytes: int = 0
    rows: int = 1
    """Size of the batch dimension, where the model has one."""
    expected: Mapping[str, Array] = field(default_factory=dict)
    """The correct answer by output, where it is known."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Requests to one model version, sent in turns."""

    name: str
    spec: ModelSpec
    bodies: tuple[Body, ...]
    weight: float = 1.0
    style: Style = "unary"
    sequence_length: int = 1
    """Requests of one sequence; of a sequence model."""
    tolerance: float = 0.0
    """Largest difference of a value from `Body.expected`, relative and absolute alike."""
    refused: bool = False
    """The bodies are corrupt: the correct answer is an error of the server."""

    @property
    def version(self) -> str:
        """The requested version, "" for the server's choice."""
        return self.spec.version


@dataclass(frozen=True, slots=True)
class Mix:
    """The entries of a run, drawn by weight."""

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.entries) <= MAX_ENTRIES:
            raise PlanError(
                f"found {len(self.entries)} models; want 1 to {MAX_ENTRIES}"
            )

    @property
    def weights(self) -> Sequence[float]:
        """Weights in the order of the entries."""
        return [entry.weight for entry in self.entries]

    @property
    def sha256(self) -> str:
        """SHA-256 of every body, in order: equal for two runs that send the same bytes."""
        digest = hashlib.sha256()
        for entry in self.entries:
            for body in entry.bodies:
                digest.update(len(body.data).to_bytes(8, "little"))
                digest.update(body.data)
        return digest.hexdigest()
