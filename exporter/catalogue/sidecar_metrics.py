"""Metrics of this process."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

BUILD_INFO: Final = MetricSpec(
    "tritonwatch_build_info",
    "Version of this program and its Python, always 1.",
    ("version", "python_version"),
)
RELOAD_SUCCESS: Final = MetricSpec(
    "tritonwatch_config_last_reload_successful",
    "1 if the configuration was read without error the last time it was asked for.",
)
RELOAD_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_config_last_reload_success_timestamp_seconds",
    "When the running configuration was read.",
)
COLLECTOR_DURATION: Final = MetricSpec(
    "tritonwatch_collector_duration_seconds",
    "Time the latest run of the collector or probe took.",
    ("collector",),
)
COLLECTOR_SUCCESS: Final = MetricSpec(
    "tritonwatch_collector_success",
    "1 if the latest run did its work, 0 if it failed or ran out of time. A probe that"
    " found its model broken did its work.",
    ("collector",),
)
COLLECTOR_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_collector_last_success_timestamp_seconds",
    "When the collector or probe last did its work.",
    ("collector",),
)
SERIES_DROPPED: Final = MetricSpec(
    "tritonwatch_series_dropped_total",
    "Series over the collector's budget that were not exposed, summed over its runs.",
    ("collector",),
)
OTLP_EXPORTS: Final = MetricSpec(
    "tritonwatch_otlp_exports_total",
    "Pushes to the OpenTelemetry collector by what was pushed (metrics, traces) and"
    " outcome (ok, failed).",
    ("kind", "outcome"),
)
OTLP_CONSECUTIVE_FAILURES: Final = MetricSpec(
    "tritonwatch_otlp_consecutive_failures",
    "Latest pushes to the OpenTelemetry collector that failed in a row, by what was"
    " pushed (metrics, traces); 0 from the first that is taken.",
    ("kind",),
)
PROCESS_CPU: Final = MetricSpec(
    "process_cpu_seconds_total", "User and system CPU time of this process."
)
PROCESS_RESIDENT: Final = MetricSpec(
    "process_resident_memory_bytes", "Resident memory of this process."
)
PROCESS_START: Final = MetricSpec(
    "process_start_time_seconds", "Start of this process, seconds since the epoch."
)
PROCESS_FDS: Final = MetricSpec(
    "process_open_fds", "Open file descriptors of this process."
)
PROCESS_MAX_FDS: Final = MetricSpec(
    "process_max_fds", "Most file descriptors this process may open."
)
