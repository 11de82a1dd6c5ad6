"""A real Prometheus scrapes the real sidecar on a real Triton; its answers are right."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from monitoring import Job
from waiting import patience

from exporter.catalogue import (
    CATALOGUE,
    comparison_metrics,
    drift_metrics,
    energy_metrics,
    generation_metrics,
    golden_metrics,
    spc_metrics,
)
from exporter.samples import MetricSpec

pytestmark = pytest.mark.triton

GOLDEN = Path(__file__).parents[1] / "data" / "golden.prom"


def _specs(part) -> list[MetricSpec]:
    return [spec for spec in vars(part).values() if isinstance(spec, MetricSpec)]


DRIFT = _specs(drift_metrics)
EVERYWHERE = (generation_metrics.REQUEST_FAILURES, generation_metrics.PAGE_REFUSED)
GENERATION = [spec for spec in _specs(generation_metrics) if spec not in EVERYWHERE]
# Metrics that this scrape cannot have, each with its reason.
NOT_IN_GOLDEN = {
    "probe_models_judged": "on /probe only",
    "probe_models_unjudged": "on /probe only",
    "triton_model_readiness_timeouts_total": "no readiness question hangs",
    "tritonwatch_watcher_up": "no other sidecar is named",
    "triton_probe_last_duration_seconds": "on /probe only",
    "probe_success": "on /probe only",
    "triton_probe_first_response_seconds": "no model streams",
    "triton_probe_response_gap_seconds": "no model streams",
    "probe_duration_seconds": "on /probe only",
    "tritonwatch_otlp_exports_total": "nothing is pushed",
    "tritonwatch_otlp_consecutive_failures": "nothing is pushed",
    "triton_request_latency_ci_seconds": "no traces are sent",
    "triton_request_latency_effective_samples": "no traces are sent",
    "triton_request_latency_seconds": "no traces are sent",
    "triton_request_duration_seconds": "no traces are sent",
    "triton_request_phase_duration_seconds": "no traces are sent",
    "triton_request_first_response_seconds": "no traces are sent",
    "triton_request_first_response_latency_seconds": "no traces are sent",
    "triton_request_first_response_latency_ci_seconds": "no traces are sent",
    "triton_request_first_response_latency_effective_samples": "no traces are sent",
    "triton_request_response_gap_seconds": "no traces are sent",
    "triton_request_response_gap_latency_seconds": "no traces are sent",
    "triton_request_response_gap_latency_ci_seconds": "no traces are sent",
    "triton_request_response_gap_latency_effective_samples": "no traces are sent",
    "triton_request_responses": "no traces are sent",
    "triton_request_goodput_total": "no traces are sent",
    **{spec.name: "no model makes tokens" for spec in GENERATION},
    "tritonwatch_trace_files_total": "no trace files are followed",
    "triton_client_requests_total": "no access log is read",
    "tritonwatch_access_log_lines_total": "no access log is read",
    "tritonwatch_access_log_truncations_total": "no access log is read",
    "tritonwatch_tap_requests_total": "nothing was sent to the tap",
    "tritonwatch_tap_samples_total": "nothing was sent to the tap",
    "triton_slo_doubtful": "the objective is on probes, not on requests",
    "triton_run_info": "no run tells of itself",
    "triton_capacity_requests_per_second": "no run tells of itself",
    "triton_capacity_found_timestamp_seconds": "no run tells of itself",
    "triton_capacity_search_info": "no run tells of itself",
    "triton_capacity_headroom_ratio": "no run tells of itself",
    "triton_capacity_effective_requests": "no run tells of itself",
    **{spec.name: "no drift is watched" for spec in DRIFT},
    **{
        spec.name: "there is no GPU"
        for spec in _specs(energy_metrics)
        if spec.name.startswith(("triton_gpu_", "triton_mig_"))
    },
    "triton_power_sensor_fault": "no sensor is at fault",
    "triton_power_sensor_lag_seconds": "the modelled power comes at once",
    "triton_model_energy_share_error_ratio": "there are too few windows yet",
    "triton_model_energy_share_effective_windows": "there are too few windows yet",
    "triton_inference_energy_joules": "production asks for nothing",
    "triton_model_inferences_per_second_per_watt": "production asks for nothing",
    "triton_model_cost_per_thousand_inferences": "production asks for nothing",
    "triton_model_flops_utilization_ratio": "no work is configured",
    **{spec.name: "no golden set is asked" for spec in _specs(golden_metrics)},
    **{spec.name: "no process is under control" for spec in _specs(spc_metrics)},
    **{
        spec.name: "nothing is compared or loaded"
        for spec in _specs(comparison_metrics)
    },
}


class Paced:
    """Requests to `double` at a fixed pace, for as long as the block lasts."""

    def __init__(self, traffic, per_second: float) -> None:
        self._traffic = traffic
        self._period = 1 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.sent: list[float] = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _send(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += self._period
            self._traffic.double()
            self.sent.append(time.time())


def test_the_rate_of_requests_is_what_was_sent_without_our_probes(
    playground, settings, start_sidecar, traffic, start_prometheus
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.1}))
    server = start_prometheus(Job([sidecar.port]))
    server.wait("up == 1")
    with Paced(traffic, per_second=25) as paced:
        time.sleep(26)
        [(_, rate)] = server.values(
            'sum(rate(triton_requests_total{model="double",outcome="success"}[20s]))'
        )
        now = time.time()
        sent = sum(now - 20 <= when <= now for when in paced.sent) / 20
    assert rate == pytest.approx(sent, rel=0.02)
    [(_, probes)] = server.values(
        'sum(rate(triton_probe_total{model="double",outcome="ok"}[20s]))'
    )
    assert probes > 5, "the probes that are left out are many"
    [(_, others)] = server.values('sum(triton_requests_total{model!="double"})')
    assert others == 0
    [(_, up)] = server.values("triton_up")
    assert up == 1
    assert server.log.read_text() == "", "Prometheus has nothing to warn of"


def normalised(body: bytes) -> str:
    """The page with values and versions taken out, the series of a metric in order."""
    blocks: list[list[str]] = []
    for line in body.decode().splitlines():
        if line.startswith("# HELP"):
            blocks.append([])
        if line.startswith("#"):
            blocks[-1].append(line)
        else:
            series = re.sub(r'(?<=version=")\d+\.[^"]*', "X", line.rpartition(" ")[0])
            blocks[-1].append(f"{series} 1.0")
    # Stable: the buckets of a histogram stay together and as they were.
    return (
        "\n".join(
            line
            for block in blocks
            for line in [*block[:2], *sorted(block[2:], key=labels)]
        )
        + "\n"
    )


def labels(line: str) -> str:
    """The labels of a series without a bucket's bound."""
    return re.sub(r'le="[^"]*",?', "", line.partition("{")[2])


