"""The OpenTelemetry collector takes what is pushed and never answers."""

from __future__ import annotations

from typing import ClassVar, Literal

from loadtests.chaos.faults.peers import PeerFault


class OtlpHang(PeerFault):
    """Pushes run into their deadline; nothing else of the sidecar may wait for them."""

    kind: Literal["otlp_hang"] = "otlp_hang"

    peer: ClassVar[str] = "otlp"
