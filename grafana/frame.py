"""The parts that all dashboards share: variables, links, annotations, time range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from grafana.panels import DATASOURCE, SELECTORS

if TYPE_CHECKING:
    from collections.abc import Iterable

TAG: Final = "tritonwatch"
# A dashboard's file, uid and link are all made of this.
PREFIX: Final = "tritonwatch-"

# Where Grafana serves runbooks from that are mounted into its public folder, as
# deploy/compose does; `python -m grafana.build --runbooks URL` for another place.
RUNBOOKS: Final = "/public/runbooks"

_CHOSEN: Final = 'job=~"$job", instance=~"$instance"'
# Finer than Grafana's own minute: a chaos run may be over in less.
_STEP: Final = "10s"


def choice(name: str, label: str, query: str, all_value: str = ".*") -> Any:
    """A variable whose values Prometheus has, any number of which can be chosen."""
    every = models.VariableOption(text="All", value="$__all", selected=True)
    return (
        _query(name, label, query)
        .include_all(include_all=True)
        .all_value(all_value)
        .current(every)
    )


def _query(name: str, label: str, query: str) -> Any:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .definition(query)
        .datasource(DATASOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
    )


def _variables(by_model: str) -> Iterable[Any]:
    yield dashboard.ConstantVariable("runbooks").label("Runbooks").value(RUNBOOKS)
    yield (
        dashboard.DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
    )
    # Labels that a scrape configuration may not set: "all" also means without.
    yield choice("cluster", "Cluster", "label_values(triton_up, cluster)")
    yield choice(
        "namespace",
        "Namespace",
        'label_values(triton_up{cluster=~"$cluster"}, namespace)',
    )
    # Without "All": staging and production are added up only if the user chooses both.
    chosen = 'triton_up{cluster=~"$cluster", namespace=~"$namespace"}'
    yield _query("job", "Job", f"label_values({chosen}, job)").include_all(
        include_all=False
    )
    yield choice(
        "instance", "Instance", 'label_values(triton_up{job=~"$job"}, instance)', ".+"
    )
    if by_model:
        yield choice("model", "Model", f"label_values({by_model}{{{_CHOSEN}}}, model)")
    if by_model == "triton_model_ready":
        yield choice(
            "version",
            "Version",
            f'label_values({by_model}{{{_CHOSEN}, model=~"$model"}}, version)',
        )


def _runs(name: str, kinds: str, color: str) -> Any:
    """A mark over the time of each run, and of each of its phases."""
    runs = f'triton_run_info{{{SELECTORS["s"]}, kind=~"{kinds}"}}'
    return (
        _mark(name, color)
        .expr(f"max by (run, kind, profile, phase) ({runs})")
        .title_format("{{kind}} {{run}}")
        .text_format("{{profile}}: {{phase}}")
        .tag_keys("kind,profile,phase")
    )


def _alerts() -> Any:
    """A mark over the time for which one of our alerts fires.

    Those of a whole fleet have no instance and no job, and are marked as well.
    """
    chosen = SELECTORS["s"].replace('"$job"', '"$job|"')
    chosen = chosen.replace('"$instance"', '"$instance|"')
    firing = f'ALERTS{{alertstate="firing", alertname=~"Triton.*", {chosen}}}'
    return (
        _mark("Firing alerts", "orange")
        .expr(f"max by (alertname, severity, instance) ({firing})")
        .title_format("{{alertname}} {{instance}}")
        .text_format("{{severity}}")
        .tag_keys("alertname,severity")
    )


def _reloads() -> Any:
    """A mark for the minute after a sidecar started or took another configuration."""
    reloaded = (
        f"tritonwatch_config_last_reload_success_timestamp_seconds{{{SELECTORS['s']}}}"
    )
    return (
        _mark("Sidecar reloads", "yellow")
        .expr(f"max by (instance) ({reloaded}) > time() - 60")
        .title_format("configuration loaded")
        .text_format("{{instance}}")
        .tag_keys("instance")
    )


def _loads() -> Any:
    """A mark for the two minutes in which a model was loaded again."""
    loads = f"triton_model_loads_total{{{SELECTORS['s']}}}"
    return (
        _mark("Model loads", "purple")
        .expr(f"sum by (instance, model, version) (increase({loads}[2m])) > 0")
        .title_format("{{model}} {{version}} loaded")
        .text_format("{{instance}}")
        .tag_keys("model,version")
    )


def _mark(name: str, color: str) -> Any:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(enable=True)
        .icon_color(color)
        .step(_STEP)
    )


def framed(
    slug: str,
    title: str,
    description: str,
    *sections: tuple[str, Iterable[Any]],
    by_model: str = "triton_model_ready",
    choices: Iterable[Any] = (),
) -> Any:
    """A dashboard of sections, each a row with its panels.

    `by_model` is the metric whose models can be chosen; "" where models do not matter.
    `choices` are variables of the dashboard's own.
    """
    board = (
        dashboard.Dashboard(f"Triton / {title}")
        .uid(PREFIX + slug)
        .description(description)
        .tags([TAG, "triton"])
        .readonly()
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("tritonwatch")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(as_dropdown=True)
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
    )
    board = board.annotation(_runs("Load runs", "load|capacity", "blue"))
    board = board.annotation(_runs("Chaos runs", "chaos", "red"))
    for marks in (_alerts(), _reloads(), _loads()):
        board = board.annotation(marks)
    for variable in (*_variables(by_model), *choices):
        board = board.with_variable(variable)
    for heading, panels in sections:
        board = board.with_row(dashboard.Row(heading))
        for panel in panels:
            board = board.with_panel(panel)
    return board
