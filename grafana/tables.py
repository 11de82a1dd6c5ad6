"""Panels of the newest values: tables, and bars beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from grafana_foundation_sdk.builders import barchart, table
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana.empty_panels import hint
from grafana.panels import framed_panel, legend_below, target, thresholds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grafana.panels import Query, Step

_YES_NO: Final = models.DynamicConfigValue(
    id_val="mappings",
    value=[
        {"type": "value", "options": {"1": {"text": "yes"}, "0": {"text": "no"}}},
    ],
)
_ABSENT: Final = models.DynamicConfigValue(id_val="noValue", value="-")
"""A row without this column's value; without rows, the table says how to turn them on."""
_PLAIN: Final = models.DynamicConfigValue(id_val="unit", value="short")


def _instant(query: Query, number: int) -> Any:
    return target(query, number).instant().format(PromQueryFormat.TABLE)


def bars(
    title: str,
    description: str,
    unit: str,
    *columns: Query,
    along: str,
    span: int = 12,
    repeat: str = "",
) -> Any:
    """Bars of the newest values, side by side, along the label `along`.

    With `repeat` there is one such panel for each chosen value of that variable.
    """
    panel = framed_panel(barchart.Panel(), title, description, unit, span)
    panel = panel.no_value(hint(query.expr for query in columns))
    for number_, query in enumerate(columns):
        panel = panel.with_target(_instant(query, number_))
    if repeat:
        panel = panel.repeat(repeat).repeat_direction("h").max_per_row(24 // span)
    sort = {"sort": [{"field": along}]}
    return (
        panel.x_field(along)
        .legend(legend_below())
        .x_tick_label_rotation(-45)
        .transformations(
            [
                *_side_by_side(columns),
                models.DataTransformerConfig(id_val="sortBy", options=sort),
            ]
        )
    )


def rows(  # noqa: PLR0913 - one argument a property of the panel, all by name
    title: str,
    description: str,
    unit: str,
    *columns: Query,
    span: int = 24,
    hidden: Sequence[str] = (),
    yes_no: Sequence[str] = (),
    plain: Sequence[str] = (),
    steps: Sequence[Step] = (),
    colored: Sequence[str] | None = None,
    alerts: Sequence[str] = (),
) -> Any:
    """A table of the newest values; each query is a column, named by its legend.

    `hidden` are columns that only add their labels, `yes_no` columns of 0 and 1, `plain`
    those without the unit, `colored` those with the colours of `steps`, which all have by
    default.
    """
    panel = framed_panel(table.Panel(), title, description, unit, span, alerts)
    panel = panel.no_value(hint(query.expr for query in columns))
    for number_, query in enumerate(columns):
        panel = panel.with_target(_instant(query, number_))
    if steps:
        panel = panel.thresholds(thresholds(*steps))
        coloring = models.DynamicConfigValue(
            id_val="custom.cellOptions", value={"type": "color-text"}
        )
        every = [query.legend for query in columns]
        for name in every if colored is None else colored:
            panel = panel.override_by_name(name, [coloring])
    for query in columns:
        panel = panel.override_by_name(query.legend, [_ABSENT])
    for name in yes_no:
        panel = panel.override_by_name(name, [_YES_NO])
    for name in plain:
        panel = panel.override_by_name(name, [_PLAIN])
    return panel.transformations(_side_by_side(columns, hidden))


def _side_by_side(columns: Sequence[Query], hidden: Sequence[str] = ()) -> list[Any]:
    """One table of all columns, each named by its legend."""
    names = {
        f"Value #{chr(ord('A') + n)}" if len(columns) > 1 else "Value": query.legend
        for n, query in enumerate(columns)
    }
    # What is hidden goes before anything is renamed.
    excluded = {"Time": True} | {
        column: True for column, title in names.items() if title in hidden
    }
    return [
        models.DataTransformerConfig(id_val="merge", options={}),
        models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": excluded, "renameByName": names},
        ),
    ]
