"""From the breach of an objective on the real Triton to the page on the webhook."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
import yaml
from breakable_slo import OBJECTIVE, SLOS, Load, tracing_arguments
from monitoring import Alertmanager, Job, Prometheus, Webhook, free_port
from parts import missing
from processes import first_page, require_triton, sidecar, triton_settings

from exporter.config import parse
from exporter.slo.objectives import expanded
from exporter.slo.rules import SEVERITIES, rules_file
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

MODELS = Path(__file__).parents[1] / "data" / "models"
# As usual; the sidecar's own intervals are the default ones.
EVALUATION_SECONDS = 15.0
SCRAPE_SECONDS = 5.0
GOOD_SECONDS = 10.0
DELAY_MS = 100
REPETITIONS = 6


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
        arguments = tracing_arguments(tap_port)
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
        load = stack.enter_context(Load(triton.grpc))
        prometheus.wait("up == 1")
        [(_, seen_from)] = prometheus.values("timestamp(up)")
        time.sleep(GOOD_SECONDS)
        load.delay_ms = DELAY_MS
        breach = time.time()
        page = webhook.wait("firing", 120, severity="page")
        return page["received"] - _burning_since(load, seen_from), (
            page["received"] - breach
        )


def _burning_since(load: Load, seen_from: float) -> float:
    """When the share of late answers first was what the most sensitive page needs:
    before that moment no rule could have known."""
    factor = min(pair.factor for pair in SEVERITIES[0].pairs)
    times = np.array([t for t, _ in load.answered if t >= seen_from])
    late = np.array([bad for t, bad in load.answered if t >= seen_from])
    share = np.cumsum(late) / np.arange(1, late.size + 1)
    above = np.flatnonzero(late & (share > factor * (1 - OBJECTIVE)))
    if above.size == 0:
        raise RuntimeError("the objective was never broken; nothing was measured")
    return float(times[above[0]])


def _config(triton: EmbeddedTriton, tap_port: int) -> dict[str, Any]:
    return {
        "target": triton_settings(triton),
        "listen": {"tap": {"port": tap_port}},
        "collectors": [{"kind": "traces"}],
        "probes": [],
        "slos": SLOS,
    }