@pytest.fixture
def scrape(playground, settings, start_sidecar) -> bytes:
    config = settings(
        playground,
        slos=[
            {
                "kind": "availability",
                "name": "probes",
                "source": "probes",
                "objective_ratio": 0.99,
            }
        ],
    )
    config["collectors"].append({"kind": "traces", "interval_seconds": 0.5})
    config["listen"] |= {"tap": {"port": 0}, "memory_bytes": 1 << 40}
    modelled = {"kind": "model", "idle_watts": 20, "full_watts": 60}
    config["power"] = {"window_seconds": 1, "sources": [modelled]}
    config["cost"] = {"electricity_price_per_kwh": 0.3, "grid_grams_per_kwh": 400}
    sidecar = start_sidecar(config)
    deadline = time.monotonic() + patience()
    while True:
        page = sidecar.page()
        settled = (
            len(page.all("triton_probe_latency_seconds", quantile="0.5")) == 4
            and page.all("triton_slo_burn_rate")
            and page.all("triton_statistics_disagreement_ratio")
            and len(page.all("triton_model_energy_joules_total")) == 2
        )
        if settled:
            # Quantiles come with the number of probes: those of a minute are enough. A
            # process of the server between fork and exec is "other" on a busy machine.
            return b"\n".join(
                line
                for line in page.body.splitlines()
                if not re.search(rb'quantile="0\.9|process="other"', line)
            )
        assert time.monotonic() < deadline, page.body.decode()
        time.sleep(0.2)


def test_the_page_has_the_series_it_always_had(scrape, request) -> None:
    found = normalised(scrape)
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(found, "utf-8")
    assert found == GOLDEN.read_text("utf-8"), "after a wanted change: --update-golden"


def test_promtool_finds_the_golden_page_clean(require_commands) -> None:
    require_commands("promtool")
    result = subprocess.run(
        ["promtool", "check", "metrics"],
        input=GOLDEN.read_bytes(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == b""


def test_every_metric_of_the_catalogue_is_on_the_golden_page_but_a_few() -> None:
    named = set(re.findall(r"^# TYPE (\S+)", GOLDEN.read_text("utf-8"), re.MULTILINE))
    catalogue = {spec.name for spec in CATALOGUE}
    assert named <= catalogue
    assert catalogue - named == set(NOT_IN_GOLDEN)
