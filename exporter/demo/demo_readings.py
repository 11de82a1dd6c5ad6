"""Turns the sidecar's pages into figures and troubles for each model."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from exporter.output.exposition import parse_text
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Series = dict[str, list[tuple[dict[str, str], float]]]
Troubles = dict[tuple[str, ...], str]
_SOURCES: Final = {"model": "estimated from CPU time"}
"""Sources of power whose name means something else to a reader of models."""
_TAILS: Final = (0.99, 0.95, 0.9)
_RATES_SECONDS: Final = 10.0
"""Rates are over at least this time, two waves of llm, once it has passed."""


@dataclass(frozen=True, slots=True)
class ModelReading:
    """One model version; what is not known is empty, and a tail is what it waits for."""

    name: str
    state: str
    rate: str
    median: str
    tail: str
    accuracy: str
    drift: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One page."""

    summary: str
    energy: str
    streamed: tuple[str, ...]
    """Lines of each model whose streamed answers were traced."""
    models: tuple[ModelReading, ...]
    troubles: Troubles
    golden_correct: bool
    """True if a golden score is known and no golden check fails."""


class Reader:
    """Turns pages into readings; rates come from the reads of the last ten seconds."""

    def __init__(self) -> None:
        self._requests = _Rates()
        self._tokens = _Rates()

    def read(self, page: bytes, status: Mapping[str, Any]) -> Reading:
        """Read /metrics and /api/v1/status of the same moment."""
        series: Series = defaultdict(list)
        for name, labels, value in parse_text(page):
            series[name].append((labels, value))
        read_at = _read_at(series)
        rates = self._requests.since_earlier(series["triton_requests_total"], read_at)
        made = [
            s for s in series["triton_tokens_total"] if s[0]["direction"] == "output"
        ]
        tokens = self._tokens.since_earlier(made, read_at)
        keys = sorted(
            (labels["model"], labels["version"])
            for labels, _ in series["triton_model_serving"]
        )
        versions = [model for model, _ in keys]
        states = {(m["model"], m["version"]): m["state"] for m in status["models"]}
        models = tuple(
            ModelReading(
                model if versions.count(model) == 1 else f"{model}:{version}",
                states.get((model, version), "UNKNOWN"),
                "" if rates is None else f"{rates.get((model, version), 0):.0f}",
                _quantile(series, model, version, 0.5),
                _tail(series, model, version),
                _accuracy(series, model, version),
                _drift(series, model),
            )
            for model, version in keys
        )
        return Reading(
            _summary(series, rates),
            _energy(series, rates),
            tuple(_streamed(series, tokens or {})),
            models,
            dict(_troubles(status)),
            _correct(series),
        )


class _Rates:
    """Totals of each model version on the latest pages."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, dict[tuple[str, str], float]]] = deque()

    def since_earlier(
        self, counted: list[tuple[dict[str, str], float]], read_at: float | None
    ) -> dict[tuple[str, str], float] | None:
        """Return what each model version counted a second; None until the second read."""
        if read_at is None:
            return None
        totals: dict[tuple[str, str], float] = defaultdict(float)
        for labels, value in counted:
            totals[labels["model"], labels["version"]] += value
        while len(self._held) > 1 and self._held[1][0] <= read_at - _RATES_SECONDS:
            self._held.popleft()
        self._held.append((read_at, totals))
        at, earlier = self._held[0]
        if read_at <= at:
            return None
        return {
            key: max(0.0, total - earlier.get(key, 0.0)) / (read_at - at)
            for key, total in totals.items()
        }


def _read_at(series: Series) -> float | None:
    """Return when the sidecar read the server's counters: they do not move in between."""
    name = "tritonwatch_collector_last_success_timestamp_seconds"
    return _one(series, name, {"collector": "statistics"})


def _summary(series: Series, rates: Mapping[tuple[str, str], float] | None) -> str:
    up = any(value == 1 for _, value in series["triton_up"])
    serving = sum(value == 1 for _, value in series["triton_model_serving"])
    outcomes: dict[str, float] = defaultdict(float)
    for labels, value in series["triton_probe_total"]:
        outcomes[labels["outcome"]] += value
    bad = sum(outcomes.values()) - outcomes["ok"]
    rate = "" if rates is None else f" {sum(rates.values()):.0f} requests/s,"
    return (
        f"Triton {'up' if up else 'DOWN'}, {serving}/{len(series['triton_model_ready'])}"
        f" models serving,{rate} probes {outcomes['ok']:.0f} ok, {bad:.0f} not ok"
    )


def _energy(series: Series, rates: Mapping[tuple[str, str], float] | None) -> str:
    """Return the power of all boards, and what a request takes on average."""
    boards = series["triton_host_power_watts"] + series["triton_gpu_power_watts"]
    if not boards:
        return "energy: no power was read yet"
    watts = sum(value for _, value in boards)
    found = {labels["source"] for labels, _ in boards}
    sources = ", ".join(sorted(_SOURCES.get(source, source) for source in found))
    rate = sum((rates or {}).values())
    each = f", {watts / rate:.3g} J a request over all models" if rate else ""
    return f"energy: {watts:.3g} W ({sources}){each}"


