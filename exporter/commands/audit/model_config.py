"""A model's configuration, as far as an audit asks for it, from Triton's JSON of it."""

from __future__ import annotations

import json
from typing import Any

from exporter.commands.audit.audit_evidence import ModelConfig
from exporter.errors import ProtocolError
from exporter.triton.http_path import model_path


def path_of(name: str, version: str) -> str:
    """Where Triton's HTTP service has it."""
    return f"{model_path(name, version)}/config"


def parse(body: bytes) -> ModelConfig:
    """The configuration in an answer of Triton.

    Raises:
        ProtocolError: it is none.
    """
    try:
        document: Any = json.loads(body)
        groups = list(document.get("instance_group", ()))
        batching = document.get("dynamic_batching")
        delay = int((batching or {}).get("max_queue_delay_microseconds", 0))
        return ModelConfig(
            dynamic_batching=batching is not None,
            max_queue_delay_us=delay,
            instances=sum(_instances(group) for group in groups),
            on_gpu=any(group.get("kind") == "KIND_GPU" for group in groups),
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(
            f"the answer is no model configuration: {type(error).__name__}"
        ) from None


def _instances(group: Any) -> int:
    # `count` is per GPU, where the group names any.
    return int(group.get("count", 1)) * max(1, len(group.get("gpus", ())))
