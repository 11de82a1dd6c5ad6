"""The settings of pushes to an OpenTelemetry collector."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from exporter.settings import Headers, Settings
from exporter.triton.tls_files import TlsFiles

Operation = Literal["chat", "generate_content", "text_completion"]


class OtlpSettings(Settings):
    """OTLP collector to which all samples are also pushed.

    Sums are cumulative and histograms exponential. A backend that wants delta temporality may drop
    them although the push succeeds: put a collector with the processor `cumulativetodelta` before it.
    """

    endpoint: str = Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=2000)
    """The collector's base address, like http://localhost:4318 (HTTP) or
    http://localhost:4317 (gRPC)."""
    protocol: Literal["http", "grpc"] = Field(default="http")
    """OTLP over HTTP (protobuf, gzip) or over gRPC. Data that the collector rejects in an
    answer of status 200 make the push fail over HTTP; over gRPC they are not noticed."""
    tls: TlsFiles | None = Field(default=None)
    """TLS files towards a collector at an address of https."""
    interval_seconds: float = Field(default=15.0, ge=0.1, le=3600)
    """Time between two pushes."""
    timeout_seconds: float = Field(default=5.0, gt=0, le=600)
    """Timeout of a push, including retries."""
    headers: Headers = Field(default={}, max_length=100)
    """HTTP headers or gRPC metadata sent with every push."""
    resource: dict[str, str] = Field(default={}, max_length=100)
    """Resource attributes, added to service.name and the other defaults or replacing
    them."""
    traces: bool = Field(default=False)
    """Push a span for every probe, and send its context to Triton as traceparent, so
    that Triton's own trace becomes part of the same trace."""

    operations: dict[str, Operation] = Field(default={}, max_length=100)
    """`gen_ai.operation.name` of models that stream answers, by shell-style pattern of
    their names; the first that matches. `text_completion` for others: Triton does not
    show what an answer is for."""

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not address_of(value):
            raise ValueError('want a URL, like "http://localhost:4318"')
        return value


def address_of(url: str) -> str:
    """Return host and port, the only parts of a URL to log. Empty where it has none."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return ""
    return f"{parts.hostname}{port}" if parts.hostname else ""
