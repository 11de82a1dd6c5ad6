"""Panels: what every one of ours has, so that a dashboard says only what is its own.

In a query `<s>` after a metric's name is the selector of the chosen sidecars, `<m>`
that of the chosen models among them, `<v>` that of their versions; matchers of the
query's own follow a comma: `triton_requests_total<v,outcome="success">`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.empty_panels import hint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATASOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

_FLEET: Final = 'cluster=~"$cluster", namespace=~"$namespace"'
_SIDECARS: Final = f'job=~"$job", instance=~"$instance", {_FLEET}'
SELECTORS: Final = {
    # Recording rules of a whole fleet have no instance.
    "f": f'job=~"$job", {_FLEET}',
    "s": _SIDECARS,
    "m": f'{_SIDECARS}, model=~"$model"',
    "v": f'{_SIDECARS}, model=~"$model", version=~"$version"',
}
_MARK: Final = re.compile(r"(?<=[a-z0-9_:])<([fsmv])(,[^<>]*?)?>(?=[\s\[),*/+\-]|$)")

GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
HEIGHT: Final = 8
# Where everything is 0, Grafana draws an axis up to 100: 10,000 % of a share.
_SOFT_MAX: Final = {"percentunit": 0.01, "reqps": 1, "cps": 1}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel and the legend of its series."""

    expr: str
    legend: str = ""
    exemplars: bool = False

    @property
    def full(self) -> str:
        """With the selectors written out."""
        return _MARK.sub(_selector, self.expr)


def rate(counter: str, by: str = "", legend: str | None = None) -> Query:
    """The rate of a counter, summed by these labels, of which its legend is made."""
    grouped = f" by ({by}) " if by else ""
    return Query(
        f"sum{grouped}(rate({counter}[$__rate_interval]))", _legend(by, legend)
    )


def latest(how: str, gauge: str, by: str, legend: str | None = None) -> Query:
    """A gauge by these labels, of which its legend is made; `how` is max, min, avg or sum."""
    return Query(f"{how} by ({by}) ({gauge})", _legend(by, legend))


def columns(how: str, by: str, gauges: Mapping[str, str]) -> list[Query]:
    """Return the columns of a table: gauges by the same labels, by their titles."""
    return [latest(how, gauge, by, title) for title, gauge in gauges.items()]


def quotient(above: str, below: str, by: str = "") -> Query:
    """Return what one counter gains over what another does, by these labels."""
    return Query(f"{rate(above, by).expr} / {rate(below, by).expr}", _legend(by, None))


def weighted(gauge: str, counter: str, by: str, legend: str | None = None) -> Query:
    """Return a gauge by these labels, that of each replica weighted by a counter's rate.

    Of joules for each inference, weighted by inferences, that is all joules over all
    inferences; a mean would count an idle replica as much as a busy one.
    """
    weight = (
        "* on (job, instance, model, version) group_left () sum by (job, instance, model,"
        f" version) (rate({counter}[$__rate_interval]))"
    )
    return Query(
        f"sum by ({by}) ({gauge} {weight}) / sum by ({by}) (({gauge}) ^ 0 {weight})",
        _legend(by, legend),
    )


def highest(gauge: str) -> Query:
    """Return the ten features for which a gauge is the highest."""
    return Query(
        f"topk(10, max by (model, feature) ({gauge}))", _legend("model, feature", None)
    )


def bounds(gauge: str, legend: str, *ends: str) -> list[Query]:
    """Return the ends of an interval, each a series of its own with its label `bound`."""
    return [
        Query(gauge.replace(">", f',bound="{end}">'), f"{legend} {end}") for end in ends
    ]


def _legend(by: str, given: str | None) -> str:
    labels = (f"{{{{{name.strip()}}}}}" for name in by.split(",") if name)
    return " ".join(labels) if given is None else given


def _selector(found: re.Match[str]) -> str:
    own = (found[2] or "").removeprefix(",").strip()
    return "{" + ", ".join(filter(None, (SELECTORS[found[1]], own))) + "}"


@dataclass(frozen=True, slots=True)
class Step:
    """A colour from this value on; None is from the beginning."""

    value: float | None
    color: str


def thresholds(*steps: Step) -> Any:
    """Colours by value."""
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=s.value, color=s.color) for s in steps])
    )


def only_above_zero(query: Query) -> Query:
    """Return the same without the series that are 0 or less."""
    return replace(query, expr=f"{query.expr} > 0")


def good_below(warning: float, bad: float) -> tuple[Step, ...]:
    """Green, yellow from `warning`, red from `bad`."""
    return Step(None, GREEN), Step(warning, YELLOW), Step(bad, RED)


def good_above(bad: float, warning: float) -> tuple[Step, ...]:
    """Red, yellow from `bad`, green from `warning`."""
    return Step(None, RED), Step(bad, YELLOW), Step(warning, GREEN)