def _share_error(series: Series, labels: Mapping[str, str]) -> str:
    """Return the error of a model's share of the energy; "" where no figure holds."""
    place = {key: labels[key] for key in ("model", "version", "boundary", "source")}
    error = _one(series, "triton_model_energy_share_error_ratio", place)
    return "" if error is None or error > 1 else f" ± {100 * error:.0f} %"


def _tail(series: Series, model: str, version: str) -> str:
    """Return the highest quantile up to p99 that has an interval.

    The interval of a quantile needs as many independent requests; those traced may be
    equivalent to fewer.
    """
    for quantile in _TAILS:
        shown = _quantile(series, model, version, quantile)
        if shown:
            return f"p{100 * quantile:g} {shown}"
    key = {"model": model, "version": version}
    traced = _one(series, "triton_request_duration_seconds_count", key)
    if traced is None and not series["tritonwatch_trace_records_total"]:
        return "is not traced"
    return f"not yet: {traced or 0:.0f} traces"


def _quantile(
    series: Series,
    model: str,
    version: str,
    quantile: float,
    of: str = "triton_request_latency",
) -> str:
    """Return milliseconds with the 95 % interval; "" without an interval."""
    wanted = {"model": model, "version": version, "quantile": f"{quantile:g}"}
    value = _one(series, f"{of}_seconds", wanted)
    bounds = [
        _one(series, f"{of}_ci_seconds", {**wanted, "bound": bound})
        for bound in ("lower", "upper")
    ]
    known = [f"{1e3 * number:.3g}" for number in (value, *bounds) if number is not None]
    if len(known) < 3:  # noqa: PLR2004 - the value and both bounds
        return ""
    shown, low, high = known
    return f"{shown} [{low}, {high}]"


def _streamed(series: Series, tokens: Mapping[tuple[str, str], float]) -> Iterator[str]:
    names = {
        "first response": "triton_request_first_response_latency",
        "gaps": "triton_request_response_gap_latency",
    }
    for labels, _ in series[f"{names['first response']}_seconds"]:
        if labels["quantile"] == "0.5":
            key = labels["model"], labels["version"]
            times = {
                what: _quantile(series, *key, 0.5, name) for what, name in names.items()
            }
            parts = [f"{what} p50 {time} ms" for what, time in times.items() if time]
            if parts:
                yield f"{labels['model']} streams: {', '.join(parts)}"
            if key in tokens:
                made = f"{labels['model']} made {tokens[key]:.0f} tokens/s"
                costs = " and ".join(_token_costs(series, *key))
                yield f"{made}, {costs} per 1,000 tokens"


def _token_costs(series: Series, model: str, version: str) -> Iterator[str]:
    """Yield joules with their error, and money; shares of idle power and time included."""
    wanted = {"model": model, "version": version, "basis": "full"}.items()
    known = [
        f"{1e3 * joules:.3g} J{error} ({labels['boundary']})"
        for labels, joules in series["triton_token_energy_joules"]
        if wanted <= labels.items() and (error := _share_error(series, labels))
    ]
    yield from known or ["unknown joules"]
    for labels, price in series["triton_model_cost_per_thousand_tokens"]:
        if wanted <= labels.items():
            yield f"{price:.3g} {labels['currency']}"


def _one(series: Series, name: str, wanted: dict[str, str]) -> float | None:
    found = [v for labels, v in series[name] if wanted.items() <= labels.items()]
    return found[0] if found else None


def _accuracy(series: Series, model: str, version: str) -> str:
    wanted = {"model": model, "version": version, "metric": "accuracy"}
    found = _one(series, "triton_golden_score_ratio", wanted)
    return "" if found is None else percent(found)


def _drift(series: Series, model: str) -> str:
    """Return a feature that drifted and how many more; "" without a drift watch."""
    alarms = [v for k, v in series["triton_model_drift_alarm"] if k["model"] == model]
    if not alarms:
        return ""
    drifted = [
        labels["feature"]
        for labels, value in series["triton_feature_drift_alarm"]
        if labels["model"] == model and value == 1
    ]
    if not any(alarms) or not drifted:
        return "yes" if any(alarms) else "none"
    more = len(drifted) - 1
    return drifted[0] + (f" and {more} more" if more else "")


def _troubles(status: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each current problem: subject and runbook, and what it is as a sentence."""
    for finding in status["findings"]:
        subject, text = finding["subject"], finding["text"]
        # int8 is known to be slower on this backend; and a month's error budget that is
        # spent after some seconds says little.
        is_budget = finding["runbook"] == "TritonSLOBurnTicket"
        if subject != "precision" and not is_budget:
            yield (subject, finding["runbook"]), f"{subject}: {text}"


def _correct(series: Series) -> bool:
    usable = any(value == 1 for _, value in series["triton_golden_usable"])
    failing = any(value == 1 for _, value in series["triton_golden_failing"])
    return usable and not failing and bool(series["triton_golden_score_ratio"])
