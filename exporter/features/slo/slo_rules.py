"""Prometheus rules for the configured objectives, for each fleet of sidecars.

A fleet is the sidecars of one job, namespace and cluster. Everything is summed over replicas before it is divided, since an average of ratios is
no ratio. The windows and factors are those of the SRE workbook (chapter 5, "Alerting on
SLOs", method 6: multiwindow, multi-burn-rate). The long window makes the alert
significant, the short one lets it end soon after the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import yaml

from exporter.features.slo.slo_collector import WINDOWS
from exporter.histograms import histogram_promql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.features.slo.objectives import Objective

_HEADER: Final = """\
# Written by `tritonwatch rules`; write it again when the objectives change.
"""
_DASHBOARD: Final = "/d/tritonwatch-slo?var-job={{ $labels.job | urlquery }}"
_FLEET: Final = ("cluster", "namespace", "job")
"""Labels that the sidecars of one fleet share; staging must not dilute production."""


@dataclass(frozen=True, slots=True)
class Links:
    """Base addresses of the links in alerts; a pager needs absolute ones."""

    runbooks_url: str = "deploy/runbooks"
    """Folder of the runbooks, `TritonSLOBurnPage.md` and so on."""
    grafana_url: str = ""

    def annotations(self, alert: str, models: str) -> dict[str, str]:
        """Return `dashboard_url` and `runbook_url` of an alert on `models`, a pattern."""
        of_one = "" if set(models) & set("*?[") else f"?model={quote(models, safe='')}"
        return {
            "dashboard_url": self.grafana_url.rstrip("/") + _DASHBOARD,
            "runbook_url": f"{self.runbooks_url.rstrip('/')}/{alert}.md{of_one}",
        }


@dataclass(frozen=True, slots=True)
class Burn:
    """One pair of windows: a burn rate above `factor` in both raises an alert."""

    long: str
    short: str
    factor: float


@dataclass(frozen=True, slots=True)
class Severity:
    """An alert and the pairs of windows that raise it."""

    alert: str
    severity: str
    pairs: tuple[Burn, Burn]
    meaning: str


SEVERITIES: Final = (
    Severity(
        "TritonSLOBurnPage",
        "page",
        (Burn("1h", "5m", 14.4), Burn("6h", "30m", 6)),
        "2 % of the error budget of 30 days in an hour, or 5 % in six hours",
    ),
    Severity(
        "TritonSLOBurnTicket",
        "ticket",
        (Burn("1d", "2h", 3), Burn("3d", "6h", 1)),
        "10 % of the error budget of 30 days in one to three days",
    ),
)


def rules_file(objectives: Sequence[Objective], links: Links | None = None) -> str:
    """Return the rule file for `objectives`, as YAML."""
    links = links or Links()
    groups = [_group(objective, links) for objective in objectives]
    groups.append(_fleet())
    return _HEADER + yaml.dump(
        {"groups": groups}, Dumper=_Dumper, sort_keys=False, width=1000
    )


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as such, and everything in full."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - never any
        return True


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _group(objective: Objective, links: Links) -> dict[str, Any]:
    """Records and alerts in one group: its rules are evaluated in this order, at once.

    In a group of their own the alerts would see the records up to one evaluation late.
    """
    return {
        "name": f"tritonwatch-slo-{objective.name}",
        "rules": [*_recorded(objective), *_alerts(objective, links)],
    }


def _recorded(objective: Objective) -> list[dict[str, Any]]:
    labels = {"slo": objective.name}
    whole = _duration(objective.window_days)
    rules: list[dict[str, Any]] = [
        {
            "record": f"slo:sli_error:ratio_rate{window}",
            "expr": _error_ratio(objective.name, window),
            "labels": labels,
        }
        for window in (*WINDOWS, *(() if whole in WINDOWS else (whole,)))
    ]
    rules += [
        {
            "record": "slo:objective:ratio",
            "expr": f"vector({objective.objective_ratio:.10g})",
            "labels": labels,
        },
        {
            "record": "slo:error_budget_remaining:ratio",
            "expr": f'1 - slo:sli_error:ratio_rate{whole}{{slo="{objective.name}"}}'
            f" / {_allowed(objective)}",
            "labels": labels,
        },
    ]
    return rules


def _duration(days: float) -> str:
    """Return days as Prometheus writes them, which has whole numbers only."""
    for unit, in_a_day in (("d", 1), ("h", 24)):
        if days * in_a_day % 1 == 0:
            return f"{days * in_a_day:.0f}{unit}"
    return f"{days * 1440:.0f}m"


def _error_ratio(name: str, window: str) -> str:
    bad = f'triton_slo_events_total{{slo="{name}",outcome="bad"}}[{window}]'
    every = f'triton_slo_events_total{{slo="{name}"}}[{window}]'
    # Without events there is no ratio: prevent 0 / 0, which is NaN.
    return f"{_sum_by('slo')} (rate({bad})) / ({_sum_by('slo')} (rate({every})) > 0)"


def _sum_by(*labels: str) -> str:
    return f"sum by ({', '.join((*_FLEET, *labels))})"


def _allowed(objective: Objective) -> str:
    return f"{1 - objective.objective_ratio:.10g}"


def _alerts(objective: Objective, links: Links) -> list[dict[str, Any]]:
    allowed = 1 - objective.objective_ratio
    return [
        {
            "alert": severity.alert,
            "expr": "\nor\n".join(_burning(objective, pair) for pair in pairs),
            "labels": {"severity": severity.severity, "slo": objective.name},
            "annotations": {
                "summary": f"{objective.name} burns its error budget too fast",
                "description": "{{ $value | humanizePercentage }} of the events of "
                f"{objective.name} are bad; its objective allows "
                f"{allowed:.4%}. At this rate that is "
                f"{severity.meaning}.",
                **links.annotations(severity.alert, objective.models),
            },
        }
        for severity in SEVERITIES
        # At most all events are bad, so a lax objective cannot burn fast.
        if (pairs := [p for p in severity.pairs if p.factor * allowed < 1])
    ]


def _burning(objective: Objective, pair: Burn) -> str:
    selector = f'{{slo="{objective.name}"}}'
    bad = f'triton_slo_events_total{{slo="{objective.name}",outcome="bad"}}'
    limit = f"{pair.factor:g} * {_allowed(objective)}"
    return (
        f"(slo:sli_error:ratio_rate{pair.long}{selector} > {limit}\n"
        f"  and slo:sli_error:ratio_rate{pair.short}{selector} > {limit}\n"
        # One bad event of a quiet hour is no rate. It is extrapolated to almost 2.
        f"  and {_sum_by('slo')} (increase({bad}[{pair.long}])) >= 2)"
    )


def _fleet() -> dict[str, Any]:
    """Return rules for totals of a fleet, whose records may be summed.

    An autoscaler's queue time must weigh models by their traffic: a mean over models
    counts the idle ones (server#8979).
    """
    return {
        "name": "tritonwatch-fleet",
        "rules": [
            {"record": record, "expr": expression}
            for record, expression in (*_fleet_quantiles(), *_fleet_load())
        ],
    }


def _fleet_quantiles() -> Iterator[tuple[str, str]]:
    metric = "triton_request_duration_seconds"
    for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        expression = histogram_promql.quantile(
            q, metric, "5m", *_FLEET, "model", "version"
        )
        # Without requests a quantile is NaN, which must not be recorded.
        yield f"model_version:{metric}:{label}_rate5m", f"({expression}) >= 0"


def _fleet_load() -> Iterator[tuple[str, str]]:
    for level in ("model", "instance"):
        total = _sum_by(level)
        queue = f"{total} (rate(triton_model_queue_seconds_total[5m]))"
        served = f'{total} (rate(triton_requests_total{{outcome="success"}}[5m]))'
        yield (
            f"{level}:triton_queue_seconds_per_request:rate5m",
            f"{queue} / ({served} > 0)",
        )
    yield (
        "model:triton_requests:rate5m",
        f"{_sum_by('model')} (rate(triton_requests_total[5m]))",
    )
    yield (
        "instance:triton_busy:ratio_rate5m",
        f"{_sum_by('instance')} (rate(triton_model_busy_seconds_total[5m]))",
    )
