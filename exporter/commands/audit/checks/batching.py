"""Checks of dynamic batching: batch sizes, and queueing without a benefit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import Evidence, ModelConfig, Traffic
    from exporter.commands.audit.finding import Finding
    from exporter.triton.model import ModelSpec

_WORTH_SECONDS: Final = 0.001
_ALWAYS_ONE: Final = 1.05
_FULL: Final = 0.9


def _judged(
    evidence: Evidence,
) -> Iterator[tuple[ModelKey, ModelSpec, Traffic, float, ModelConfig | None]]:
    """Yield key, signature, traffic, mean batch and configuration of each model."""
    for key, spec in evidence.inventory.models.items():
        traffic = evidence.traffic(key)
        if (
            traffic is not None
            and traffic.statistics.execution_count
            and not spec.steps
        ):
            statistics = traffic.statistics
            mean = statistics.inference_count / statistics.execution_count
            yield key, spec, traffic, mean, evidence.configs.get(key)


def sizes(evidence: Evidence) -> Iterator[Finding]:
    """Mean batch size against the most the model takes."""
    for key, spec, traffic, mean, config in _judged(evidence):
        if spec.max_batch_size <= 1:
            continue
        batching = None
        if config is not None:
            batching = "on" if config.dynamic_batching else "off"
        inferences = max(1, traffic.statistics.inference_count)
        each = traffic.statistics.execution_count / inferences
        yield found(
            "batch-size",
            ("mean batch", mean, "inferences", "statistics"),
            ("max_batch_size", spec.max_batch_size, "", "model config"),
            ("dynamic batching", batching, "", "model config"),
            ("executions", each, "per inference", "statistics"),
            key=key,
            batch=mean,
            most=spec.max_batch_size,
        )


def waiting(evidence: Evidence) -> Iterator[Finding]:
    """Requests wait longer than they are worked on."""
    for key, spec, traffic, mean, config in _judged(evidence):
        queue, compute = traffic.mean_seconds("queue"), traffic.compute_seconds
        if queue <= compute or queue < _WORTH_SECONDS:
            continue
        yield found(
            "queue-exceeds-compute",
            ("queue", queue * 1e3, "ms a request", "statistics"),
            ("compute", compute * 1e3, "ms a request", "statistics"),
            ("instances", config.instances if config else None, "", "model config"),
            ("mean batch", mean, "inferences", "statistics"),
            ("read from", traffic.source),
            key=key,
            advice=_less_waiting(spec, config, queue, mean),
            queue=queue * 1e3,
            compute=compute * 1e3,
        )


def _less_waiting(
    spec: ModelSpec, config: ModelConfig | None, queue: float, batch: float
) -> str | None:
    """Return the advice; None for the usual one."""
    if config is not None and queue <= 1.5e-6 * config.max_queue_delay_us:
        return (
            "Lower max_queue_delay_microseconds: the wait is the batcher's own delay, "
            "not a lack of instances."
        )
    if spec.max_batch_size > 1 and config is not None and not config.dynamic_batching:
        return "Turn on dynamic_batching, so that what waits is executed together."
    if spec.max_batch_size > 1 and batch >= _FULL * spec.max_batch_size:
        return "Batches are full: raise max_batch_size, or add instances or replicas."
    return None


def off(evidence: Evidence) -> Iterator[Finding]:
    """The model takes batches, and none are made."""
    for key, spec, _, mean, config in _judged(evidence):
        if spec.max_batch_size <= 1 or mean >= _ALWAYS_ONE or spec.sequence:
            continue
        if config is not None and not config.dynamic_batching:
            yield found(
                "batching-off",
                ("mean batch", mean, "inferences", "statistics"),
                ("dynamic batching", "off", "", "model config"),
                key=key,
                most=spec.max_batch_size,
            )


def idle_delay(evidence: Evidence) -> Iterator[Finding]:
    """A delay is paid for batches that never come about."""
    for key, _, traffic, mean, config in _judged(evidence):
        if config is None or config.max_queue_delay_us <= 0 or mean >= _ALWAYS_ONE:
            continue
        delay, queue = config.max_queue_delay_us / 1e6, traffic.mean_seconds("queue")
        felt = delay >= _WORTH_SECONDS and queue > delay / 2
        yield found(
            "delay-without-batches",
            ("max_queue_delay", config.max_queue_delay_us, "µs", "config"),
            ("mean batch", mean, "inferences", "statistics"),
            ("queue", queue * 1e6, "µs a request"),
            key=key,
            severity="warning" if felt else None,
            delay=config.max_queue_delay_us,
        )


CHECKS: Final = (waiting, idle_delay, off, sizes)
