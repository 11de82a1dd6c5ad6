"""Is work batched as far as the model allows, and does it wait for no reason?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, measure, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.evidence import Evidence, ModelConfig, Traffic
    from exporter.inventory import ModelKey
    from exporter.triton.model import ModelSpec

_WORTH_SECONDS: Final = 0.001
_ALWAYS_ONE: Final = 1.05
_FULL: Final = 0.9


def _judged(
    evidence: Evidence,
) -> Iterator[tuple[ModelKey, ModelSpec, Traffic]]:
    for key, spec in evidence.inventory.models.items():
        traffic = evidence.traffic(key)
        if (
            traffic is not None
            and traffic.statistics.execution_count
            and not spec.steps
        ):
            yield key, spec, traffic


def _mean_batch(traffic: Traffic) -> float:
    return traffic.statistics.inference_count / traffic.statistics.execution_count


def sizes(evidence: Evidence) -> Iterator[Finding]:
    """Mean batch size against the most the model takes."""
    for key, spec, traffic in _judged(evidence):
        if spec.max_batch_size <= 1:
            continue
        config = evidence.configs.get(key)
        yield Finding(
            "batch-size",
            "info",
            f"{shown_key(key)} executes {_mean_batch(traffic):.2f} inferences at a time, "
            f"of {spec.max_batch_size} it could",
            evidence=(
                measure("mean batch", _mean_batch(traffic), "inferences", "statistics"),
                measure("max_batch_size", spec.max_batch_size, "", "model config"),
                measure("dynamic batching", _told(config), "", "model config"),
                measure(
                    "executions",
                    traffic.statistics.execution_count
                    / max(1, traffic.statistics.inference_count),
                    "per inference",
                    "statistics",
                ),
            ),
            model=key[0],
            version=key[1],
        )


def _told(config: ModelConfig | None) -> str | None:
    if config is None:
        return None
    return "on" if config.dynamic_batching else "off"


def waiting(evidence: Evidence) -> Iterator[Finding]:
    """Requests wait longer than they are worked on."""
    for key, spec, traffic in _judged(evidence):
        queue, compute = traffic.mean_seconds("queue"), traffic.compute_seconds
        if queue <= compute or queue < _WORTH_SECONDS:
            continue
        config = evidence.configs.get(key)
        yield Finding(
            "queue-exceeds-compute",
            "warning",
            f"{shown_key(key)}: a request waits {queue * 1e3:.3g} ms for "
            f"{compute * 1e3:.3g} ms of work",
            _less_waiting(spec, config, queue, _mean_batch(traffic)),
            (
                measure("queue", queue * 1e3, "ms a request", "statistics"),
                measure("compute", compute * 1e3, "ms a request", "statistics"),
                measure(
                    "instances",
                    config.instances if config else None,
                    "",
                    "model config",
                ),
                measure("mean batch", _mean_batch(traffic), "inferences", "statistics"),
                measure("read from", traffic.source),
            ),
            "",
            *key,
        )


def _less_waiting(
    spec: ModelSpec, config: ModelConfig | None, queue: float, batch: float
) -> str:
    if config is not None and queue <= 1.5e-6 * config.max_queue_delay_us:
        return (
            "Lower max_queue_delay_microseconds: the wait is the batcher's own delay, "
            "not a lack of instances."
        )
    if spec.max_batch_size > 1 and config is not None and not config.dynamic_batching:
        return "Turn on dynamic_batching, so that what waits is executed together."
    if spec.max_batch_size > 1 and batch >= _FULL * spec.max_batch_size:
        return "Batches are full: raise max_batch_size, or add instances or replicas."
    return (
        "Add instances (instance_group.count) while the device has room, else replicas."
    )


def off(evidence: Evidence) -> Iterator[Finding]:
    """The model takes batches, and nobody makes any."""
    for key, spec, traffic in _judged(evidence):
        config = evidence.configs.get(key)
        alone = _mean_batch(traffic) < _ALWAYS_ONE
        if spec.max_batch_size <= 1 or not alone or spec.sequence:
            continue
        if config is None or config.dynamic_batching:
            continue
        yield Finding(
            "batching-off",
            "info",
            f"{shown_key(key)} takes batches of {spec.max_batch_size}, and dynamic "
            "batching is off",
            "Turn on dynamic_batching if requests come at the same time: with the "
            "default delay of 0 a lone request pays nothing.",
            (
                measure("mean batch", _mean_batch(traffic), "inferences", "statistics"),
                measure("dynamic batching", "off", "", "model config"),
            ),
            "",
            *key,
        )


def idle_delay(evidence: Evidence) -> Iterator[Finding]:
    """A delay is paid for batches that never come about."""
    for key, _, traffic in _judged(evidence):
        config = evidence.configs.get(key)
        if config is None or config.max_queue_delay_us <= 0:
            continue
        if _mean_batch(traffic) >= _ALWAYS_ONE:
            continue
        delay = config.max_queue_delay_us / 1e6
        felt = delay >= _WORTH_SECONDS and traffic.mean_seconds("queue") > delay / 2
        yield Finding(
            "delay-without-batches",
            "warning" if felt else "info",
            f"{shown_key(key)} waits up to {config.max_queue_delay_us} µs for batches "
            "and executes one at a time",
            "Set max_queue_delay_microseconds to 0, or send requests at the same time: "
            "now each pays the delay for nothing.",
            (
                measure("max_queue_delay", config.max_queue_delay_us, "µs", "config"),
                measure("mean batch", _mean_batch(traffic), "inferences", "statistics"),
                measure("queue", traffic.mean_seconds("queue") * 1e6, "µs a request"),
            ),
            "",
            *key,
        )


CHECKS: Final = (waiting, idle_delay, off, sizes)
