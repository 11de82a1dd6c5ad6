"""A client that sends far too much: tensors of megabytes, which no model here takes.

Bounded: one at a time, so that the server holds no more than one of them. Their shape
has a dimension too many, so that a model of any size refuses them.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.bad_requests import (
    BadRequest,
    BadRequests,
    send_forever,
    specification,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MEGABYTE: Final = 1 << 20
_CHUNK: Final = bytes(1 << 16)


class OversizedInputs(BadRequests):
    """Others' requests share the server's threads and memory with them."""

    strength: ClassVar[str | None] = "megabytes"

    kind: Literal["oversized_inputs"] = "oversized_inputs"
    megabytes: int = Field(default=32, ge=1, le=512)
    """Size of each, in units of 2**20 bytes."""
    requests_per_second: float = Field(default=2.0, gt=0.0, le=100.0)
    """How many; fewer where the server takes longer to refuse one."""


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Send zeros in the place of the model's first input."""
    tensor = specification(settings).inputs[0]
    size = settings["megabytes"] * _MEGABYTE
    wrong = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        # -1 stands for any size, so it is the number of dimensions that is wrong.
        "shape": [1] * len(tensor.shape) + [size // _width(tensor.datatype)],
        "parameters": {"binary_data_size": size},
    }
    header = json.dumps({"inputs": [wrong]}).encode()
    request = BadRequest(header, size, functools.partial(_zeros, size))
    send_forever(settings, [request], ready)


def _width(datatype: str) -> int:
    """Bytes of an element; an empty text is its length alone, of four bytes."""
    from exporter.triton.tensors import array_dtype  # noqa: PLC0415 - numpy

    return 4 if datatype == "BYTES" else int(array_dtype(datatype).itemsize)


def _zeros(size: int) -> Iterator[bytes]:
    while size > 0:
        yield _CHUNK[:size]
        size -= len(_CHUNK)
