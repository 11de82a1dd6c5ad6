"""Prometheus is away: nobody scrapes for a while, and then somebody does again."""

from __future__ import annotations

from typing import ClassVar, Literal

from loadtests.chaos.faults.peers import PeerFault


class PrometheusAway(PeerFault):
    """It is stopped, so no alert fires either; what it did not scrape is a gap."""

    kind: Literal["prometheus_away"] = "prometheus_away"

    peer: ClassVar[str] = "prometheus"
    stands_in: ClassVar[bool] = False
