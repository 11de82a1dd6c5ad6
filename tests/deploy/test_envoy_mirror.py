"""The shipped Envoy configuration, as far as it can be checked without Envoy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from exporter.config.configuration import TapSettings, TargetSettings
from exporter.taps.mirroring import mirrored_http, openai_body

FILE = Path(__file__).parents[2] / "deploy" / "envoy" / "tritonwatch-mirror.yaml"
BOOTSTRAP = yaml.safe_load(FILE.read_text("utf-8"))["static_resources"]
CLUSTERS = {cluster["name"]: cluster for cluster in BOOTSTRAP["clusters"]}


def routes(listener):
    (chain,) = listener["filter_chains"]
    (manager,) = chain["filters"]
    hosts = manager["typed_config"]["route_config"]["virtual_hosts"]
    return [route for host in hosts for route in host["routes"]]


ROUTES = [route for listener in BOOTSTRAP["listeners"] for route in routes(listener)]
MIRRORED = [r for r in ROUTES if "request_mirror_policies" in r["route"]]


def port(cluster):
    (locality,) = CLUSTERS[cluster]["load_assignment"]["endpoints"]
    (end,) = locality["lb_endpoints"]
    return end["endpoint"]["address"]["socket_address"]["port_value"]


def longest_stream(cluster):
    (options,) = CLUSTERS[cluster]["typed_extension_protocol_options"].values()
    return options["common_http_protocol_options"]["max_stream_duration"]


def mirrors(route):
    return [policy["cluster"] for policy in route["route"]["request_mirror_policies"]]


def test_ports_are_the_defaults_of_triton_and_of_the_taps():
    tap, target = TapSettings(), TargetSettings()
    assert {name: port(name) for name in CLUSTERS} == {
        "triton_http": int(target.http.rpartition(":")[2]),
        "triton_grpc": int(target.grpc.rpartition(":")[2]),
        "tritonwatch_http": tap.port,
        "tritonwatch_grpc": tap.grpc_port,
    }


def test_just_inference_is_mirrored_to_the_tap_of_its_protocol():
    *http, grpc = MIRRORED
    assert grpc["match"] == {"path": "/inference.GRPCInferenceService/ModelInfer"}
    assert mirrors(grpc) == ["tritonwatch_grpc"]
    assert [mirrors(route) for route in http] == [["tritonwatch_http"]] * 2
    regexes = [route["match"]["safe_regex"]["regex"] for route in http]
    for path in (
        "/v2/models/m/infer",
        "/v2/models/m/versions/3/infer",
        "/v2/models/m/generate",
        "/v2/models/m/versions/3/generate_stream",
        "/v2/models/m/generate_streams",
        "/v2/health/ready",
        "/v2/models/a/b/infer",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
    ):
        assert any(re.fullmatch(regex, path) for regex in regexes) == bool(
            mirrored_http.PATTERN.fullmatch(path) or openai_body.PATTERN.fullmatch(path)
        )


@pytest.mark.parametrize("route", MIRRORED, ids=lambda route: route["route"]["cluster"])
def test_copies_that_wait_are_bounded_in_number_and_time(route):
    for name in mirrors(route):
        assert route["route"]["timeout"] == "60s" or longest_stream(name) == "60s"
        (bounds,) = CLUSTERS[name]["circuit_breakers"]["thresholds"]
        assert bounds["max_requests"] <= 64
        assert bounds["max_pending_requests"] <= 64
        assert bounds["max_retries"] == 0
