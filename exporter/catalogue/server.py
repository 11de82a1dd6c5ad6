"""The server as a whole."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

UP: Final = MetricSpec(
    "triton_up",
    "gauge",
    "1 while the server answers at all, 0 while it does not.",
)
READY: Final = MetricSpec(
    "triton_ready",
    "gauge",
    "1 while the server calls itself ready, 0 while it does not or gives no answer."
    " Says nothing about whether a tensor goes through: see triton_model_serving.",
)
SERVER_INFO: Final = MetricSpec(
    "triton_server_info",
    "info",
    "The server's own metadata, always 1.",
    ("server", "version"),
)
MODEL_READY: Final = MetricSpec(
    "triton_model_ready",
    "gauge",
    "1 for a model version the server calls ready, 0 for one it lists as not ready.",
    _MODEL,
)
MODEL_SERVING: Final = MetricSpec(
    "triton_model_serving",
    "gauge",
    "1 while a tensor really goes through the model version by every probed protocol,"
    " 0 while by any it does not. Absent until it was probed.",
    _MODEL,
)
MODEL_LOADS: Final = MetricSpec(
    "triton_model_loads_total",
    "counter",
    "Times the model version was seen to become ready after this process started.",
    _MODEL,
)
MODELS_UNREADABLE: Final = MetricSpec(
    "triton_models_unreadable",
    "gauge",
    "Ready model versions whose metadata or configuration could not be read.",
)
