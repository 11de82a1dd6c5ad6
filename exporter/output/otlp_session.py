"""HTTP session to an OTLP collector, with bounds on answers and on time.

requests would follow the environment's proxies and ~/.netrc, read an answer of any size
and wait for as long as bytes come; the SDK takes a redirect, the page of a login and an
answer that rejects everything for success.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import requests
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1 import (  # noqa: TID251 - its messages only
    metrics_service_pb2,
)
from requests.adapters import HTTPAdapter

from exporter.triton.patience import POOL_CLASSES

if TYPE_CHECKING:
    import ssl

    from requests import PreparedRequest, Response

MAX_ANSWER_BYTES: Final = 64 << 10


class CollectorSession(requests.Session):
    """A session that reads the beginning of an answer, in the time there is for it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self.trust_env = False
        self.headers["accept-encoding"] = "identity"  # or the answer could not be read
        for scheme in ("http://", "https://"):
            self.mount(scheme, _BoundedAdapter(context))

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        """Return the answer with its body cut at the size that is read.

        Raises:
            requests.RequestException: there is none in time, or it is a redirect, no
                answer of OTLP, or rejects data.
        """
        # requests would follow a redirect before anyone here sees it.
        kwargs |= {"stream": True, "allow_redirects": False}
        response = super().send(request, **kwargs)
        # A decompressed body could be a thousand times as long; it is not read.
        body = response.raw.read(MAX_ANSWER_BYTES, decode_content=False)
        if len(body) == MAX_ANSWER_BYTES:
            response.raw.close()
        response.raw = io.BytesIO(body)
        if response.is_redirect:
            raise requests.TooManyRedirects(
                f"found a redirect (HTTP {response.status_code}); use the address it "
                "points to"
            )
        whole = len(body) < MAX_ANSWER_BYTES
        if response.ok and whole and "content-encoding" not in response.headers:
            _check(response.headers.get("content-type", ""), body)
        return response


def _check(kind: str, body: bytes) -> None:
    if kind.startswith("text/html"):
        raise requests.RequestException(
            "found a page of HTML; want an OTLP collector at this address"
        )
    if not kind.startswith("application/x-protobuf"):
        return
    try:
        # In the answer to spans the fields have the same numbers and types.
        answer = metrics_service_pb2.ExportMetricsServiceResponse.FromString(body)
    except DecodeError:
        raise requests.RequestException("the answer is not one of OTLP") from None
    refused = answer.partial_success
    if refused.rejected_data_points:
        raise requests.RequestException(
            f"rejected {refused.rejected_data_points}: {refused.error_message}"
        )


class _BoundedAdapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)
        self.poolmanager.pool_classes_by_scheme = POOL_CLASSES
