"""Metrics pages in protobuf, as Prometheus reads them for native histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exporter.output import protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
    "encoding=delimited"
)


def delimited(body: bytes) -> Iterator[Any]:
    """The MetricFamily messages of a page, read by the fields' public numbers."""
    family = protobuf._MESSAGES["MetricFamily"]
    while body:
        length = shift = place = 0
        while True:
            byte, place = body[place], place + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield family.FromString(body[place : place + length])
        body = body[place + length :]
