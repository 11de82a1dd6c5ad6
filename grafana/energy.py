"""Energy and cost: what an inference takes, and whether the books balance."""

from __future__ import annotations

from typing import Any

from grafana.frame import framed
from grafana.panels import (
    Query,
    columns,
    good_above,
    good_below,
    latest,
    number,
    rate,
    series,
)
from grafana.tables import rows


def build() -> Any:
    """The dashboard."""
    return framed(
        "energy",
        "Energy and cost",
        "Joules, watts, money and carbon by model. Every figure says by its source label"
        " where it comes from; `model` is a model of the machine, not a measurement.",
        ("Now", _now()),
        ("By model", _models()),
        ("Energy balance", _balance()),
        ("GPUs", _boards()),
    )


def _now() -> list[Any]:
    return [
        number(
            "Measured power",
            "Of everything whose energy is measured: models, idle and unattributed together.",
            "watt",
            Query(
                "sum(rate(triton_model_energy_joules_total<s>[$__rate_interval]))"
                " + sum(rate(triton_idle_energy_joules_total<s>[$__rate_interval]))"
                " + (sum(rate(triton_unattributed_energy_joules_total<s>"
                "[$__rate_interval])) or vector(0))"
            ),
        ),
        number(
            "Trusted power sensors",
            "Share of power sensors whose readings are plausible; the others are left out.",
            "percentunit",
            Query("avg(triton_power_sensor_up<s>)"),
            steps=good_above(0.5, 1),
        ),
        number(
            "Energy attributed to models",
            "Share of the measured energy that production inferences caused, above idle.",
            "percentunit",
            Query(
                "sum(rate(triton_model_energy_joules_total<s>[$__rate_interval]))"
                " / (sum(rate(triton_model_energy_joules_total<s>[$__rate_interval]))"
                " + sum(rate(triton_idle_energy_joules_total<s>[$__rate_interval]))"
                " + sum(rate(triton_unattributed_energy_joules_total<s>"
                "[$__rate_interval])))"
            ),
        ),
    ]


def _models() -> list[Any]:
    return [
        series(
            "Energy of an inference",
            "Active: what running it took. Full: with its part of idle power.",
            "joule",
            latest(
                "avg", "triton_inference_energy_joules<v>", "model, boundary, basis"
            ),
            alerts=["TritonEnergyPerInferenceUp"],
        ),
        series(
            "Power by model",
            "Attributed to production inferences, above idle.",
            "watt",
            rate("triton_model_energy_joules_total<v>", "model, boundary"),
            stacked=True,
        ),
        rows(
            "Efficiency and cost",
            "Over the sliding window; cost by the prices of the configuration.",
            "none",
            *columns(
                "avg",
                "model, version, basis",
                {
                    "inferences/s per watt": "triton_model_inferences_per_second_per_watt<v>",
                    "cost of 1,000": "triton_model_cost_per_thousand_inferences<v>",
                },
            ),
        ),
        series(
            "Carbon by model",
            "Grams of CO2 equivalent a second, by the grid's intensity and the PUE.",
            "massg",
            rate("triton_model_carbon_grams_total<v>", "model"),
        ),
        series(
            "FLOPS utilisation",
            "Operations of the model's inferences over what the GPU could do in its busy"
            " time; from FLOPs an inference that the configuration gives.",
            "percentunit",
            Query("triton_model_flops_utilization_ratio<v>", "{{instance}} {{model}}"),
        ),
        series(
            "Error of a model's share",
            "Half the width of its 95 % interval over the share. None: the windows do not"
            " tell (yet), or the model always runs with another.",
            "percentunit",
            latest(
                "max", "triton_model_energy_share_error_ratio<v>", "model, boundary"
            ),
        ),
    ]


def _balance() -> list[Any]:
    return [
        series(
            "Where the power goes",
            "Models + idle + unattributed is what the sensors measure, always.",
            "watt",
            rate("triton_model_energy_joules_total<s>", legend="models"),
            rate("triton_idle_energy_joules_total<s>", legend="idle"),
            rate(
                "triton_unattributed_energy_joules_total<s>",
                "reason",
                legend="unattributed: {{reason}}",
            ),
            stacked=True,
        ),
        series(
            "Power by boundary",
            "As MLPerf Power draws them: gpu, host, and node with its PUE.",
            "watt",
            rate("triton_boundary_energy_joules_total<s>", "boundary"),
        ),
        series(
            "Sensor faults",
            "What is wrong with a sensor, while it is: lost, stuck, driver gone.",
            "short",
            latest(
                "max", "triton_power_sensor_fault<s>", "instance, source, device, fault"
            ),
            alerts=["TritonPowerSensorFault"],
        ),
    ]


def _boards() -> list[Any]:
    return [
        series(
            "GPU power",
            "Of the whole board, by its sensor.",
            "watt",
            Query("triton_gpu_power_watts<s>", "{{instance}} {{gpu}} {{name}}"),
            span=8,
        ),
        series(
            "GPU temperature",
            "Of the GPU's core; near its limit clocks are held down.",
            "celsius",
            Query("triton_gpu_temperature_celsius<s>", "{{instance}} {{gpu}}"),
            span=8,
            steps=good_below(80, 90),
        ),
        series(
            "GPU throttling",
            "Seconds a second for which clocks were held down, by reason.",
            "percentunit",
            rate("triton_gpu_throttle_seconds_total<s>", "instance, gpu, reason"),
            span=8,
            alerts=["TritonGpuThrottling"],
        ),
        rows(
            "Driver errors (XID)",
            "Seconds since the driver last reported each critical error. Some end"
            " every CUDA context on the board while Triton calls itself ready.",
            "s",
            Query(
                "time() - max by (instance, gpu, name, xid)"
                " (triton_gpu_xid_last_timestamp_seconds<s>)",
                "seconds ago",
            ),
            alerts=["TritonGpuXidError"],
        ),
    ]
