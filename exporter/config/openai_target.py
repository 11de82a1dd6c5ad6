"""The target `openai`: any OpenAI-compatible server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from exporter.network.addresses import is_address
from exporter.openai.completions import Api
from exporter.settings import Headers, Settings
from exporter.triton.tls_files import TlsFiles

if TYPE_CHECKING:
    from exporter.config.kinds import AnyProbe

_URL: Final = re.compile(
    r"(https?)://([^/?#@]+?)(?P<path>(?:/[A-Za-z0-9._~-]+)*)/?", re.ASCII
)
_PORTS: Final = {"http": 80, "https": 443}
_PAGE: Final = "/metrics"


class Url(NamedTuple):
    """A URL in parts."""

    is_tls: bool
    address: str
    """host:port."""
    path: str
    """Without a slash at its end."""


def url_of(text: str) -> Url:
    """Return the parts of a URL.

    Raises:
        ValueError: it has another form than "http://host:8000", with https or a path.
    """
    found = _URL.fullmatch(text)
    if found is not None:
        scheme, address = found[1], found[2]
        if not is_address(address):
            address = f"{address}:{_PORTS[scheme]}"
        if is_address(address):
            return Url(scheme == "https", address, found["path"])
    raise ValueError('want a URL, like "http://localhost:8000"')


def _checked(text: str) -> str:
    url_of(text)
    return text


def _checked_page(text: str) -> str:
    if not url_of(text).path.endswith(_PAGE):
        raise ValueError(f'want a URL that ends in "{_PAGE}"')
    return text


class OpenAiTarget(Settings):
    """An OpenAI-compatible server, like vLLM: its models are probed with completions.

    Probes then have a timeout of 10 s and an interval of 15 s unless they set their own.
    """

    kind: Literal["openai"]
    url: Annotated[str, AfterValidator(_checked)]
    """Base URL, without `/v1`, like "http://localhost:8000"."""
    api: Api = Field(default="chat")
    """Endpoint of probes: /v1/chat/completions, or /v1/completions for models without a
    chat template."""
    max_tokens: int = Field(default=8, ge=1, le=1_000_000)
    """Maximum tokens of an answer to our own requests, unless the input `max_tokens` is
    set."""
    metrics: Annotated[str, AfterValidator(_checked_page)] | None = Field(default=None)
    """URL of its Prometheus page, like "http://localhost:8000/metrics"; null if none."""
    tls: TlsFiles | None = Field(default=None)
    """TLS files, for URLs with https."""
    headers: Headers = Field(default={}, max_length=100)
    """Sent with every request to `url`, like `Authorization: Bearer …`, and with those to
    `metrics` if that is the same host and port."""

    @model_validator(mode="after")
    def _consistent(self) -> OpenAiTarget:
        urls = [self.url] if self.metrics is None else [self.url, self.metrics]
        if self.tls is not None and not any(url_of(url).is_tls for url in urls):
            raise ValueError("found tls, but no URL with https")
        return self

    @property
    def address(self) -> str:
        """The main address."""
        return self.url


def patient(probe: AnyProbe) -> AnyProbe:
    """Return the probe with the defaults for language models, which answer slowly."""
    slow = {"timeout_seconds": 10.0, "interval_seconds": 15.0}
    unset = {k: v for k, v in slow.items() if k not in probe.model_fields_set}
    return probe.model_copy(update=unset)
