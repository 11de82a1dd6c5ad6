"""Two real servers behind one address, which Envoy gives out in turn."""

from __future__ import annotations

import subprocess

import pytest
from monitoring import free_port
from playground import Traffic
from proxies import envoy_binary
from waiting import patience

pytestmark = pytest.mark.triton

BALANCER = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: servers
          cluster: servers
  clusters:
  - name: servers
    load_assignment:
      cluster_name: servers
      endpoints: [{{lb_endpoints: [{endpoints}]}}]
"""
ENDPOINT = (
    "{{endpoint: {{address: {{socket_address:"
    " {{address: 127.0.0.1, port_value: {port}}}}}}}}}"
)


@pytest.fixture
def balance(tmp_path):
    """Start Envoy before some servers' gRPC ports; returns its address."""
    running = []

    def start(*addresses):
        port = free_port()
        endpoints = ", ".join(
            ENDPOINT.format(port=address.rpartition(":")[2]) for address in addresses
        )
        config = tmp_path / f"envoy-{port}.yaml"
        config.write_text(BALANCER.format(port=port, endpoints=endpoints))
        running.append(
            subprocess.Popen(
                [
                    *(envoy_binary(), "-c", config, "-l", "warning"),
                    *("--concurrency", "1", "--disable-hot-restart"),
                ]
            )
        )
        return f"127.0.0.1:{port}"

    yield start
    for process in running:
        process.terminate()
        process.wait(patience(20))


def watch(start_sidecar, settings, server, address):
    config = settings(server, probes=[])
    config["target"]["grpc"] = address
    return start_sidecar(config)


def said(page):
    return page.value("triton_several_servers")


def test_several_servers_behind_one_address_are_seen(
    playground, traffic, start_triton, settings, start_sidecar, balance
) -> None:
    other = start_triton(
        playground.triton.repository,
        model_control="explicit",
        arguments=["--load-model=double", "--load-model=sleepy"],
    )
    traffic.double(3)
    at_other = Traffic(other.grpc)
    at_other.double(8)
    at_other.close()
    sidecar = watch(
        start_sidecar, settings, other, balance(playground.grpc, other.grpc)
    )
    sidecar.wait(lambda page: said(page) == 1, 120)


def test_one_server_behind_a_proxy_is_one_also_while_it_is_busy(
    playground, traffic, settings, start_sidecar, balance
) -> None:
    traffic.double(3)
    sidecar = watch(start_sidecar, settings, playground, balance(playground.grpc))
    sidecar.wait(lambda page: said(page) is not None)
    for _ in range(20):
        traffic.double(20)
        assert said(sidecar.page()) == 0


def test_a_server_of_this_machine_is_known_to_be_one(
    playground, settings, start_sidecar
) -> None:
    sidecar = watch(start_sidecar, settings, playground, playground.grpc)
    sidecar.wait(lambda page: said(page) == 0)
