"""Metrics of power, energy, its use, and its cost."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

_GPU: Final = ("gpu", "uuid", "name", "source")
_DOMAIN: Final = ("domain", "source")
_SENSOR: Final = ("boundary", "source", "device")

GPU_INFO: Final = MetricSpec(
    "triton_gpu_info",
    "The board, always 1: driver, MIG mode (on, off, unknown) and the reading its energy"
    " comes from (counter, integrated_instant, integrated_average, none).",
    (*_GPU, "driver", "mig", "reading"),
)
GPU_POWER: Final = MetricSpec(
    "triton_gpu_power_watts",
    "Power of the whole board, as its sensor says. Absent while it cannot be read or"
    " reads 0, which no board takes.",
    _GPU,
)
GPU_POWER_LIMIT: Final = MetricSpec(
    "triton_gpu_power_limit_watts", "Power limit that is enforced on the board.", _GPU
)
GPU_ENERGY: Final = MetricSpec(
    "triton_gpu_energy_joules_total",
    "Energy of the whole board since this process first read it, up to the end of the"
    " latest window that was divided among models, so that the balance holds at every"
    " scrape. What could not be measured is not in it.",
    _GPU,
)
GPU_UTILIZATION: Final = MetricSpec(
    "triton_gpu_utilization_ratio",
    "Share of time in which any kernel ran on the board. Absent under MIG.",
    _GPU,
)
GPU_MEMORY_USED: Final = MetricSpec(
    "triton_gpu_memory_used_bytes", "Memory of the board in use.", _GPU
)
GPU_MEMORY_TOTAL: Final = MetricSpec(
    "triton_gpu_memory_total_bytes", "Memory of the board.", _GPU
)
GPU_TEMPERATURE: Final = MetricSpec(
    "triton_gpu_temperature_celsius", "Temperature of the GPU core.", _GPU
)
GPU_CLOCK: Final = MetricSpec(
    "triton_gpu_clock_hertz",
    "Clock of the board now, by domain: sm, memory.",
    (*_GPU, "domain"),
)
GPU_THROTTLE: Final = MetricSpec(
    "triton_gpu_throttle_seconds_total",
    "Time the clocks were held down since this process first read the board. Reasons"
    " power, thermal, sync_boost, board_limit, low_utilization, reliability are the"
    " driver's own clocks; sw_power_cap, hw_slowdown, sw_thermal, hw_thermal,"
    " hw_power_brake are sampled once an interval. They overlap: do not add them up.",
    (*_GPU, "reason"),
)
GPU_ECC: Final = MetricSpec(
    "triton_gpu_ecc_errors_total",
    "ECC errors of the board since the driver was loaded, by severity (corrected,"
    " uncorrected).",
    (*_GPU, "severity"),
    outlives_process=True,
)
GPU_XID: Final = MetricSpec(
    "triton_gpu_xid_errors_total",
    "Critical XID errors of the board seen by this process, by number.",
    (*_GPU, "xid"),
)
GPU_XID_TIMESTAMP: Final = MetricSpec(
    "triton_gpu_xid_last_timestamp_seconds",
    "When the latest XID error of that number was seen: a counter's first event is no"
    " increase that PromQL could see.",
    (*_GPU, "xid"),
)
MIG_ENERGY: Final = MetricSpec(
    "triton_mig_attributed_energy_joules_total",
    "Part of the board's energy above idle that is attributed to the models of a MIG"
    " instance. Not measured: only the whole board has a sensor.",
    ("uuid", "parent", "source"),
)
HOST_POWER: Final = MetricSpec(
    "triton_host_power_watts",
    "Power of a part of the host by domain (package-0, dram-0, host).",
    _DOMAIN,
)
HOST_ENERGY: Final = MetricSpec(
    "triton_host_energy_joules_total",
    "Energy of a part of the host since this process first read it, up to the end of the"
    " latest window that was divided among models.",
    _DOMAIN,
)
SENSOR_UP: Final = MetricSpec(
    "triton_power_sensor_up",
    "1 while the sensor is read and believed, 0 while it is lost or lies.",
    _SENSOR,
)
SENSOR_FAULT: Final = MetricSpec(
    "triton_power_sensor_fault",
    "1 for what is wrong with the sensor now: lost, driver_gone, permission_denied,"
    " unreadable, frozen, backwards, implausible, no_power.",
    (*_SENSOR, "fault"),
)
SENSOR_RESETS: Final = MetricSpec(
    "triton_power_sensor_resets_total",
    "Times the sensor's energy counter was seen to start over.",
    _SENSOR,
)
SENSOR_GAP: Final = MetricSpec(
    "triton_power_sensor_gap_seconds_total",
    "Time for which the energy of the device is not known.",
    _SENSOR,
)
SENSOR_LAG: Final = MetricSpec(
    "triton_power_sensor_lag_seconds",
    "Delay from the models' work to the power that the sensor reports, from 0 to 5: the"
    " lag at which busy times explain power best. It is removed before energy is divided."
    " Absent while no lag is seen.",
    _SENSOR,
)
IDLE_POWER: Final = MetricSpec(
    "triton_idle_power_watts",
    "Power of the device while nothing runs: configured, or learnt while no model was"
    " busy. Absent until it is known.",
    _SENSOR,
)
MODEL_ENERGY: Final = MetricSpec(
    "triton_model_energy_joules_total",
    "Energy above idle attributed to production inferences of the model, by boundary"
    " (gpu, host), source and method: busy_time, or busy_time_with_idle while the idle"
    " power is not known yet and its share is in.",
    (*_MODEL, "boundary", "source", "method"),
)
MODEL_ENERGY_ERROR: Final = MetricSpec(
    "triton_model_energy_share_error_ratio",
    "Half the width of the 95 % interval of the energy attributed to the model, over that"
    " energy: 0.05 means that 5 % more or less is possible. For the mean of the latest"
    " 240 windows: a recent change of a model's power is not in it. Absent while the windows do not suffice (fewer than 20, idle power"
    " unknown, a model that hardly ran or always runs with another): the error is unknown"
    " then, not 0.",
    (*_MODEL, "boundary", "source"),
)
IDLE_ENERGY: Final = MetricSpec(
    "triton_idle_energy_joules_total",
    "Energy the devices take whatever the models do: idle power, corrected by what the"
    " windows show while models run; models + idle + unattributed = board.",
    ("boundary", "source"),
)
UNATTRIBUTED_ENERGY: Final = MetricSpec(
    "triton_unattributed_energy_joules_total",
    "Energy that belongs to no production inference, by reason: own_requests (our"
    " probes), nothing_ran (above idle while no model was busy), other_load (what other"
    " processes took while models were), no_statistics (busy times unknown),"
    " gap (counted over a time in which the sensor was away).",
    ("boundary", "source", "reason"),
)
BOUNDARY_ENERGY: Final = MetricSpec(
    "triton_boundary_energy_joules_total",
    "Energy by boundary as MLPerf Power draws them: gpu, host, and node (all that is"
    " measured, times cost.pue; absent where the host is not measured).",
    ("boundary",),
)
INFERENCE_ENERGY: Final = MetricSpec(
    "triton_inference_energy_joules",
    "Energy of one production inference over the sliding window. basis active: what"
    " running it took; full: its share of the idle energy added.",
    (*_MODEL, "boundary", "source", "basis"),
)
EFFICIENCY: Final = MetricSpec(
    "triton_model_inferences_per_second_per_watt",
    "Inferences a second for each watt, which is inferences for each joule, over the"
    " sliding window; basis as for triton_inference_energy_joules.",
    (*_MODEL, "boundary", "source", "basis"),
)
MODEL_COST: Final = MetricSpec(
    "triton_model_cost_total",
    "Cost of the model's production inferences by component: gpu_time and machine_time"
    " (its busy time at the hourly price), electricity (its energy times cost.pue).",
    (*_MODEL, "currency", "component"),
)
OVERHEAD_COST: Final = MetricSpec(
    "triton_overhead_cost_total",
    "Cost that no production inference caused: idle time, own probes, other load.",
    ("currency", "component"),
)
COST_PER_THOUSAND: Final = MetricSpec(
    "triton_model_cost_per_thousand_inferences",
    "Cost of 1,000 production inferences over the sliding window. basis active: what"
    " running them cost; full: the overhead shared out over the models.",
    (*_MODEL, "currency", "basis"),
)
MODEL_CARBON: Final = MetricSpec(
    "triton_model_carbon_grams_total",
    "CO2 equivalent of the model's attributed energy, times cost.pue and the grid's"
    " intensity.",
    _MODEL,
)
OVERHEAD_CARBON: Final = MetricSpec(
    "triton_overhead_carbon_grams_total",
    "CO2 equivalent of the energy that no production inference caused.",
    (),
)
FLOPS_UTILIZATION: Final = MetricSpec(
    "triton_model_flops_utilization_ratio",
    "Floating point operations of the model's inferences over what the GPU could do at"
    " its peak in the model's busy time. FLOPs from the configuration, peak from the"
    " configuration or NVIDIA's data sheets.",
    _MODEL,
)
