"""The server as a whole."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

UP: Final = MetricSpec(
    "triton_up", "1 while the server answers at all, 0 while it does not."
)
READY: Final = MetricSpec(
    "triton_ready",
    "1 while the server calls itself ready, 0 while it does not or gives no answer."
    " Says nothing about whether a tensor goes through: see triton_model_serving.",
)
SERVER_INFO: Final = MetricSpec(
    "triton_server_info", "The server's own metadata, always 1.", ("server", "version")
)
SERVER_RESIDENT: Final = MetricSpec(
    "triton_process_resident_memory_bytes",
    "Resident memory of the server's processes, pages that they share counted in each:"
    " `server` is tritonserver, `backend` the Python backend's processes of `model`,"
    " `other` its other descendants. Absent unless the target is a loopback address, the"
    " processes are visible (same PID namespace, same user or root), and exactly one"
    " tritonserver listens on its port.",
    ("process", "model"),
)
MODEL_READY: Final = MetricSpec(
    "triton_model_ready",
    "1 for a model version that the repository index lists as ready and that says so when"
    " asked itself, else 0, also where it gives no answer. Before Triton 2.65 (26.01) it"
    " stays 1 when the model's backend process is dead.",
    _MODEL,
)
MODELS_DENYING: Final = MetricSpec(
    "triton_models_denying_readiness",
    "Model versions that the repository index lists as ready and that are not ready when"
    " asked themselves, as when a backend process died (from Triton 2.65 on).",
)
READINESS_TIMEOUTS: Final = MetricSpec(
    "triton_model_readiness_timeouts_total",
    "Times the model version's readiness was asked and not answered in time, as when its"
    " is_ready() hangs (from Triton 2.67 on). It is then asked less often, at least every"
    " ten minutes, because other calls wait behind the question.",
    _MODEL,
)
MODEL_SERVING: Final = MetricSpec(
    "triton_model_serving",
    "1 while a tensor really goes through the model version by every probed protocol,"
    " 0 while by any it does not. Absent until it was probed.",
    _MODEL,
)
MODEL_LOADS: Final = MetricSpec(
    "triton_model_loads_total",
    "Times the model version was loaded after this process started: it became ready, or"
    " its statistics started over or its signature changed while it stayed ready.",
    _MODEL,
)
MODELS_UNREADABLE: Final = MetricSpec(
    "triton_models_unreadable",
    "Ready model versions whose metadata or configuration could not be read.",
)
