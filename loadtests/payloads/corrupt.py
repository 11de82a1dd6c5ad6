"""Invalid bodies, which a server has to refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from exporter.triton.kserve import service_pb2

if TYPE_CHECKING:
    import numpy as np

    from loadtests.mix import Body

pb: Final[Any] = service_pb2
_OTHER: Final = {"FP32": "INT64"}


def corrupted(body: Body, rng: np.random.Generator) -> Body:
    """Return the body with one defect: content cut short, a tensor unknown, a dtype wrong.

    NaN and values out of range are no defects: a server accepts them.
    """
    if body.header_bytes:
        return _http(body, int(rng.integers(3)))
    return _grpc(body, int(rng.integers(3)))


def _grpc(body: Body, way: int) -> Body:
    message = pb.ModelInferRequest.FromString(body.data)
    tensor = message.inputs[0]
    if way == 0 and message.raw_input_contents:
        message.raw_input_contents[0] = message.raw_input_contents[0][:-1]
    elif way == 1:
        tensor.name += "_unknown"
    else:
        tensor.datatype = _other(tensor.datatype)
    return replace(body, data=bytes(message.SerializeToString()), expected={})


def _http(body: Body, way: int) -> Body:
    header, content = body.data[: body.header_bytes], body.data[body.header_bytes :]
    if way == 0 and content:
        content = content[:-1]
    elif way == 1:
        header = header.replace(b'"name":"', b'"name":"unknown_', 1)
    else:
        start = header.index(b'"datatype":"') + len(b'"datatype":"')
        end = header.index(b'"', start)
        wrong = _other(header[start:end].decode("ascii")).encode("ascii")
        header = header[:start] + wrong + header[end:]
    return replace(body, data=header + content, header_bytes=len(header), expected={})


def _other(datatype: str) -> str:
    return _OTHER.get(datatype, "FP32")
