"""Right answers where no file has them: what the model answers before anything is broken.

Without one, a model that begins to lie looks right: its answers have the right shape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import ProtocolError
from exporter.grpc_core import grpc
from exporter.triton.kserve import service_pb2
from exporter.triton.tensors import decode
from loadtests.engine.answers import message_outputs
from loadtests.mix import Mix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.triton.model import Array
    from loadtests.mix import Body, Entry
    from loadtests.target import Target

pb: Final[Any] = service_pb2
_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
_MAX_BYTES: Final = 64 << 20
TOLERANCE: Final = 1e-5


def with_right_answers(target: Target, mix: Mix, timeout_seconds: float) -> Mix:
    """The mix with the answers that the server gives now, twice the same, as right ones.

    Bodies that have one keep it; so do all over HTTP, of streams and of sequences. Where
    two answers differ, or none comes, nothing is expected.
    """
    if target.protocol != "grpc" or target.ca_file is not None:
        return mix
    options = [("grpc.max_receive_message_length", _MAX_BYTES)]
    with grpc.insecure_channel(target.address, options=options) as channel:
        ask = channel.unary_unary(_INFER)

        def answer(body: Body) -> Mapping[str, Array]:
            metadata = tuple((n.lower(), v) for n, v in target.headers.items())
            said = ask(body.data, timeout=timeout_seconds, metadata=metadata)
            outputs = message_outputs(pb.ModelInferResponse.FromString(said))
            return {output.name: decode(output) for output in outputs}

        return Mix(tuple(_entry(entry, answer) for entry in mix.entries))


def _entry(entry: Entry, answer: Any) -> Entry:
    if entry.style != "unary" or entry.refused or any(b.expected for b in entry.bodies):
        return entry
    bodies: list[Body] = []
    for body in entry.bodies:
        try:
            first, second = answer(body), answer(body)
        except (grpc.RpcError, ProtocolError, ValueError):
            return entry
        if not _alike(first, second):
            return entry
        bodies.append(replace(body, expected=first))
    return replace(
        entry, bodies=tuple(bodies), tolerance=max(entry.tolerance, TOLERANCE)
    )


def _alike(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    return first.keys() == second.keys() and all(
        value.shape == second[name].shape
        and value.dtype == second[name].dtype
        and value.tobytes() == second[name].tobytes()
        for name, value in first.items()
    )
