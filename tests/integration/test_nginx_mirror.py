"""A real nginx mirrors what it brings to a real Triton; the sidecar sees it, and costs
the client nothing, whatever state it is in."""

from __future__ import annotations

import contextlib

import pytest
from mirrored_traffic import (
    MODEL,
    assert_mirror_costs_nothing,
    assert_requests_arrive,
    sidecar_config,
    spoiled_tap,
)
from monitoring import free_port
from proxies import Nginx
from requirements import require

pytestmark = pytest.mark.triton

# The shipped patience of nginx with a tap is 100 ms. This one is so long that no copy is
# given up on a busy machine, and that a client that had to wait for it would be seen.
PATIENCE_SECONDS = 30
PATIENT = {"timeout 100ms": f"timeout {PATIENCE_SECONDS}s"}


@pytest.fixture
def start_proxy(tmp_path_factory):
    require("nginx")
    with contextlib.ExitStack() as stack:

        def start(*args, **replaced):
            folder = tmp_path_factory.mktemp("nginx")
            return stack.enter_context(
                contextlib.closing(Nginx(folder, *args, **replaced))
            )

        yield start


def test_mirrored_requests_arrive_and_are_parsed(
    playground, start_sidecar, start_proxy, settings
):
    tap = free_port()
    sidecar = start_sidecar(sidecar_config(settings, playground, tap))
    sidecar.wait(lambda page: page.value("triton_model_ready", model=MODEL) == 1)
    proxy = start_proxy(playground.http, f"127.0.0.1:{tap}", **PATIENT)
    assert_requests_arrive(sidecar, proxy.port)
    assert "error" not in proxy.log


@pytest.mark.parametrize("state", ["frozen", "dead", "slow"])
def test_a_sidecar_in_a_bad_state_costs_the_client_nothing(
    playground, start_sidecar, start_proxy, settings, state
):
    """Held against a second proxy without a mirror, in turns on the same machine."""
    tap = free_port()
    config = sidecar_config(settings, playground, tap)
    with spoiled_tap(state, [tap], lambda: start_sidecar(config)) as spoil:
        mirrored = start_proxy(playground.http, f"127.0.0.1:{tap}", **PATIENT)
        plain = start_proxy(
            playground.http,
            f"127.0.0.1:{tap}",
            **{"        mirror /_tritonwatch;\n": ""},
        )
        # Whoever waited for the tap once waited for nearly all of nginx's patience.
        assert_mirror_costs_nothing(
            mirrored.port, plain.port, spoil, PATIENCE_SECONDS / 2
        )
