"""A server and its models as data, from either protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server's own metadata."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()

    @property
    def is_triton(self) -> bool:
        """Return whether it is Triton; --id may change its name."""
        return self.name == "triton" or "schedule_policy" in self.extensions

    @property
    def product(self) -> str:
        """Return "Triton", or the name that another server gives itself."""
        return "Triton" if self.is_triton else self.name

    @property
    def numbers(self) -> tuple[int, int, int] | None:
        """Triton's version as numbers; None where it is none, or of another server."""
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", self.version)
        if found is None or not self.is_triton:
            return None
        major, minor, patch = map(int, found.groups())
        return major, minor, patch


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the repository index; `state` is Triton's word, "" when unloaded."""

    name: str
    version: str
    state: str
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Return the name and version, which identify a model version."""
        return self.name, self.version

    @property
    def ready(self) -> bool:
        """Return whether the server calls this version ready."""
        # MLServer tells "State.READY" over gRPC.
        return self.state.removeprefix("State.") == "READY"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output as the model declares it; -1 is a dimension left open.

    `shape` includes the batch dimension, as Triton's metadata does.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Signature and the settings of a model version that a client must know."""

    name: str
    version: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch_size: int = 0
    decoupled: bool = False
    sequence: bool = False
    """True if requests need a sequence id; for an ensemble, if a step does."""
    sequence_id_type: str = "UINT64"
    """Datatype of the sequence ids: an integer type, or "STRING"."""
    sequence_idle_seconds: float = 0.0
    """Time for which a sequence without requests keeps its slot; 0 for an ensemble."""
    response_cache: bool = False
    backend: str = ""
    """Name of the backend, like "python"; "" for an ensemble."""
    dynamic_batching: bool = False
    max_queue_delay_us: int = 0
    """Longest time for which the dynamic batcher keeps a request back for others."""
    instances: int = 0
    """Instances on all devices; 0 of an ensemble, and where it is unknown."""
    gpus: tuple[int, ...] | None = None
    """CUDA numbers of the GPUs that its instances are placed on; none if all are on the
    CPU, None if it is unknown or the backend decides."""
    steps: tuple[tuple[str, str], ...] = ()
    """(model, version) of an ensemble's steps, one entry a step; version "" is latest."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the name and version, which identify a model version."""
        return self.name, self.version

    @property
    def most_rows(self) -> int:
        """Return the maximum number of rows of one request."""
        return 1 if self.sequence else max(self.max_batch_size, 1)


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One inference to ask for. Arrays carry Triton's dtype in `datatypes`."""

    model: str
    version: str
    request_id: str
    inputs: Mapping[str, Array]
    datatypes: Mapping[str, str]
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """One output tensor as it arrived: `data` is the raw little-endian content."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens as answers report them; None where they do not."""

    input: int | None = None
    output: int | None = None


@dataclass(frozen=True, slots=True)
class InferReply:
    """The answer and how long the call took on the wire.

    `duration_seconds` spans from handing the request to the transport to having the
    last byte of the answer; encoding and checking tensors is outside of it. A streamed
    answer has no `outputs`: those of each response are in `streamed`.
    """

    outputs: tuple[OutputTensor, ...]
    duration_seconds: float
    responses: int = 1
    tokens: Tokens | None = None
    """Of all responses to a decoupled model's request."""
    first_response_seconds: float | None = None
    """Time to a decoupled model's first response with outputs; None without one."""
    gap_seconds: tuple[float, ...] = ()
    """Times from each of its responses to the next, the first of them."""
    streamed: tuple[tuple[OutputTensor, ...], ...] = ()
    """Outputs of each response of a stream in order, as many of the first as are kept."""

    longest_gap: tuple[float, int] = (0.0, 0)
    """Seconds from a response to the next at most, and the number of that, from 1 on."""

    @property
    def is_cut(self) -> bool:
        """Return whether the outputs of some responses of a stream were not kept."""
        is_stream = self.first_response_seconds is not None
        return is_stream and len(self.streamed) < self.responses


@dataclass(frozen=True, slots=True)
class Duration:
    """Triton's StatisticDuration: how often, and nanoseconds in all."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Executions of one batch size; `compute_infer.count` is their number."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Triton's cumulative statistics of one ready model version."""

    name: str
    version: str
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    cache_hit: Duration = Duration()
    cache_miss: Duration = Duration()
    batches: tuple[BatchStatistics, ...] = ()
    memory_bytes: int = 0
    """Triton's estimate at load, all kinds of memory together; 0 where it has none."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the name and version, which identify a model version."""
        return self.name, self.version
