"""Rendering alone: samples in memory to a page, on one core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import figures
from fleet import fleet_of, series_in
from prometheus_client import exposition as peer_text
from prometheus_client.openmetrics import exposition as peer_openmetrics
from prometheus_client.openmetrics import parser
from timing import in_turns

from exporter.output import exposition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from figures import Figure
    from prometheus_client.core import Metric

    from exporter.samples import AnySample

_GOALS = {2_000: 12.0, 20_000: 120.0}
_ACCEPT = {
    "text": "text/plain",
    "openmetrics": "application/openmetrics-text",
    "protobuf": "application/vnd.google.protobuf;"
    "proto=io.prometheus.client.MetricFamily;encoding=delimited",
}
_PEERS = {
    "text": peer_text.generate_latest,
    "openmetrics": peer_openmetrics.generate_latest,
}


class Families:
    """The same families as prometheus_client holds them, made beforehand: its writer
    is timed without the making, ours with the grouping."""

    def __init__(self, samples: Sequence[AnySample]) -> None:
        page, _ = exposition.render(samples, accept=_ACCEPT["openmetrics"])
        self._families = list(parser.text_string_to_metric_families(page.decode()))

    def collect(self) -> Sequence[Metric]:
        """What a registry gives to the writer."""
        return self._families


def render(*, quick: bool = False) -> Iterator[Figure]:
    """Pages of 2,000 and 20,000 series, beside prometheus_client's writer."""
    for series, goal in _GOALS.items():
        samples = list(fleet_of(series).samples())
        count, families = series_in(samples), Families(samples)
        for name, accept in _ACCEPT.items():
            write = _PEERS.get(name)
            calls = [
                lambda accept=accept, samples=samples: exposition.render(
                    samples, accept=accept
                )
            ]
            if write is not None:
                calls.append(lambda write=write, families=families: write(families))
            ours, *others = (
                [1e3 * seconds for seconds in spent]
                for spent in in_turns(calls, repeats=5 if quick else 31)
            )
            peer = {}
            for theirs in others:
                peer = {
                    "peer": figures.median(theirs)["value"],
                    "ratio": figures.median_ratio(ours, theirs)["value"],
                    "peer_name": "prometheus_client, its own writer",
                }
            yield figures.at_most(
                f"exposition_{name}_{series}",
                unit="milliseconds",
                goal=goal,
                measured=f"CPU time of one thread to render {count} series of "
                f"{len(samples)} samples as {name}; median of n renders",
                n=len(ours),
                **figures.median(ours),
                **peer,
                versions=figures.versions("prometheus-client"),
            )
