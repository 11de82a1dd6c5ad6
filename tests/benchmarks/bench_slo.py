"""From the breach of an objective on the real Triton to the page on the webhook."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import figures
import numpy as np
import yaml
from monitoring import Alertmanager, Job, Prometheus, Webhook, free_port
from parts import missing
from processes import first_page, require_triton, sidecar, triton_settings

from exporter.config import parse
from exporter.errors import TritonError
from exporter.slo.objectives import expanded
from exporter.slo.rules import SEVERITIES, rules_file
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

MODELS = Path(__file__).parents[1] / "data" / "models"
MODEL = "sleepy"
OBJECTIVE = 0.95
THRESHOLD_SECONDS = 0.05
SLOS = [
    {
        "kind": "latency",
        "name": "sleepy-latency",
        "models": MODEL,
        "threshold_seconds": THRESHOLD_SECONDS,
        "objective_ratio": OBJECTIVE,
        "source": "requests",
    }
]
# As usual; the sidecar's own intervals are the default ones.
EVALUATION_SECONDS = 15.0
SCRAPE_SECONDS = 5.0
GOOD_SECONDS = 10.0
PAUSE_SECONDS = 0.05
DELAY_MS = 100
REPETITIONS = 6


class _Load:
    """One request after the other, with a delay that can change; keeps when each was
    answered, and whether late."""

    def __init__(self, grpc: str) -> None:
        self._client = GrpcClient(grpc)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.delay_ms = 1
        self.answered: list[tuple[float, bool]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)
        self._client.close()

    def _send(self) -> None:
        x = {"x": np.ones(1, np.float32)}
        while not self._stop.wait(PAUSE_SECONDS):
            request = InferRequest(
                MODEL, "", "load", x, {"x": "FP32"}, {"delay_ms": self.delay_ms}
            )
            started = time.time()
            with contextlib.suppress(TritonError):
                self._client.infer(request, timeout_seconds=5)
                now = time.time()
                self.answered.append((now, now - started > THRESHOLD_SECONDS))

    def burning_since(self, seen_from: float) -> float:
        """When the share of late answers first was what the most sensitive page needs:
        before that moment no rule could have known."""
        factor = min(pair.factor for pair in SEVERITIES[0].pairs)
        times = np.array([t for t, _ in self.answered if t >= seen_from])
        late = np.array([bad for t, bad in self.answered if t >= seen_from])
        share = np.cumsum(late) / np.arange(1, late.size + 1)
        above = np.flatnonzero(late & (share > factor * (1 - OBJECTIVE)))
        if above.size == 0:
            raise RuntimeError("the objective was never broken; nothing was measured")
        return float(times[above[0]])


def alert_latency(*, quick: bool = False) -> Iterator[Figure]:
    """How long after it could be known that the budget burns does the webhook hear."""
    require_triton()
    absent = missing("prometheus", "prometheus-alertmanager")
    figures.require(found=absent is None, what="Prometheus", how=absent or "")
    found = [_once() for _ in range(1 if quick else REPETITIONS)]
    after_burn = [known for known, _ in found]
    after_breach = [breach for _, breach in found]
    setup = (
        f"sidecar as by default, scrape every {SCRAPE_SECONDS:g} s, rules every"
        f" {EVALUATION_SECONDS:g} s; real Triton, Prometheus, Alertmanager"
    )
    yield figures.at_most(
        "slo_alert_latency",
        unit="evaluation intervals",
        goal=2.0,
        n=len(after_burn),
        worst=max(after_burn) / EVALUATION_SECONDS,
        measured="from the first answer that brings the share of late ones over the"
        " page's least burn rate, what the windows themselves need, to the page on the"
        f" webhook; {setup}; median of n",
        **{k: v / EVALUATION_SECONDS for k, v in figures.median(after_burn).items()},
    )
    yield figures.at_most(
        "slo_alert_after_breach",
        unit="seconds",
        goal=None,
        n=len(after_breach),
        measured="from the moment the model became slow, the windows' own minimum"
        f" included, after {GOOD_SECONDS:g} good seconds; {setup}; median of n",
        **figures.median(after_breach),
    )


def _once() -> tuple[float, float]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tap_port = free_port()
        arguments = (
            "--trace-config=mode=opentelemetry",
            f"--trace-config=opentelemetry,url=http://127.0.0.1:{tap_port}/v1/traces",
            "--trace-config=opentelemetry,bsp_schedule_delay=500",
            "--trace-config=rate=1",
            "--trace-config=level=TIMESTAMPS",
        )
        triton = stack.enter_context(EmbeddedTriton(MODELS, arguments=arguments))
        _, port = stack.enter_context(sidecar(_config(triton, tap_port)))
        first_page(port, holding=b"triton_slo_objective_ratio")
        webhook = stack.enter_context(Webhook())
        alertmanager = stack.enter_context(Alertmanager(folder, webhook))
        objectives = expanded(
            parse(yaml.safe_dump({"slos": SLOS}).encode(), "", {}).slos
        )
        prometheus = stack.enter_context(
            Prometheus(
                folder,
                Job([port]),
                scrape_interval=f"{SCRAPE_SECONDS:g}s",
                evaluation_interval=f"{EVALUATION_SECONDS:g}s",
                rules={"rules.yml": rules_file(objectives)},
                alertmanager=alertmanager,
            )
        )
        load = stack.enter_context(_Load(triton.grpc))
        prometheus.wait("up == 1")
        [(_, seen_from)] = prometheus.values("timestamp(up)")
        time.sleep(GOOD_SECONDS)
        load.delay_ms = DELAY_MS
        breach = time.time()
        page = webhook.wait("firing", 120, severity="page")
        return page["received"] - load.burning_since(seen_from), (
            page["received"] - breach
        )


def _config(triton: EmbeddedTriton, tap_port: int) -> dict[str, Any]:
    return {
        "target": triton_settings(triton),
        "listen": {"tap": {"port": tap_port}},
        "collectors": [{"kind": "traces"}],
        "probes": [],
        "slos": SLOS,
    }
