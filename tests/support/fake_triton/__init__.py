"""FakeTriton: a scripted Triton on real sockets, for what a real one cannot do on demand.

Start with `FakeTriton`, describe its repository with `FakeModel` and `FakeTensor`, and
script it with the behaviours named here, while it runs:

    with FakeTriton([FakeModel("m"), FakeModel("n")]) as fake:
        fake.on("infer", model="m").reply(Slow(0.5), times=3)   # three slow, then well
        fake.on("infer", model="m").reply(Filled(math.nan))     # NaN from then on
        fake.on("infer", protocol="grpc").reply(UNAVAILABLE)    # on one port
        fake.on("any").reply(Hung())                            # a frozen server
        fake.vanish("n")                                        # listed, but not found
        with fake.on("infer").reply(HalfAnswer()): ...          # for a block
        with fake.down(): ...                                   # nobody listens
        fake.behave()                                           # everything well again

What came is in `fake.requests`, `fake.received()`, `fake.max_concurrent`; tests wait for
it with `fake.wait_for("infer", count=3)` rather than sleep. It knows no TLS, no shared
memory, no sequences, no response cache, no log settings; trace settings are read only, and
over gRPC alone.
"""

# ruff: noqa: F403 - each behaviour is named once, where it is
from __future__ import annotations

from fake_triton.behaviours import *
from fake_triton.fake_models import HOSTILE_NAMES, FakeModel, FakeTensor, Timings, many
from fake_triton.fake_triton import FakeTriton

__all__ = ["HOSTILE_NAMES", "FakeModel", "FakeTensor", "FakeTriton", "Timings", "many"]
