"""Metrics of this process."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

BUILD_INFO: Final = MetricSpec(
    "tritonwatch_build_info",
    "Version of tritonwatch and of Python, always 1.",
    ("version", "python_version"),
)
RELOAD_SUCCESS: Final = MetricSpec(
    "tritonwatch_config_last_reload_successful",
    "1 if the configuration was read without error at the latest attempt, else 0.",
)
RELOAD_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_config_last_reload_success_timestamp_seconds",
    "Time at which the current configuration was read.",
)
COLLECTOR_DURATION: Final = MetricSpec(
    "tritonwatch_collector_duration_seconds",
    "Duration of the latest run of the collector or probe.",
    ("collector",),
)
COLLECTOR_SUCCESS: Final = MetricSpec(
    "tritonwatch_collector_success",
    "1 if the latest run succeeded, 0 if it failed or timed out. A probe that found"
    " a broken model succeeded.",
    ("collector",),
)
COLLECTOR_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_collector_last_success_timestamp_seconds",
    "Time of the latest successful run of the collector or probe; absent for a probe"
    " that has no model to probe.",
    ("collector",),
)
COLLECTOR_READ_TIMESTAMP: Final = MetricSpec(
    "tritonwatch_collector_last_read_timestamp_seconds",
    "Time of the latest run of the collector or probe that read its source, wholly or in"
    " part; absent for a probe that has no model to probe.",
    ("collector",),
)
SERIES_DROPPED: Final = MetricSpec(
    "tritonwatch_series_dropped_total",
    "Series beyond the collector's limit that were not exposed, summed over its runs"
    " (of a probe: once a minute).",
    ("collector",),
)
OTLP_EXPORTS: Final = MetricSpec(
    "tritonwatch_otlp_exports_total",
    "Pushes to the OpenTelemetry collector by kind (metrics, traces) and outcome"
    " (ok, failed).",
    ("kind", "outcome"),
)
OTLP_CONSECUTIVE_FAILURES: Final = MetricSpec(
    "tritonwatch_otlp_consecutive_failures",
    "Consecutive failed pushes to the OpenTelemetry collector by kind (metrics,"
    " traces); 0 after a successful one.",
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
    "process_max_fds", "Maximum number of open file descriptors of this process."
)
