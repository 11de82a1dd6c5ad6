"""Builds every request of our own and checks its content.

What a request may contain, and why, is in docs/design/probe-contents.md.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.errors import UnsendableError
from exporter.triton.protocol_types import InferRequest
from exporter.triton.sequence_ids import draw_sequence_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.triton.protocol_types import Array, ModelSpec

    Parameter = bool | int | float | str

# Triton writes request ids unescaped into its trace files.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
# gRPC carries integers of requests as int64.
_MAX_INT64: Final = (1 << 63) - 1


def own_request(
    spec: ModelSpec,
    request_id: str,
    inputs: Mapping[str, Array],
    *,
    datatypes: Mapping[str, str] | None = None,
    version: str | None = None,
    parameters: Mapping[str, bool | int | str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> InferRequest:
    """Return a request that cannot harm the server or meet another client's state.

    `datatypes` are the model's declared ones and `version` is the spec's unless given.
    A sequence model gets a sequence of this one request, under an id of its own.

    Raises:
        UnsendableError: the request id or a parameter is not allowed.
    """
    if not _REQUEST_ID.fullmatch(request_id):
        raise UnsendableError(
            f"found request id {request_id[:80]!r}; use 1 to 128 letters, digits and _.:-"
        )
    checked = dict(parameters or {})
    if spec.sequence:
        checked |= one_request_sequence(spec)
    check_parameters(checked, string_ids=spec.sequence_id_type == "STRING")
    if datatypes is None:
        declared = {tensor.name: tensor.datatype for tensor in spec.inputs}
        datatypes = {name: declared[name] for name in inputs}
    return InferRequest(
        spec.name,
        spec.version if version is None else version,
        request_id,
        inputs,
        datatypes,
        checked,
        dict(headers or {}),
    )


def one_request_sequence(spec: ModelSpec) -> dict[str, bool | int | str]:
    """Return the parameters of a sequence that begins and ends with one request.

    Ending it at once gives its slot back and leaves no state in the model.
    """
    return {
        "sequence_id": draw_sequence_id(
            spec.sequence_id_type,
            lambda low, end: low + secrets.randbelow(end - low),
            prefix=REQUEST_ID_PREFIX,
        ),
        "sequence_start": True,
        "sequence_end": True,
    }


def check_parameters(
    parameters: Mapping[str, Parameter], *, string_ids: bool = False
) -> None:
    """Check the parameters of a request that tritonwatch sends.

    Raises:
        UnsendableError: one of them can harm the server, or is refused by it.
    """
    for name, value in parameters.items():
        if isinstance(value, int) and abs(value) > _MAX_INT64:
            raise _refused(name, "an integer of 64 bits with its sign")
    sequence_id = parameters.get("sequence_id")
    if isinstance(sequence_id, str):
        if not string_ids:
            raise _refused(
                "sequence_id",
                "an integer: the model's control CONTROL_SEQUENCE_CORRID is not "
                "TYPE_STRING, and a string would crash Triton",
            )
    elif sequence_id is not None and not _in_range(sequence_id, 1):
        raise _refused("sequence_id", "an integer from 1 to 2^63 - 1")
    for name in ("sequence_start", "sequence_end"):
        if not isinstance(parameters.get(name, False), bool):
            raise _refused(name, "true or false")
    for name in ("priority", "timeout"):
        if not _in_range(parameters.get(name, 0), 0):
            raise _refused(name, "an integer from 0 to 2^63 - 1")


def _in_range(value: Parameter, least: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return least <= value <= _MAX_INT64


def _refused(name: str, wanted: str) -> UnsendableError:
    # Not the value itself: it may come from a variable of the environment.
    return UnsendableError(f"request parameter {name!r}: use {wanted}")
