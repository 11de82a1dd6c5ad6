"""What a fake server has in its repository, and how Triton describes it.

The documents follow what Triton 2.51 answers on HTTP; gRPC carries the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A model's function: inputs by name to outputs by name.

What it raises is a mistake of the test: it ends the call and is not turned into an answer.
"""


@dataclass(frozen=True, slots=True)
class FakeTensor:
    """An input or output: `shape` as in config.pbtxt, without the batch axis, -1 is any."""

    name: str
    dtype: str = "FP32"
    shape: tuple[int, ...] = (4,)


@dataclass(frozen=True, slots=True)
class Timings:
    """What one execution adds to the statistics, in nanoseconds; no time really passes."""

    queue_ns: int = 20_000
    compute_input_ns: int = 10_000
    compute_infer_ns: int = 200_000
    compute_output_ns: int = 10_000


@dataclass(frozen=True, slots=True)
class FakeModel:
    """A model and its well-behaved behaviour.

    Without `answer` the outputs are plausible values of the declared type that depend
    on the inputs alone, so that a golden sample stays golden. `max_batch_size` 0 means
    no batch axis. One with `responses` is decoupled: it is asked over a stream and sends
    so many.
    """

    name: str = "fake"
    inputs: tuple[FakeTensor, ...] = (FakeTensor("INPUT0"),)
    outputs: tuple[FakeTensor, ...] = (FakeTensor("OUTPUT0"),)
    versions: tuple[str, ...] = ("1",)
    max_batch_size: int = 8
    responses: int | None = None
    timings: Timings = field(default_factory=Timings)
    answer: Answer | None = None


HOSTILE_NAMES: Final = (
    'quote"d',
    "back\\slash",
    "line\nbreak",
    "tab\tand\rreturn",
    "模型-β-🦜",
    "{brace}",
    "label=1,other",
    "per%20cent",
    "sl/ash?query#fragment",
    " spaces ",
    "<script>alert(1)</script>",
    "x" * 10_240,
)
"""Model names that break naive label escaping, URLs, logs and pages."""


def many(count: int, *, prefix: str = "model_") -> tuple[FakeModel, ...]:
    """`count` small models with names in lexical order."""
    width = len(str(max(count - 1, 0)))
    return tuple(FakeModel(f"{prefix}{number:0{width}}") for number in range(count))


def wire_shape(model: FakeModel, tensor: FakeTensor) -> tuple[int, ...]:
    """The shape in metadata: a batch axis of -1 in front where the model has one."""
    return (-1, *tensor.shape) if model.max_batch_size > 0 else tensor.shape


def metadata_document(model: FakeModel) -> dict[str, Any]:
    """The answer to ``GET v2/models/M``."""
    return {
        "name": model.name,
        "versions": list(model.versions),
        "platform": "python",
        "inputs": [_tensor_metadata(model, tensor) for tensor in model.inputs],
        "outputs": [_tensor_metadata(model, tensor) for tensor in model.outputs],
    }


def _tensor_metadata(model: FakeModel, tensor: FakeTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "datatype": tensor.dtype,
        "shape": list(wire_shape(model, tensor)),
    }


def config_document(model: FakeModel) -> dict[str, Any]:
    """The answer to ``GET v2/models/M/config``: the members a client may rely on."""
    document: dict[str, Any] = {
        "name": model.name,
        "platform": "",
        "backend": "python",
        "runtime": "",
        "version_policy": {"latest": {"num_versions": len(model.versions)}},
        "max_batch_size": model.max_batch_size,
        "input": [_input_config(tensor) for tensor in model.inputs],
        "output": [_output_config(tensor) for tensor in model.outputs],
        "instance_group": [_instance_group(model)],
        "default_model_filename": "model.py",
        "parameters": {},
    }
    if model.max_batch_size > 0:
        document["dynamic_batching"] = {
            "preferred_batch_size": [model.max_batch_size],
            "max_queue_delay_microseconds": 0,
        }
    if model.responses is not None:
        document["model_transaction_policy"] = {"decoupled": True}
    return document


def _config_dtype(dtype: str) -> str:
    return "TYPE_STRING" if dtype == "BYTES" else f"TYPE_{dtype}"


def _input_config(tensor: FakeTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "data_type": _config_dtype(tensor.dtype),
        "format": "FORMAT_NONE",
        "dims": list(tensor.shape),
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": False,
    }


def _output_config(tensor: FakeTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "data_type": _config_dtype(tensor.dtype),
        "dims": list(tensor.shape),
        "label_filename": "",
        "is_shape_tensor": False,
    }


def _instance_group(model: FakeModel) -> dict[str, Any]:
    return {"name": f"{model.name}_0", "kind": "KIND_CPU", "count": 1, "gpus": []}
