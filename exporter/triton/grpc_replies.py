"""Triton's gRPC messages to our records."""

from __future__ import annotations

import re
from typing import Any

from exporter import errors
from exporter.triton.protocol_types import (
    BatchStatistics,
    Duration,
    ModelStatistics,
    TensorSpec,
)


def bounded(what: str, entries: Any, most: int) -> Any:
    """Return the entries.

    Raises:
        ProtocolError: there are more than `most`.
    """
    if len(entries) > most:
        raise errors.ProtocolError(
            f"found {len(entries)} {what}; the maximum is {most}"
        )
    return entries


def tensor_spec(tensor: Any, optional: frozenset[str] | set[str]) -> TensorSpec:
    """Return a tensor of the metadata; `optional` are the names of those that are."""
    return TensorSpec(
        tensor.name, tensor.datatype, tuple(tensor.shape), tensor.name in optional
    )


def gpus_of(config: Any) -> tuple[int, ...] | None:
    """Return the CUDA numbers of the GPUs that a model's configuration names.

    None if the backend decides. TensorRT-LLM's backend places its engine by a parameter
    of its own: its instance groups have KIND_CPU.
    """
    if config.backend == "tensorrtllm":
        numbers = config.parameters["gpu_device_ids"].string_value.split(",")
        named = {int(n) for n in numbers if re.fullmatch(r" *[0-9]{1,4} *", n)}
        return tuple(sorted(named)) or None
    groups = config.instance_group
    kinds = {group.Kind.Name(group.kind) for group in groups}
    if not kinds or kinds - {"KIND_GPU", "KIND_CPU"}:
        return None
    on_gpus = [group for group in groups if group.gpus]
    if "KIND_GPU" in kinds and not on_gpus:
        return None
    return tuple(sorted({gpu for group in on_gpus for gpu in group.gpus}))


def _duration(message: Any) -> Duration:
    return Duration(message.count, message.ns)


def model_statistics(entry: Any) -> ModelStatistics:
    """Return the statistics of a model version."""
    stats = entry.inference_stats
    return ModelStatistics(
        name=entry.name,
        version=entry.version,
        inference_count=entry.inference_count,
        execution_count=entry.execution_count,
        success=_duration(stats.success),
        fail=_duration(stats.fail),
        queue=_duration(stats.queue),
        compute_input=_duration(stats.compute_input),
        compute_infer=_duration(stats.compute_infer),
        compute_output=_duration(stats.compute_output),
        cache_hit=_duration(stats.cache_hit),
        cache_miss=_duration(stats.cache_miss),
        batches=tuple(
            BatchStatistics(
                batch.batch_size,
                _duration(batch.compute_input),
                _duration(batch.compute_infer),
                _duration(batch.compute_output),
            )
            for batch in entry.batch_stats
        ),
        memory_bytes=sum(usage.byte_size for usage in entry.memory_usage),
    )
