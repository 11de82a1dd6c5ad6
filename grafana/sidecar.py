"""Sidecar health: whether what the others show can be trusted."""

from __future__ import annotations

from typing import Any, Final

from grafana.frame import framed
from grafana.panels import (
    Query,
    good_above,
    good_below,
    latest,
    number,
    only_above_zero,
    quotient,
    rate,
    series,
)
from grafana.tables import rows

# Every program has these metrics; of all jobs, only the sidecars are meant.
_OURS: Final = "and on (job, instance) tritonwatch_build_info<s>"


def build() -> Any:
    """The dashboard."""
    return framed(
        "sidecar",
        "Sidecar health",
        "State of tritonwatch itself: collectors, dropped data, resource usage, and "
        "agreement of its counts with Triton's own.",
        ("Collectors", _collectors()),
        ("Accuracy of the counts", _truth()),
        ("Received", _intake()),
        ("Sent", _pushes()),
        ("Resources used", _cost()),
    )


def _collectors() -> list[Any]:
    return [
        rows(
            "Collectors and probes",
            "Whether the latest run succeeded. A probe that found its model broken succeeded.",
            "none",
            latest(
                "min",
                "tritonwatch_collector_success<s>",
                "instance, collector",
                legend="success",
            ),
            Query(
                "max by (instance, collector) (time() -"
                " tritonwatch_collector_last_success_timestamp_seconds<s>)",
                "seconds since success",
            ),
            span=12,
            yes_no=("success",),
            alerts=[
                "TritonwatchCollectorStale",
                "TritonwatchClockOff",
                "TritonModelsUnlisted",
            ],
        ),
        series(
            "Run time of collectors",
            "Of the latest run of each collector and probe.",
            "s",
            latest(
                "max",
                "tritonwatch_collector_duration_seconds<s>",
                "instance, collector",
            ),
        ),
        number(
            "Probes starved",
            "Share of probes without a verdict because the sidecar could not run in "
            "time.",
            "percentunit",
            quotient('triton_probe_total<s,outcome="late">', "triton_probe_total<s>"),
            span=6,
            steps=good_below(0.1, 0.5),
            alerts=["TritonwatchStarved"],
        ),
        number(
            "Series dropped",
            "Series over a collector's budget in the last hour.",
            "short",
            Query("sum(increase(tritonwatch_series_dropped_total<s>[1h]))"),
            span=6,
            steps=good_below(1, 1000),
            alerts=["TritonwatchSeriesDropped"],
        ),
        number(
            "Configuration",
            "Whether the last reload succeeded. If not, the previous configuration "
            "stays in force.",
            "none",
            Query("min(tritonwatch_config_last_reload_successful<s>)"),
            span=6,
            steps=good_above(1, 1),
            words={"1": "in force", "0": "reload failed"},
            alerts=["TritonwatchReloadFailed"],
        ),
        number(
            "Versions",
            "Running versions of tritonwatch.",
            "short",
            Query("count(count by (version) (tritonwatch_build_info<s>))"),
            span=6,
            steps=good_below(2, 3),
        ),
        number(
            "Sidecars scraped",
            "Share of the selected sidecars of the last day that Prometheus can scrape. "
            "Nothing is known about the others, not even whether their server is down.",
            "percentunit",
            Query(
                "avg(up<s> and on (job, instance)"
                " present_over_time(tritonwatch_build_info<s>[1d]))"
            ),
            span=8,
            steps=good_above(0.5, 1),
            alerts=["TritonwatchDown"],
        ),
        number(
            "Addresses with several servers",
            "Addresses with more than one server behind them: their production "
            "figures are wrong.",
            "short",
            Query("sum(triton_several_servers<s>)"),
            span=8,
            steps=good_below(1, 1),
            alerts=["TritonSeveralServers"],
        ),
        number(
            "Models not watched",
            "Ready model versions that are not probed because their metadata or "
            "configuration cannot be read.",
            "short",
            Query("sum(triton_models_unreadable<s>)"),
            span=8,
            steps=good_below(1, 1),
            alerts=["TritonModelsUnreadable"],
        ),
    ]


def _truth() -> list[Any]:
    return [
        series(
            "Disagreement with Triton's metrics",
            "Relative difference between the statistics API and Triton's own metrics "
            "page. If it stays above 0, one of them is wrong.",
            "percentunit",
            latest(
                "max",
                "triton_statistics_disagreement_ratio<v>",
                "instance, model, counter",
            ),
            steps=good_below(0.01, 0.05),
            alerts=["TritonStatisticsDisagree"],
        ),
        series(
            "Unattributed or miscounted requests",
            "Requests per second that may be production's or our own and are not in "
            "production's figures, and failures of our own requests that Triton "
            "counted as successes; it then miscounts production's failures, too.",
            "reqps",
            rate(
                "triton_unattributed_requests_total<v>",
                "model",
                legend="{{model}} not attributed",
            ),
            rate(
                "triton_failures_booked_as_success_total<v>",
                "model",
                legend="{{model}} failures booked as success",
            ),
            alerts=["TritonFailuresBookedAsSuccess"],
        ),
        series(
            "Our own requests",
            "Requests per second that tritonwatch sends. They are excluded from all "
            "production figures.",
            "reqps",
            rate("triton_own_requests_total<v>", "model"),
        ),
    ]


def _intake() -> list[Any]:
    return [
        series(
            "Trace records",
            "Records a second by source and outcome, those that occur; only `request` and `child`"
            " count as production.",
            "cps",
            only_above_zero(
                rate("tritonwatch_trace_records_total<s>", "source, outcome")
            ),
            alerts=["TritonwatchTracesUnread"],
        ),
        series(
            "Taps",
            "Bodies sent to the taps, by outcome. Overloaded and malformed ones are "
            "lost.",
            "cps",
            rate("tritonwatch_tap_requests_total<s>", "source, outcome"),
            alerts=["TritonwatchTapOverload"],
        ),
    ]


def _pushes() -> list[Any]:
    return [
        series(
            "Pushes",
            "Pushes to the OpenTelemetry collector, by kind and outcome.",
            "cps",
            rate("tritonwatch_otlp_exports_total<s>", "kind, outcome"),
        ),
        series(
            "Pushes that failed in a row",
            "The data of failed pushes are lost. 0 after the first successful push.",
            "short",
            latest("max", "tritonwatch_otlp_consecutive_failures<s>", "instance, kind"),
            steps=good_below(1, 2),
            alerts=["TritonwatchPushesFailing"],
        ),
    ]


def _cost() -> list[Any]:
    return [
        series(
            "CPU cores",
            "CPU time that the sidecar uses, in cores.",
            "short",
            Query(
                f"rate(process_cpu_seconds_total<s>[$__rate_interval]) {_OURS}",
                "{{instance}}",
            ),
        ),
        series(
            "Memory",
            "Resident memory of the sidecar.",
            "bytes",
            Query(f"process_resident_memory_bytes<s> {_OURS}", "{{instance}}"),
        ),
    ]
