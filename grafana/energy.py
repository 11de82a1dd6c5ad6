"""Energy and cost: what an inference takes, and whether the books balance."""

from __future__ import annotations

from typing import Any

from grafana.frame import framed
from grafana.panels import (
    Query,
    good_above,
    good_below,
    latest,
    number,
    rate,
    series,
    weighted,
)
from grafana.tables import rows


def build() -> Any:
    """The dashboard."""
    return framed(
        "energy",
        "Energy and cost",
        "Joules, watts, cost and carbon by model. The label `source` shows the "
        "origin of each figure; `model` is a model of the machine, not a measurement.",
        ("Now", _now()),
        ("By model", _models()),
        ("Energy balance", _balance()),
        ("GPUs", _boards()),
    )


def _now() -> list[Any]:
    return [
        number(
            "Measured power",
            "Total power of all measured devices: models, idle and unattributed.",
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
                " + (sum(rate(triton_unattributed_energy_joules_total<s>"
                "[$__rate_interval])) or vector(0)))"
            ),
        ),
    ]


def _models() -> list[Any]:
    return [
        series(
            "Energy of an inference",
            "All joules over all inferences of the replicas that measure them. Active: energy"
            " of running it. Full: including its share of idle power.",
            "joule",
            weighted(
                "sum without (source) (triton_inference_energy_joules<v>)",
                "triton_inferences_total<v>",
                "model, boundary, basis",
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
            "Over the replicas, each weighted by its inferences. Cost is based on the "
            "configured prices.",
            "none",
            *(_per_watt(boundary) for boundary in ("gpu", "host")),
            weighted(
                "triton_model_cost_per_thousand_inferences<v>",
                "triton_inferences_total<v>",
                "model, version, basis",
                legend="cost of 1,000",
            ),
        ),
        series(
            "Carbon by model",
            "Grams of CO2 equivalent per second, from the carbon intensity of the "
            "grid and the PUE.",
            "massg",
            rate("triton_model_carbon_grams_total<v>", "model"),
        ),
        series(
            "FLOPS utilisation",
            "Operations of the model's inferences divided by the GPU's peak in the "
            "busy time. The operations per inference are configured.",
            "percentunit",
            Query("triton_model_flops_utilization_ratio<v>", "{{instance}} {{model}}"),
        ),
        series(
            "Error of a model's share",
            "Half the width of the 95 % interval divided by the share. Absent while "
            "it is unknown, or if the model always runs with another one.",
            "percentunit",
            latest(
                "max", "triton_model_energy_share_error_ratio<v>", "model, boundary"
            ),
        ),
    ]


def _per_watt(boundary: str) -> Query:
    """Inferences over joules of one boundary, which is one over the joules of each."""
    joules = weighted(
        "sum without (source) ("
        f'triton_inference_energy_joules<v,boundary="{boundary}">)',
        "triton_inferences_total<v>",
        "model, version, basis",
    )
    return Query(f"1 / ({joules.expr})", f"inferences/s per watt, {boundary}")


def _balance() -> list[Any]:
    return [
        series(
            "Where the power goes",
            "Models + idle + unattributed always equals the measured power.",
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
            "As defined by MLPerf Power: gpu, host, and node including the PUE.",
            "watt",
            rate("triton_boundary_energy_joules_total<s>", "boundary"),
        ),
        series(
            "Sensor faults",
            "Current fault of a sensor, for example lost, frozen or driver_gone.",
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
            "Temperature of the GPU core. Clocks are throttled near its limit.",
            "celsius",
            Query("triton_gpu_temperature_celsius<s>", "{{instance}} {{gpu}}"),
            span=8,
            steps=good_below(80, 90),
        ),
        series(
            "GPU throttling",
            "Share of time in which clocks were throttled, by reason. An idle board is not shown.",
            "percentunit",
            rate(
                'triton_gpu_throttle_seconds_total<s,reason!="low_utilization">',
                "instance, gpu, reason",
            ),
            span=8,
            alerts=["TritonGpuThrottling"],
        ),
        rows(
            "Driver errors (XID)",
            "Seconds since the driver last reported each critical error. Some end "
            "every CUDA context on the board while Triton still reports ready.",
            "s",
            Query(
                "time() - max by (instance, gpu, name, xid)"
                " (triton_gpu_xid_last_timestamp_seconds<s>)",
                "seconds ago",
            ),
            alerts=["TritonGpuXidError"],
        ),
    ]
