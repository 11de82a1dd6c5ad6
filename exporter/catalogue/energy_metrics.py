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
    "The board, always 1: driver, MIG mode (on, off, unknown) and the source of its"
    " energy (counter, integrated_instant, integrated_average, none).",
    (*_GPU, "driver", "mig", "reading"),
)
GPU_POWER: Final = MetricSpec(
    "triton_gpu_power_watts",
    "Power of the whole board as its sensor reports it. Absent if it cannot be read"
    " or reads 0, which is impossible.",
    _GPU,
)
GPU_POWER_LIMIT: Final = MetricSpec(
    "triton_gpu_power_limit_watts", "Power limit enforced on the board.", _GPU
)
GPU_ENERGY: Final = MetricSpec(
    "triton_gpu_energy_joules_total",
    "Energy of the whole board since this process first read it, up to the end of"
    " the latest window that was divided among models, so that energies balance at"
    " every scrape. Energy that could not be measured is not included.",
    _GPU,
)
GPU_UTILIZATION: Final = MetricSpec(
    "triton_gpu_utilization_ratio",
    "Share of time in which a kernel ran on the board. Absent under MIG.",
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
    "Current clock of the board by domain: sm, memory.",
    (*_GPU, "domain"),
)
GPU_THROTTLE: Final = MetricSpec(
    "triton_gpu_throttle_seconds_total",
    "Time the clocks were throttled since this process first read the board, by"
    " reason. power, thermal, sync_boost, board_limit, low_utilization and"
    " reliability are counted by the driver; sw_power_cap, hw_slowdown, sw_thermal,"
    " hw_thermal and hw_power_brake are sampled once per interval. low_utilization"
    " increases on an idle board and is no fault. Reasons overlap: do not add them up.",
    (*_GPU, "reason"),
)
GPU_ECC: Final = MetricSpec(
    "triton_gpu_ecc_errors_total",
    "ECC errors of the board since the driver was loaded, by severity (corrected,"
    " uncorrected).",
    (*_GPU, "severity"),
    outlives_process=True,
)
GPU_XID_TIMESTAMP: Final = MetricSpec(
    "triton_gpu_xid_last_timestamp_seconds",
    "Time of the latest critical XID error of the board with that number.",
    (*_GPU, "xid"),
)
MIG_ENERGY: Final = MetricSpec(
    "triton_mig_attributed_energy_joules_total",
    "Part of the board's energy above idle attributed to the models of a MIG"
    " instance. An attribution, not a measurement: only the whole board has a"
    " sensor.",
    ("uuid", "parent", "source"),
)
HOST_POWER: Final = MetricSpec(
    "triton_host_power_watts",
    "Power of a domain of the host (package-0, dram-0, host).",
    _DOMAIN,
)
HOST_ENERGY: Final = MetricSpec(
    "triton_host_energy_joules_total",
    "Energy of a domain of the host since this process first read it, up to the end"
    " of the latest window that was divided among models.",
    _DOMAIN,
)
SENSOR_UP: Final = MetricSpec(
    "triton_power_sensor_up",
    "1 if the sensor can be read and its values are plausible, else 0.",
    _SENSOR,
)
SENSOR_FAULT: Final = MetricSpec(
    "triton_power_sensor_fault",
    "1 for the current fault of the sensor: lost, driver_gone, permission_denied,"
    " unreadable, frozen, backwards, implausible, no_power.",
    (*_SENSOR, "fault"),
)
SENSOR_RESETS: Final = MetricSpec(
    "triton_power_sensor_resets_total",
    "Times the sensor's energy counter started over.",
    _SENSOR,
)
SENSOR_GAP: Final = MetricSpec(
    "triton_power_sensor_gap_seconds_total",
    "Time for which the energy of the device is unknown.",
    _SENSOR,
)
SENSOR_LAG: Final = MetricSpec(
    "triton_power_sensor_lag_seconds",
    "Delay between the models' work and the power the sensor reports, from 0 to 5:"
    " the lag at which busy times explain power best. It is removed before energy is"
    " divided. Absent if no lag is found.",
    _SENSOR,
)
IDLE_POWER: Final = MetricSpec(
    "triton_idle_power_watts",
    "Power of the device while no model runs: configured, or learnt while no model"
    " was busy. Absent until known.",
    _SENSOR,
)
MODEL_ENERGY: Final = MetricSpec(
    "triton_model_energy_joules_total",
    "Energy above idle attributed to production inferences of the model, by"
    " boundary (gpu, host), source and method: busy_time, or busy_time_with_idle if"
    " the idle power is not known yet and a share of it is included. Absent for an"
    " ensemble: its steps have its energy.",
    (*_MODEL, "boundary", "source", "method"),
)
MODEL_ENERGY_ERROR: Final = MetricSpec(
    "triton_model_energy_share_error_ratio",
    "Half the width of the 95 % interval of the energy attributed to the model,"
    " divided by that energy: 0.05 means within 5 %, and 10, the largest value, that"
    " nothing is known but that it is small; energy and efficiency of an inference are"
    " absent then. It describes the mean of the"
    " latest 240 windows; a recent change of the model's power is not included."
    " Absent, which means unknown and not 0, if the windows do not suffice: fewer"
    " than 20, idle power unknown, or a model that hardly ran or always runs with"
    " another.",
    (*_MODEL, "boundary", "source"),
)
MODEL_ENERGY_EFFECTIVE: Final = MetricSpec(
    "triton_model_energy_share_effective_windows",
    "Number of independent windows, of the latest 240, that would give the same"
    " triton_model_energy_share_error_ratio; of several devices the smallest. Few where"
    " power fluctuates slowly. Absent with the error.",
    (*_MODEL, "boundary", "source"),
)
IDLE_ENERGY: Final = MetricSpec(
    "triton_idle_energy_joules_total",
    "Energy the devices use regardless of the models: idle power, corrected by what"
    " the windows show while models run. Models + idle + unattributed = board.",
    ("boundary", "source"),
)
UNATTRIBUTED_ENERGY: Final = MetricSpec(
    "triton_unattributed_energy_joules_total",
    "Energy that belongs to no production inference, by reason: own_requests (our"
    " probes), nothing_ran (above idle while no model was busy), other_load (used by"
    " other processes while models were busy), no_statistics (busy times unknown),"
    " gap (the sensor could not be read).",
    ("boundary", "source", "reason"),
)
BOUNDARY_ENERGY: Final = MetricSpec(
    "triton_boundary_energy_joules_total",
    "Energy by boundary as MLPerf Power defines them: gpu, host, and node (all"
    " measured energy times cost.pue; absent if the host is not measured).",
    ("boundary",),
)
INFERENCE_ENERGY: Final = MetricSpec(
    "triton_inference_energy_joules",
    "Energy per production inference over the sliding window. basis active: energy"
    " of running it; full: including its share of idle energy.",
    (*_MODEL, "boundary", "source", "basis"),
)
EFFICIENCY: Final = MetricSpec(
    "triton_model_inferences_per_second_per_watt",
    "Inferences per second per watt, which equals inferences per joule, over the"
    " sliding window; basis as in triton_inference_energy_joules.",
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
    "Cost not caused by production inferences: idle time, own probes, other load.",
    ("currency", "component"),
)
COST_PER_THOUSAND: Final = MetricSpec(
    "triton_model_cost_per_thousand_inferences",
    "Cost of 1,000 production inferences over the sliding window. basis active:"
    " cost of running them; full: including a share of the overhead.",
    (*_MODEL, "currency", "basis"),
)
MODEL_CARBON: Final = MetricSpec(
    "triton_model_carbon_grams_total",
    "CO2 equivalent of the model's attributed energy, times cost.pue and the carbon"
    " intensity of the grid.",
    _MODEL,
)
OVERHEAD_CARBON: Final = MetricSpec(
    "triton_overhead_carbon_grams_total",
    "CO2 equivalent of the energy not caused by production inferences.",
    (),
)
FLOPS_UTILIZATION: Final = MetricSpec(
    "triton_model_flops_utilization_ratio",
    "Floating point operations of the model's inferences divided by the GPU's peak"
    " in the model's busy time. Operations come from the configuration, the peak"
    " from the configuration or NVIDIA's data sheets, which have none of MIG instances."
    " Absent if the peak of one of the model's boards is unknown.",
    _MODEL,
)
