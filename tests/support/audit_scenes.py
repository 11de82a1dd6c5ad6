"""What an audit may have seen: a healthy server, and every way in which it is not."""

from __future__ import annotations

from dataclasses import replace

from exporter.access.inventory import Inventory
from exporter.access.probe_base import Target, Verdict
from exporter.commands.audit.audit_evidence import Evidence, Page
from exporter.commands.audit.model_seen import Answers
from exporter.triton.protocol_types import (
    BatchStatistics,
    Duration,
    IndexEntry,
    ModelSpec,
    ModelStatistics,
    ServerInfo,
    TensorSpec,
)

KEY = ("m", "1")
X = TensorSpec("x", "FP32", (-1, 4))
SPEC = ModelSpec(
    "m", "1", (X,), (X,), max_batch_size=8, dynamic_batching=True, instances=1
)
MS = 1_000_000
OK = Verdict("ok", 0.0011)
OFF = {"trace_level": ("OFF",), "trace_rate": ("1000",), "trace_mode": ("triton",)}
ON = {
    "trace_level": ("TIMESTAMPS",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("100",),
    "trace_mode": ("triton",),
}


def statistics(
    requests=0, *, batch=1, queue=0, copy_in=0, infer=MS, out=0, fail=0, key=KEY
):
    """Counters of so many requests of one inference; times are ns a request."""
    ran = requests // batch
    phases = [Duration(requests, requests * ns) for ns in (queue, copy_in, infer, out)]
    return ModelStatistics(
        *key,
        requests,
        ran,
        Duration(requests, sum(p.ns for p in phases)),
        Duration(fail, fail * MS),
        *phases,
        batches=(
            BatchStatistics(
                batch,
                *(Duration(ran, ran * ns) for ns in (copy_in, infer, out)),
            ),
        ),
    )


def page(at, success=100, **gauges):
    """A metrics page of the one model, with gauges of one GPU."""
    model = (("model", "m"), ("version", "1"))
    series = {
        name: {model: float(success)}
        for name in ("nv_inference_request_success", "nv_inference_count")
    }
    gpu = (("gpu_uuid", "GPU-1"),)
    return Page(at, series | {n: {gpu: float(v)} for n, v in gauges.items()})


def answers(*verdicts, protocol="grpc"):
    return Answers(Target(KEY, protocol), verdicts or (OK,))


def server(*index, spec=SPEC, ready=True, version="2.60.0", models=None):
    entries = (IndexEntry("m", "1", "READY"), *index)
    models = {KEY: spec} if models is None else models
    return Inventory(
        up=True,
        ready=ready,
        info=ServerInfo("triton", version),
        index=entries,
        models=models,
    )


MISSING = "UNIMPLEMENTED: Method not found!"


def other_server(**problems):
    """A server of the protocol without Triton's extensions."""
    inventory = replace(server(), info=ServerInfo("mlserver", "1.7.1"))
    return having(
        inventory=inventory,
        first={},
        second={},
        trace_settings={},
        problems={"statistics": MISSING, "traces": MISSING} | problems,
    )


WELL = Evidence(
    inventory=server(),
    http="ready",
    network_seconds=0.0003,
    window_seconds=6.0,
    first={KEY: statistics(100)},
    second={KEY: statistics(700)},
    first_page=page(0.0, nv_gpu_power_usage=70, nv_energy_consumption=1000),
    last_page=page(9.0, 820, nv_gpu_power_usage=80, nv_energy_consumption=1720),
    trace_settings={"": ON, "m": ON},
    answers=(answers(),),
)
"""A healthy server with one busy model."""


def having(**changes):
    return replace(WELL, **changes)


def requests(count=600, **of_each):
    """The evidence with that traffic in the window, and none before."""
    second = {KEY: statistics(count, **of_each)}
    return having(first={KEY: statistics()}, second=second)


def configured(evidence, **changes):
    """The evidence with other settings of the model."""
    return replace(evidence, inventory=server(spec=replace(SPEC, **changes)))


def tracing(**changes):
    settings = {**ON, **{name: (value,) for name, value in changes.items()}}
    return having(trace_settings={"": settings, "m": settings})


def failed(text, **of_server):
    return server(IndexEntry("n", "1", "UNAVAILABLE", text), **of_server)
