"""Python models for a real Triton that tests write into a repository of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton

COUNTS: Final = """
import time

import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            given = [
                pb.get_input_tensor_by_name(request, name)
                for name in ("x", "extra")
                if name in request_names(request)
            ]
            total = sum(tensor.as_numpy().size for tensor in given)
            y = np.array([total], np.float32)
            answers.append(pb.InferenceResponse([pb.Tensor("y", y)]))
        return answers


def request_names(request):
    return [tensor.name() for tensor in request.inputs()]
"""
"""Answers `y` [1] with the number of values it was sent in `x` and `extra`."""


def config(
    *more: str,
    datatype: str = "TYPE_FP32",
    dims: str = "[1]",
    input_options: str = "",
    count: int = 1,
) -> str:
    """A model with one input `x`, one output `y`, and `more` sections."""
    return "\n".join(
        (
            'backend: "python"',
            "max_batch_size: 0",
            f'input [{{ name: "x" data_type: {datatype} dims: {dims} {input_options} }}]',
            'output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]',
            f"instance_group [{{ kind: KIND_CPU count: {count} }}]",
            *more,
        )
    )


def sequence_batching(strategy: str, id_type: str = "", *, idle: float = 60.0) -> str:
    """The section of a sequence model; without `id_type` it has no id control."""
    control = (
        '{ name: "CORRID" control [{ kind: CONTROL_SEQUENCE_CORRID'
        f" data_type: {id_type} }}] }},"
        if id_type
        else ""
    )
    return f"""
sequence_batching {{
  max_sequence_idle_microseconds: {int(idle * 1e6)}
  {strategy}
  control_input [
    {control}
    {{ name: "START" control [{{ kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }}] }}
  ]
}}"""


def ensemble_of(step: str, *more: str) -> str:
    """An ensemble whose one step is a model of `config`."""
    return "\n".join(
        (
            'platform: "ensemble"',
            'input [{ name: "x" data_type: TYPE_FP32 dims: [1] }]',
            'output [{ name: "y" data_type: TYPE_FP32 dims: [1] }]',
            f'ensemble_scheduling {{ step [{{ model_name: "{step}" model_version: -1',
            '  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }] }',
            *more,
        )
    )


def write_model(repository: Path, name: str, text: str, code: str = COUNTS) -> None:
    """Put a model into a repository; an ensemble has no code."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text, "utf-8")
    if "ensemble" not in text:
        (folder / "1" / "model.py").write_text(code, "utf-8")


def kill_stub(server: EmbeddedTriton, model: str) -> None:
    """Kill the backend's process of one model."""
    for pid in server.stub_pids():
        if f"/{model}/" in Path(f"/proc/{pid}/cmdline").read_text("utf-8"):
            os.kill(pid, signal.SIGKILL)
