"""Series of a backend that the configuration names, from the metrics page, as they are.

The configuration bounds how many names there are. Whatever a model reports, a name has one
value for each model.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from exporter import catalogue
from exporter.settings import Settings
from exporter.triton.metrics_page import lines_of, read_page

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey
    from exporter.samples import MetricSpec

MAX_SERIES: Final = 10_000
"""Limit of their own, so that they do not displace those that have names of ours."""


class BackendSeriesSettings(Settings):
    """One metric that a backend or a Python model registers."""

    series: str = Field(
        default=..., pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", max_length=200
    )
    """Name of the series on the page. Of a histogram choose `…_sum` or `…_count`."""
    labels: dict[str, str] = Field(default={}, max_length=20)
    """Labels that it must have. Series of one model that agree in them are added up."""
    kind: Literal["gauge", "counter"] = "gauge"
    """A counter is exposed as `triton_backend_count_total`."""


MoreBackendMetrics = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)],
        BackendSeriesSettings,
    ],
    Field(max_length=50),
]


Chosen = dict[tuple["MetricSpec", str], float]
"""Values by metric and name."""


class ChosenSeries:
    """Reads the chosen series of all models from a page."""

    def __init__(self, chosen: Mapping[str, BackendSeriesSettings]) -> None:
        self._chosen = chosen
        self._lines = lines_of({one.series for one in chosen.values()})

    def read(self, body: bytes, refused: Counter[str]) -> dict[ModelKey, Chosen]:
        """Return the values by model; lines that cannot be used are counted."""
        if not self._chosen:
            return {}
        page = read_page(body, self._lines, most_series=MAX_SERIES)
        refused.update(page.refused)
        found: dict[ModelKey, Chosen] = defaultdict(dict)
        for series, labels, value in page.series:
            model = model_of(labels)
            if model is None:
                continue
            for name, one in self._chosen.items():
                if one.series != series or not one.labels.items() <= labels.items():
                    continue
                if one.kind == "counter" and value < 0:
                    refused["value"] += 1
                    continue
                spec = _SPECS[one.kind]
                found[model][spec, name] = found[model].get((spec, name), 0.0) + value
        return dict(found)


_SPECS: Final = {
    "gauge": catalogue.BACKEND_VALUE,
    "counter": catalogue.BACKEND_COUNT,
}


def model_of(labels: Mapping[str, str]) -> ModelKey | None:
    """Return the model of a backend's series; vLLM without Triton knows no versions."""
    if "model" in labels and "version" in labels:
        return labels["model"], labels["version"]
    return (labels["model_name"], "") if "model_name" in labels else None