def target(query: Query, number: int) -> Any:
    """A query over time as the panel's next letter."""
    made = (
        prometheus.Dataquery()
        .expr(query.full)
        .legend_format(query.legend)
        .ref_id(chr(ord("A") + number))
        .datasource(DATASOURCE)
        .range()
    )
    return made.exemplar(exemplar=True) if query.exemplars else made


def framed_panel(
    panel: Any,
    title: str,
    description: str,
    unit: str,
    span: int,
    alerts: Sequence[str] = (),
) -> Any:
    """With links to the runbooks of the alerts about what it shows."""
    panel = (
        panel.title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .span(span)
        .height(HEIGHT)
    )
    if not alerts:
        return panel
    return panel.links(
        [
            dashboard.DashboardLink(f"Runbook of {alert}")
            .type(models.DashboardLinkType.LINK)
            .url(f"${{runbooks}}/{alert}.md")
            .target_blank(target_blank=True)
            for alert in alerts
        ]
    )


def series(  # noqa: PLR0913 - one argument a property of the panel, all by name
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    span: int = 12,
    steps: Sequence[Step] = (),
    stacked: bool = False,
    band: tuple[str, str] | None = None,
    least: float | None = 0,
    most: float | None = None,
    no_value: str = "",
    alerts: Sequence[str] = (),
) -> Any:
    """Lines over time. `band` has patterns of the lower and the upper series of an interval."""
    panel = framed_panel(timeseries.Panel(), title, description, unit, span, alerts)
    panel = panel.no_value(no_value or hint(query.expr for query in queries))
    panel = (
        panel.line_width(1)
        .fill_opacity(30 if stacked else 0)
        .show_points(common_models.VisibilityMode.NEVER)
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .legend(legend_below())
    )
    if stacked:
        panel = panel.stacking(
            common.StackingConfig().mode(common_models.StackingMode.NORMAL)
        )
    if least is not None:
        panel = panel.min(least)
    if most is not None:
        panel = panel.max(most)
    elif unit in _SOFT_MAX:
        panel = panel.axis_soft_max(_SOFT_MAX[unit])
    if steps:
        panel = panel.thresholds(thresholds(*steps)).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(
                common_models.GraphThresholdsStyleMode.DASHED
            )
        )
    if band is not None:
        panel = _banded(panel, *band)
    for number, query in enumerate(queries):
        panel = panel.with_target(target(query, number))
    return panel


def legend_below() -> Any:
    """The names of the series under the chart."""
    return (
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(show_legend=True)
    )


def _banded(panel: Any, lower: str, upper: str) -> Any:
    """Draw the ends of an interval as dashed lines, which the legend leaves out.

    Grafana fills between two series only where both have names known beforehand: its
    `fillBelowTo` takes no pattern (grafana#85757), and there is an interval a model.
    """
    value = models.DynamicConfigValue
    dashed = [
        value(id_val="custom.lineStyle", value={"fill": "dash", "dash": [4, 4]}),
        value(id_val="custom.fillOpacity", value=0),
        value(
            id_val="custom.hideFrom",
            value={"legend": True, "tooltip": False, "viz": False},
        ),
    ]
    return panel.override_by_regexp(lower, dashed).override_by_regexp(upper, dashed)


def number(  # noqa: PLR0913 - one argument a property of the panel, all by name
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    span: int = 4,
    steps: Sequence[Step] = (Step(None, BLUE),),
    words: Mapping[str, str] | None = None,
    no_value: str = "unknown",
    alerts: Sequence[str] = (),
) -> Any:
    """One number, large. `words` replace values; `no_value`, in grey, an unknown one."""
    panel = framed_panel(stat.Panel(), title, description, unit, span, alerts)
    panel = (
        panel.height(HEIGHT // 2)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.AREA)
        .thresholds(thresholds(*steps))
        .no_value(no_value)
    )
    unknown = models.SpecialValueMap(
        options=models.DashboardSpecialValueMapOptions(
            match=models.SpecialValueMatch.NULL_AND_NAN,
            result=models.ValueMappingResult(text=no_value, color="text"),
        )
    )
    texts = {
        key: models.ValueMappingResult(text=text) for key, text in (words or {}).items()
    }
    panel = panel.mappings([models.ValueMap(options=texts), unknown])
    return panel.with_target(target(query, 0))


def heat(
    title: str,
    description: str,
    unit: str,
    query: Query,
    *,
    buckets: bool = True,
) -> Any:
    """Colour over time: of histogram buckets, or of one value for each series."""
    panel = framed_panel(heatmap.Panel(), title, description, unit, 24)
    panel = panel.no_value(hint([query.expr]))
    wanted = target(query, 0)
    if buckets:
        wanted = wanted.format(PromQueryFormat.HEATMAP)
    return panel.calculate(calculate=False).with_target(wanted)
