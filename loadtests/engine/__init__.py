"""The load engine: sends requests on a schedule or at a fixed concurrency and times them.

    arrivals = profile.arrivals(np.random.default_rng(seed))
    result = run_open(target, mix, arrivals, options=Options(timeout_seconds=5.0))

Both functions block until the last answer or its timeout. They run an event loop of their
own: from within one, call them in a thread.
"""

from __future__ import annotations

from loadtests.engine.load_run import Options, Progress, run_closed, run_open

__all__ = ["Options", "Progress", "run_closed", "run_open"]
