"""The demo's one line a second, from the sidecar's own metrics page."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporter.output.exposition import parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SHOWN_MODEL: Final = "digits_fp32"

Page = dict[str, list[tuple[dict[str, str], float]]]


class Line:
    """Turns pages into lines; rates come from one page to the next."""

    def __init__(self, firing: Callable[[], Sequence[str]] | None = None) -> None:
        self._before: tuple[float, float] | None = None
        self._firing = firing
        self.golden_was_correct = False
        """Whether a line has shown the score of a golden set of which nothing failed."""

    def of(self, page: bytes, now: float) -> str:
        """What the page says, in one line; what it does not say reads "?"."""
        series: Page = defaultdict(list)
        for name, labels, value in parse_text(page):
            series[name].append((labels, value))
        self.golden_was_correct |= _golden_correct(series)
        parts = (
            time.strftime("%H:%M:%S"),
            _state(series),
            self._rate(series, now),
            _latency(series),
            _energy(series),
            _outcomes(series),
            _drift(series),
            _golden(series),
            self._alerts(),
        )
        return "  ".join(part for part in parts if part)

    def _alerts(self) -> str:
        firing = self._firing() if self._firing else ()
        return f"ALERTS FIRING: {', '.join(firing)}" if firing else ""

    def _rate(self, series: Page, now: float) -> str:
        total = _sum(series, "triton_requests_total")
        before, self._before = self._before, (now, total)
        if before is None or now <= before[0]:
            return "traffic    ?/s"
        return f"traffic {(total - before[1]) / (now - before[0]):4.0f}/s"


def _state(series: Page) -> str:
    up = _sum(series, "triton_up") == 1
    serving = series["triton_model_serving"]
    answering = sum(value == 1 for _, value in serving)
    listed = len(series["triton_model_ready"])
    failing = sorted({labels["model"] for labels, value in serving if value != 1})
    trouble = f" (not {', '.join(failing)})" if failing else ""
    return (
        f"Triton {'up' if up else 'DOWN'}, {answering}/{listed} models serving{trouble}"
    )


def _latency(series: Page) -> str:
    """Production quantiles with their 95 % interval, from traces."""
    shown = []
    for quantile in ("0.5", "0.95", "0.99"):
        found = [_pick(series, "triton_request_latency_seconds", quantile)] + [
            _pick(series, "triton_request_latency_ci_seconds", quantile, bound=bound)
            for bound in ("lower", "upper")
        ]
        name = f"p{float(quantile) * 100:g}"
        if None in found:
            shown.append(f"{name} ?")
        else:
            value, low, high = (f"{1e3 * (item or 0):.2f}" for item in found)
            shown.append(f"{name} {value} [{low}, {high}]")
    return f"{_SHOWN_MODEL} {' '.join(shown)} ms"


def _pick(series: Page, name: str, quantile: str, **more: str) -> float | None:
    wanted = {"model": _SHOWN_MODEL, "quantile": quantile, **more}.items()
    values = [value for labels, value in series[name] if wanted <= labels.items()]
    return values[0] if values else None


def _energy(series: Page) -> str:
    """What an inference takes and what 1,000 cost, idle share in; and by which source."""
    joules = _of_model(series, "triton_inference_energy_joules")
    efficiency = _of_model(series, "triton_model_inferences_per_second_per_watt")
    costs = _of_model(series, "triton_model_cost_per_thousand_inferences")
    shown = []
    for (labels, value), (_, rate) in zip(joules, efficiency, strict=False):
        origin = f"{labels['boundary']}, {labels['source']}"
        shown.append(f"{value:.2f} J/inference {rate:.2f} QPS/W ({origin})")
    shown += [f"{value:.4f} {labels['currency']}/1000" for labels, value in costs]
    return " ".join(shown) or "energy ?"


def _of_model(series: Page, name: str) -> list[tuple[dict[str, str], float]]:
    wanted = {"model": _SHOWN_MODEL, "basis": "full"}.items()
    return [
        (labels, value) for labels, value in series[name] if wanted <= labels.items()
    ]


def _outcomes(series: Page) -> str:
    totals: dict[str, float] = defaultdict(float)
    for labels, value in series["triton_probe_total"]:
        totals[labels["outcome"]] += value
    bad = sum(totals.values()) - totals["ok"]
    return f"probes ok {totals['ok']:.0f} not ok {bad:.0f}"


def _drift(series: Page) -> str:
    """Whether the watched models' data are those of their reference, and what moved."""
    shown = []
    for labels, alarm in series["triton_model_drift_alarm"]:
        model = labels["model"]
        named = [
            found["feature"]
            for found, value in series["triton_feature_drift_alarm"]
            if found["model"] == model and value == 1
        ]
        shown.append(f"{model} {'MOVED: ' + ', '.join(named) if alarm else 'none'}")
    return f"drift {'; '.join(shown) or '?'}"


def _golden(series: Page) -> str:
    """How right the answers to a golden set are, and what of it fails."""
    shown = []
    for labels, usable in series["triton_golden_usable"]:
        of_it = labels.items()
        scores = [
            f"{found['metric']} {value:.1%}"
            for found, value in series["triton_golden_score_ratio"]
            if found["metric"] in {"accuracy", "match"} and of_it <= found.items()
        ]
        failing = sorted(
            found["check"]
            for found, value in series["triton_golden_failing"]
            if value == 1 and of_it <= found.items()
        )
        parts = [labels["model"], *(scores if usable else ["unusable"])]
        parts += [f"LIES: {', '.join(failing)} fail"] if failing else []
        shown.append(" ".join(parts))
    out = sorted({found["signal"] for found, v in series["triton_spc_alarm"] if v == 1})
    if out:
        shown.append(f"OUT OF CONTROL: {', '.join(out)}")
    return f"golden {'; '.join(shown)}" if shown else ""


def _golden_correct(series: Page) -> bool:
    usable = any(value == 1 for _, value in series["triton_golden_usable"])
    failing = any(value == 1 for _, value in series["triton_golden_failing"])
    return usable and not failing and bool(series["triton_golden_score_ratio"])


def _sum(series: Page, name: str) -> float:
    return sum(value for _, value in series[name])
