"""The probe's latency beside perf_analyzer's, on one server, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
from perf_analyzer import VERSION, PerfAnalyzer
from processes import MODEL, MODELS, Scraper, first_page, require_triton, sidecar
from processes import triton_settings as settings_of

from exporter.access.inventory import Inventory
from exporter.access.probe_base import Target
from exporter.app import Sidecar
from exporter.config.configuration import Config, TargetSettings
from exporter.features.synthetic.synthetic_probe import SyntheticSettings
from exporter.output.exposition import parse_text
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure

    from exporter.access.probe_base import Transport

_GOAL = 1.3
_KEY = (MODEL, "1")
_REQUESTS = 2500
_WARM_UP = 300
_PER_SECOND = 20.0


def closed_loop(*, quick: bool = False) -> Iterator[Figure]:
    """Back to back, one at a time: what the client's own code adds."""
    require_triton()
    analyzer = PerfAnalyzer()
    rounds = 2 if quick else 9
    with EmbeddedTriton(MODELS) as triton, _probe(triton) as attempt:
        ours: list[float] = []
        theirs: list[float] = []
        over_http: list[float] = []
        for _ in range(rounds):
            ours.append(_p50(attempt, "grpc"))
            theirs.append(analyzer.closed_loop(MODEL, triton.grpc))
            over_http.append(_p50(attempt, "http"))
    yield _ratio(
        "probe_p50_grpc",
        ours,
        theirs,
        goal=_GOAL,
        measured=f"p50 of {_REQUESTS} probes of {MODEL}, one at a time, over "
        "perf_analyzer's p50 of three windows of 1.5 s just after; median of n rounds",
    )
    yield _ratio(
        "probe_p50_http",
        over_http,
        theirs,
        goal=None,
        measured="the same over HTTP, beside perf_analyzer's over gRPC",
    )


def paced(*, quick: bool = False) -> Figure:
    """The running sidecar at 20 probes a second, both sides waking from idleness."""
    require_triton()
    analyzer = PerfAnalyzer()
    ours: list[float] = []
    theirs: list[float] = []
    with EmbeddedTriton(MODELS) as triton:
        probe = {
            "kind": "synthetic",
            "protocols": ["grpc"],
            "models": {"include": [MODEL]},
            "interval_seconds": 1 / _PER_SECOND,
            "max_requests_per_second": 1000,
            # One slot a second: each round is read with nothing of the one before.
            "window_seconds": 6,
        }
        config = {"target": settings_of(triton), "probes": [probe]}
        with sidecar(config) as (process, port):
            first_page(port, holding=b'quantile="0.5"')
            for _ in range(2 if quick else 9):
                time.sleep(7)
                ours.append(_window_p50(port))
                process.pause()
                theirs.append(analyzer.paced(MODEL, triton.grpc, _PER_SECOND))
                process.resume()
    return _ratio(
        "probe_p50_grpc_paced",
        ours,
        theirs,
        goal=None,
        measured=f"triton_probe_latency_seconds 0.5 of the running sidecar at "
        f"{_PER_SECOND:g} probes a second, over perf_analyzer's p50 at that rate "
        "just after with the sidecar paused; median of n rounds",
    )


def _ratio(
    name: str,
    ours: list[float],
    theirs: list[float],
    *,
    goal: float | None,
    measured: str,
) -> Figure:
    return figures.ratio_at_most(
        name,
        ours,
        theirs,
        goal,
        measured=measured,
        ours_microseconds=figures.median(ours)["value"] * 1e6,
        peer=figures.median(theirs)["value"] * 1e6,
        peer_name="perf_analyzer, microseconds",
        versions=figures.versions("grpcio", perf_analyzer=VERSION),
    )


@contextlib.contextmanager
def _probe(triton: EmbeddedTriton) -> Iterator[Callable[[Transport], float]]:
    """The sidecar's own probe, to be called at will: seconds of one attempt."""
    target = TargetSettings.model_validate(settings_of(triton))
    sidecar = Sidecar(Config(target=target), seed=figures.SEED)
    access = sidecar.access
    spec = access.grpc.model_spec(*_KEY, timeout_seconds=5)
    access.board.publish(Inventory(up=True, ready=True, models={_KEY: spec}))
    probe = SyntheticSettings().build(access)

    def attempt(protocol: Transport) -> float:
        verdict = probe.attempt(Target(_KEY, protocol))
        if verdict.outcome != "ok" or verdict.duration_seconds is None:
            raise RuntimeError(f"the probe found {verdict}")
        return verdict.duration_seconds

    try:
        for protocol in ("grpc", "http"):
            for _ in range(_WARM_UP):
                attempt(protocol)
        yield attempt
    finally:
        asyncio.run(sidecar.stop())


def _p50(attempt: Callable[[Transport], float], protocol: Transport) -> float:
    return float(np.median([attempt(protocol) for _ in range(_REQUESTS)]))


def _window_p50(port: int) -> float:
    with contextlib.closing(Scraper(port)) as scraper:
        _, page = scraper.scrape()
    wanted: dict[str, Any] = {"model": MODEL, "protocol": "grpc", "quantile": "0.5"}
    return next(
        value
        for name, labels, value in parse_text(page)
        if name == "triton_probe_latency_seconds" and wanted.items() <= labels.items()
    )
