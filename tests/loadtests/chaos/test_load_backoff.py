"""How the client of a load comes back is part of what users see, and is as stated."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE_SECONDS, patience

from loadtests.chaos.experiment import LoadSettings
from loadtests.engine import Options, run_open
from loadtests.engine.loops import Backoff
from loadtests.execute import prepared
from loadtests.result import Outcome
from loadtests.scenario import ModelSettings

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.engine import Progress
    from loadtests.result import RunResult

MODEL = "digits_fp32"


@given(
    st.floats(0.01, 10), st.floats(1, 10), st.floats(0.01, 100), st.integers(1, 10_000)
)
def test_waits_grow_by_the_factor_up_to_the_longest(
    first: float, factor: float, longest: float, failures: int
) -> None:
    backoff = Backoff(first_seconds=first, factor=factor, longest_seconds=longest)
    wait, following = backoff.wait_seconds(failures), backoff.wait_seconds(failures + 1)
    assert wait <= following <= longest
    if following < longest:
        assert following == pytest.approx(wait * factor)


def killed_meanwhile(server: EmbeddedTriton, backoff: Backoff) -> RunResult:
    """A load of two seconds, in whose first the server is killed and started again."""
    load = LoadSettings(
        models=(ModelSettings(model=MODEL),), timeout_seconds=PATIENCE_SECONDS
    )
    scenario = load.scenario("test", server.grpc, 1.0, 1)
    gone = threading.Event()

    def restart() -> None:
        server.kill()
        server.start()

    restarting = threading.Thread(target=restart)

    def told(progress: Progress) -> None:
        if progress.elapsed_seconds > 0.3 and not gone.is_set():
            gone.set()
            restarting.start()

    options = Options(timeout_seconds=PATIENCE_SECONDS, progress=told, backoff=backoff)
    mix = prepared(scenario)
    arrivals = np.arange(0.0, 2.0, 0.02)
    result = run_open(scenario.target.target(), mix, arrivals, options=options)
    restarting.join()
    return result


@pytest.mark.triton
def test_who_asks_again_rides_through_what_fails_another(
    triton_process: EmbeddedTriton,
) -> None:
    once = killed_meanwhile(triton_process, Backoff())
    often = killed_meanwhile(
        triton_process,
        # For as long as a busy machine may take to start the server.
        Backoff(
            first_seconds=0.1,
            factor=2,
            longest_seconds=patience() / 100,
            attempts=100,
        ),
    )
    assert once.requests.count(Outcome.ERROR) > 0
    assert often.requests.count(Outcome.OK) == len(often.requests)
    # They waited for it, and their users with them.
    waited = often.requests.done - often.requests.intended
    assert waited.max() > 0.2
