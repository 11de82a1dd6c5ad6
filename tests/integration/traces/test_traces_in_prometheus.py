"""Production's latency as a real Prometheus has it: trace ids, and quantiles by the rules."""

from __future__ import annotations

import re
import time

import pytest
from monitoring import Job
from traced_tritons import REQUESTS, Collector, Sender, requests, traces_config
from waiting import wait_until

from exporter.features.slo.slo_rules import rules_file

pytestmark = pytest.mark.triton

LATENCY = "triton_request_duration_seconds"
RULE = f'model_version:{LATENCY}:p50_rate5m{{model="double"}}'
# Prometheus interpolates within a bucket: a 32nd of an octave wide, or up to 2.5 times;
# and it rates only what came after its first scrape.
FEATURES = {"native": ("native-histograms",), "classic": ()}
FACTOR = {"native": 1.1, "classic": 2.5}


@pytest.mark.slow
@pytest.mark.parametrize("buckets", FEATURES)
def test_the_rules_know_its_median_and_exemplars_are_traces_that_triton_sent(
    buckets, spans_server, settings, start_sidecar, start_prometheus
) -> None:
    triton, port = spans_server
    collector = Collector(port)
    try:
        config = traces_config(settings, triton, collector.tap_port)
        config["probes"] = []
        sidecar = start_sidecar(config)
        prometheus = start_prometheus(
            Job([sidecar.port]),
            rules={"slo.yaml": rules_file([])},
            features=["exemplar-storage", *FEATURES[buckets]],
        )
        prometheus.wait("up == 1")
        Sender(triton.grpc).rows("double", REQUESTS)
        page = sidecar.wait(lambda page: requests(page, "double") >= REQUESTS)
        shown = {"model": "double", "quantile": "0.5"}
        median = page.value("triton_request_latency_seconds", **shown)
        prometheus.wait(RULE)
        [(_, recorded)] = prometheus.values(RULE)
        assert median / FACTOR[buckets] <= recorded <= median * FACTOR[buckets]
        is_native = bool(prometheus.query(f"histogram_count({LATENCY})"))
        assert is_native == (buckets == "native")
        found = trace_ids(prometheus)
        sent = b"".join(body for _, body in collector.bodies).decode()
        assert found <= set(re.findall(r'"traceId":"(\w{32})"', sent))
    finally:
        collector.close()


def trace_ids(prometheus) -> set[str]:
    """Those of the exemplars of production's latency, as soon as there are any."""

    def found() -> set[str]:
        series = prometheus.get(
            "query_exemplars",
            query=f'{{__name__=~"{LATENCY}(_bucket)?",model="double"}}',
            start=str(time.time() - 120),
            end=str(time.time() + 1),
        )
        return {e["labels"]["trace_id"] for s in series for e in s["exemplars"]}

    return wait_until(found, "there are no exemplars")
