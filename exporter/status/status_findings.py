"""Current problems, from the exposed samples: the same for the page, its API and the demo."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from exporter import catalogue
from exporter.features.slo.slo_collector import FAST_BURN
from exporter.runtime.model_mentions import misfits
from exporter.samples import MetricSpec, Sample, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporter.access.inventory import Inventory, ModelKey
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.features.slo.objectives import Objective
    from exporter.runtime.model_mentions import Misfit
    from exporter.samples import AnySample
    from exporter.settings import ModelMention

State = Literal["DOWN", "LYING", "FAILING", "DRIFTED", "SLOW", "UNKNOWN", "SERVING"]
"""The headline of a model, worst first. LYING returns wrong answers."""

Found = dict[MetricSpec, list[Sample]]

STATES: Final[tuple[State, ...]] = get_args(State)
_UNPROVEN: Final = "TritonModelServingUnproven"
_STALE: Final = "TritonwatchCollectorStale"

_WRONG: Final = {"expected": "outputs differ", "labels": "accuracy fell"}
"""The fault that each failing golden check shows."""

_SERVING: Final = "Does it really serve?"
_CORRECT: Final = "Are the answers correct?"
_DRIFT: Final = "Drift"
_OBJECTIVES: Final = "Service level objectives"
_COMPARISONS: Final = "Comparisons"
_COLLECTORS: Final = "What this sidecar does"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    subject: str
    """The model, objective, control chart or comparison that it is about."""
    text: str
    section: str
    """Title of the section of the page that shows it."""
    runbook: str
    """Name of the alert with the runbook for it."""
    state: State | None = None
    """State of the model that follows from it."""
    model: str = ""
    version: str = ""
    """"" is every version."""


def findings(
    samples: Iterable[AnySample],
    inventory: Inventory,
    serving: Mapping[ModelKey, bool],
    objectives: Iterable[Objective],
    mentions: Iterable[ModelMention] = (),
    probed: Mapping[Outcome, Mapping[ModelKey, str]] = {},
    failing: Iterable[tuple[str, str]] = (),
) -> list[Finding]:
    """Return all known problems; of a server that is down, only that one.

    `mentions` are the models and inputs that the configuration names, `probed` the details
    of the latest probes with an outcome, by model version; `failing` the collectors that
    have not succeeded for a while, and why.
    """
    if not inventory.up:
        subject = _server_of(inventory)
        return [Finding(subject, "does not answer", _SERVING, "TritonDown")]
    found: Found = defaultdict(list)
    for sample in samples:
        if isinstance(sample, Sample):
            found[sample.spec].append(sample)
    models = {entry.name for entry in inventory.index}
    wrong_inputs = [m for m in misfits(mentions, inventory) if m.model]
    named = {(m.model, m.version) for m in wrong_inputs if m.of_probe}
    return [
        *map(_wrong_input, wrong_inputs),
        *(
            _unproven(key, why, some="some of " if key in serving else "")
            for key, why in sorted(probed.get("configuration", {}).items())
            if key not in named
        ),
        *_server(found, inventory, serving),
        *_slow(probed),
        *_answers(found),
        *_drift(found),
        *_unwatched(found),
        *_budgets(found, objectives, models),
        *_comparisons(found),
        *(_failing(*one) for one in failing),
    ]


_STATE_OF_OBJECTIVE: Final[Mapping[str, State]] = {
    "latency": "SLOW",
    "first_response": "SLOW",
    "response_gap": "SLOW",
    "goodput": "SLOW",
    "availability": "FAILING",
}


def state_of(
    key: ModelKey,
    findings: Iterable[Finding],
    inventory: Inventory,
    serving: Mapping[ModelKey, bool],
) -> State:
    """The worst that is known of a model version; UNKNOWN where nothing was proven."""
    if not inventory.up or serving.get(key) is False:
        return "DOWN"
    worst: State = "SERVING" if key in serving else "UNKNOWN"
    for finding in findings:
        is_of_it = finding.model == key[0] and finding.version in {"", key[1]}
        state = finding.state
        if is_of_it and state and STATES.index(state) < STATES.index(worst):
            worst = state
    return worst


def unread(inventory: Inventory, why: str = "") -> Finding:
    """The only finding where the server was not read lately."""
    text = "is not known to answer: " + (why or "its collector has no recent result")
    return Finding(_server_of(inventory), text, _SERVING, _STALE)


def _failing(collector: str, why: str) -> Finding:
    runbook = "TritonModelsUnlisted" if collector == "server" else _STALE
    return Finding(collector, f"its collector fails: {why}", _COLLECTORS, runbook)


def _server_of(inventory: Inventory) -> str:
    return inventory.info.product if inventory.info else "The server"


def _wrong_input(misfit: Misfit) -> Finding:
    meant = f"; did you mean {misfit.nearest!r}?" if misfit.nearest else ""
    text = (
        f"{misfit.place} names an input that it does not have; it has "
        f"{misfit.shown}{meant}"
    )
    key = misfit.model, misfit.version
    return Finding(misfit.model, text, _SERVING, _UNPROVEN, None, *key)


def _unproven(key: ModelKey, why: str, some: str) -> Finding:
    text = f"{some}its probes prove nothing: {why}"
    return Finding(key[0], text, _SERVING, _UNPROVEN, None, *key)


def _server(
    found: Found,
    inventory: Inventory,
    serving: Mapping[ModelKey, bool],
) -> Iterator[Finding]:
    server = _server_of(inventory)
    if not inventory.ready:
        yield Finding(server, "is up, but not ready", _SERVING, "TritonNotReady")
    if any(sample.value for sample in found[catalogue.SEVERAL_SERVERS]):
        text = "several servers answer at its address: all counts are one's"
        yield Finding(server, text, _SERVING, "TritonSeveralServers")
    for entry in inventory.shown():
        key = entry.name, entry.version
        if not inventory.is_ready(entry):
            text, runbook = "is not ready", "TritonModelGone"
        elif serving.get(key) is False:
            text = "is ready, but does not answer correctly in time"
            runbook = "TritonReadinessLie"
        else:
            continue
        yield Finding(entry.name, text, _SERVING, runbook, "DOWN", *key)
    for key, why in sorted(inventory.unreadable.items()):
        text, runbook = f"cannot be read: {why}", "TritonModelsUnreadable"
        yield Finding(key[0], text, _SERVING, runbook, None, *key)
    for sample in found[catalogue.OUTCOMES_DOUBTFUL]:
        if sample.value:
            text = "answers with errors that Triton counts as successes"
            runbook = "TritonFailuresBookedAsSuccess"
            model, version = sample.labels
            yield Finding(model, text, _SERVING, runbook, "FAILING", model, version)


_SLOW_PROBES: Final[Mapping[Outcome, tuple[str, str]]] = {
    "stalled": (
        "a streamed answer to a probe came later than its limits allow",
        "TritonProbesFailing",
    ),
    "backlog": (
        "serves other clients, but had no room for a probe in time: slow, or a long queue",
        "TritonQueueGrowth",
    ),
}


def _slow(probed: Mapping[Outcome, Mapping[ModelKey, str]]) -> Iterator[Finding]:
    for outcome, (text, runbook) in _SLOW_PROBES.items():
        for model, version in sorted(probed.get(outcome, {})):
            yield Finding(model, text, _SERVING, runbook, "SLOW", model, version)


def _answers(found: Found) -> Iterator[Finding]:
    checks: dict[ModelKey, set[str]] = defaultdict(set)
    for sample in found[catalogue.GOLDEN_FAILING]:
        if sample.value:
            labels = labels_of(sample)
            checks[labels["model"], labels["version"]].add(labels["check"])
    for (model, version), failing in checks.items():
        found_wrong = ", ".join(_WRONG[check] for check in sorted(failing))
        text = f"returns wrong answers: golden {found_wrong}"
        runbook = "TritonSilentFailure"
        yield Finding(model, text, _CORRECT, runbook, "LYING", model, version)
    for sample in found[catalogue.GOLDEN_USABLE]:
        if not sample.value:
            model, version, dataset = sample.labels
            text = (
                f"golden data {dataset!r} cannot be used, so nothing is checked by it"
            )
            runbook = "TritonGoldenUnusable"
            yield Finding(model, text, _CORRECT, runbook, None, model, version)
    alarms = [sample for sample in found[catalogue.SPC_ALARM] if sample.value]
    refused = {
        labels["signal"]: labels["refused"]
        for labels in map(labels_of, found[catalogue.SPC_INFO])
        if labels["refused"] != "none"
    }
    for signal in sorted({labels_of(sample)["signal"] for sample in alarms}):
        text = "its control chart is out of control"
        if signal in refused:
            text += f"; its false-alarm rate is not guaranteed ({refused[signal]})"
        yield Finding(signal, text, _CORRECT, "TritonProcessOutOfControl")


def _drift(found: Found) -> Iterator[Finding]:
    features: dict[str, list[str]] = defaultdict(list)
    for sample in found[catalogue.FEATURE_DRIFT_ALARM]:
        if sample.value:
            labels = labels_of(sample)
            features[labels["model"]].append(labels["feature"])
    for sample in found[catalogue.MODEL_DRIFT_ALARM]:
        if sample.value:
            [model] = sample.labels
            named = f": {', '.join(features[model])}" if features[model] else ""
            text = f"its data drifted{named}"
            yield Finding(model, text, _DRIFT, "TritonDriftAlarm", "DRIFTED", model)


def _unwatched(found: Found) -> Iterator[Finding]:
    for sample in found[catalogue.DRIFT_STATE]:
        labels = labels_of(sample)
        if labels["state"] == "refused" and sample.value:
            model, side = labels["model"], labels["side"]
            text = f"the drift reference of its {side} does not fit it, so no drift is seen"
            runbook = "TritonDriftReferenceRefused"
            yield Finding(model, text, _DRIFT, runbook, None, model)


def _budgets(
    found: Found, objectives: Iterable[Objective], models: Iterable[str]
) -> Iterator[Finding]:
    burning = {s.labels[0] for s in found[catalogue.SLO_BURNING] if s.value}
    for objective in [each for each in objectives if each.name in burning]:
        text = f"objective spends its error budget over {FAST_BURN} times too fast"
        finding = Finding(objective.name, text, _OBJECTIVES, "TritonSLOBurnPage")
        # It is not known which of several models spends the budget of one objective.
        named = [model for model in models if objective.matches(model)]
        state = _STATE_OF_OBJECTIVE.get(objective.kind)
        if state is not None and len(named) == 1:
            finding = replace(finding, state=state, model=named[0])
        yield finding
    events = {sample.labels: sample.value for sample in found[catalogue.SLO_EVENTS]}
    left = {sample.labels: sample.value for sample in found[catalogue.SLO_BUDGET]}
    for objective in objectives:
        name = objective.name
        good, bad = (events.get((name, of), 0.0) for of in ("good", "bad"))
        if left.get((name,), 1.0) > 0:
            continue
        if not is_chance(objective.objective_ratio, good, bad):
            text, runbook = "objective's error budget is spent", "TritonSLOBurnTicket"
            yield Finding(name, text, _OBJECTIVES, runbook)


_SIGNIFICANCE: Final = 0.05
_MANY: Final = 20
"""Bad events that chance never explains where less than one is allowed."""


def is_chance(objective_ratio: float, good: float, bad: float) -> bool:
    """Return whether chance explains that the budget of so few events is spent.

    It may if less than one event may be bad, by the p-value of a Poisson rate: three bad
    of 50 at an objective of 0.99 have p = 0.0144, which is not by chance.

    Reference: Johnson, Kemp and Kotz, Univariate Discrete Distributions (2005), chapter 4.
    """
    mean = (1 - objective_ratio) * (good + bad)
    fewer = [
        math.exp(-mean) * mean**n / math.factorial(n)
        for n in range(min(math.ceil(bad), _MANY))
    ]
    return mean < 1 and 1 - sum(fewer) >= _SIGNIFICANCE


def _comparisons(found: Found) -> Iterator[Finding]:
    wrong = {labels_of(s)["model"] for s in found[catalogue.GOLDEN_FAILING] if s.value}
    worse: dict[str, list[str]] = defaultdict(list)
    for sample in found[catalogue.COMPARISON_VERDICT]:
        comparison, metric, verdict = sample.labels
        if verdict == "worse" and sample.value:
            worse[comparison].append(metric)
    for sample in found[catalogue.COMPARISON_INFO]:
        labels = labels_of(sample)
        metrics = worse.get(labels["comparison"])
        if not metrics:
            continue
        text = f"{labels['challenger']} is worse in {', '.join(metrics)}"
        if labels["champion"].partition(":")[0] in wrong:
            text += ", but the champion returns wrong answers"
        finding = Finding(
            labels["comparison"], text, _COMPARISONS, "TritonComparisonWorse"
        )
        # Only in mode ab production itself waits for the challenger.
        if labels["mode"] == "ab" and any(m.startswith("latency") for m in metrics):
            model, _, version = labels["challenger"].partition(":")
            finding = replace(finding, state="SLOW", model=model, version=version)
        yield finding
