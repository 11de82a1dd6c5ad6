"""The server as a whole."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

UP: Final = MetricSpec(
    "triton_up",
    "1 if the server answers gRPC liveness requests, 0 if it does not. Of an"
    " OpenAI-compatible server: GET /health, with any status but 502 and 504.",
)
READY: Final = MetricSpec(
    "triton_ready",
    "1 if the server reports that it is ready, 0 if it does not or gives no answer."
    " It does not show that models answer: see triton_model_serving. Of an"
    " OpenAI-compatible server: GET /health, or without it GET /v1/models, answers 200.",
)
SERVER_INFO: Final = MetricSpec(
    "triton_server_info", "The server's own metadata, always 1.", ("server", "version")
)
SERVER_RESIDENT: Final = MetricSpec(
    "triton_process_resident_memory_bytes",
    "Resident memory of the server's processes; shared pages count in each."
    " `server` is tritonserver, `backend` the Python backend processes of `model`,"
    " `other` the remaining child processes. Absent unless the target is a loopback"
    " address, the processes are visible (same PID namespace, same user or root),"
    " and exactly one tritonserver listens on its port.",
    ("process", "model"),
)
MODEL_READY: Final = MetricSpec(
    "triton_model_ready",
    "1 if the repository index lists the model version as ready and the model"
    " version confirms it, else 0, also if it gives no answer. Before Triton 2.65"
    " (26.01) it stays 1 when the model's backend process is dead.",
    _MODEL,
)
MODELS_DENYING: Final = MetricSpec(
    "triton_models_denying_readiness",
    "Number of model versions that the repository index lists as ready and that"
    " report that they are not, for example after a backend process died (from"
    " Triton 2.65 on).",
)
READINESS_TIMEOUTS: Final = MetricSpec(
    "triton_model_readiness_timeouts_total",
    "Readiness requests of the model version without an answer in time, for example"
    " because its is_ready() hangs (from Triton 2.67 on). The version is then asked"
    " less often, at least every ten minutes, because other calls wait behind the"
    " request.",
    _MODEL,
)
MODEL_SERVING: Final = MetricSpec(
    "triton_model_serving",
    "1 if a tensor goes through the model version over every probed protocol, 0 if"
    " it does not over one of them. Absent until it was probed.",
    _MODEL,
)
MODEL_LOADS: Final = MetricSpec(
    "triton_model_loads_total",
    "Loads of the model version since this process started: it became ready, or its"
    " statistics started over or its signature changed while it stayed ready. Of a"
    " server without statistics also: it could not be reached.",
    _MODEL,
)
MODELS_UNREADABLE: Final = MetricSpec(
    "triton_models_unreadable",
    "Number of ready model versions whose metadata or configuration, or that of a model they reach, could not be read.",
)
