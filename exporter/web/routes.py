"""The HTTP interface as a plain ASGI application: requests are answered from memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import structlog

from exporter.network import browsers
from exporter.network.listening import send_answer
from exporter.output import exposition
from exporter.web import page, runbooks, status
from exporter.web.multi_target import MultiTarget, ProbeRefusedError
from exporter.web.scrape_pages import Rendered, ScrapePages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from exporter.app import Sidecar

log = structlog.get_logger()

_TEXT: Final = "text/plain; charset=utf-8"
_MAX_FIELDS: Final = 100


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that handlers read."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    peer: str = ""
    """The client's address."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, body and headers of an answer."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": _TEXT})
    page: Rendered | None = None
    """The page of a scrape, to be given back when it is read."""


def _text(message: str, status_code: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(f"{message}\n".encode(), status_code)


def _html(body: bytes, policy: str) -> Response:
    return Response(
        body,
        headers={
            "content-type": "text/html; charset=utf-8",
            "cache-control": "no-store",
            "content-security-policy": policy,
            "referrer-policy": "no-referrer",
        },
    )


class Surface:
    """The routes. `reload` is None unless the lifecycle endpoints are enabled."""

    def __init__(
        self,
        sidecar: Sidecar,
        reload: Callable[[], str | None] | None,
        metrics_path: str = "/metrics",
    ) -> None:
        self._sidecar = sidecar
        self._reload = reload
        self._multi_target = MultiTarget()
        self._pages = ScrapePages()
        self._routes: dict[
            tuple[str, str], Callable[[Request], Awaitable[Response]]
        ] = {
            ("GET", metrics_path): self._metrics,
            ("GET", "/-/healthy"): self._healthy,
            ("GET", "/-/ready"): self._ready,
            ("GET", "/probe"): self._probe,
            ("GET", "/api/v1/status"): self._status,
            ("GET", "/api/v1/history"): self._history,
            ("GET", "/"): self._page,
            ("POST", "/-/reload"): self._reload_config,
            **{("GET", f"/runbooks/{x}"): self._runbook for x in runbooks.markdown()},
        }

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],  # noqa: ARG002 - no bodies
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        try:
            request = _request(scope)
        except ValueError:
            request = Request(scope["method"], scope["path"], {}, {})
            response = _text(
                f"found more than {_MAX_FIELDS} fields in the query; want fewer",
                HTTPStatus.BAD_REQUEST,
            )
        else:
            response = await self._answer(request)
        try:
            headers = {"x-content-type-options": "nosniff", **response.headers}
            is_head = request.method == "HEAD"
            await send_answer(
                send, response.status, headers, response.body, is_head=is_head
            )
        finally:
            if response.page is not None:
                self._pages.give_back(response.page)

    async def _answer(self, request: Request) -> Response:
        refused = browsers.refusal(
            request.method, request.headers, self._sidecar.config.listen.hosts
        )
        if refused is not None:
            self._sidecar.admission.web.refused["cross_site"] += 1
            return _text(refused, HTTPStatus.FORBIDDEN)
        method = "GET" if request.method == "HEAD" else request.method
        handler = self._routes.get((method, request.path))
        if handler is not None:
            return await handler(request)
        verbs = [verb for verb, path in self._routes if path == request.path]
        if not verbs:
            return _text(f"no such page: {request.path}", HTTPStatus.NOT_FOUND)
        allowed = ", ".join([*verbs, "HEAD"] if "GET" in verbs else verbs)
        refusal = _text(
            f"{request.path} accepts {allowed}", HTTPStatus.METHOD_NOT_ALLOWED
        )
        return replace(refusal, headers={**refusal.headers, "allow": allowed})

    async def _metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        encoding = request.headers.get("accept-encoding", "")
        page = self._pages.take(
            exposition.negotiated(accept, encoding),
            lambda: Rendered(
                *exposition.render(
                    self._sidecar.samples(), accept=accept, accept_encoding=encoding
                )
            ),
        )
        return Response(page.body, headers=page.headers, page=page)

    async def _healthy(self, _: Request) -> Response:
        return _text("tritonwatch is healthy")

    async def _ready(self, _: Request) -> Response:
        if self._sidecar.ready:
            return _text("tritonwatch is ready")
        return _text(
            "tritonwatch has not looked at its server yet",
            HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def _status(self, _: Request) -> Response:
        return self._json("status", lambda: status.document(self._sidecar))

    async def _history(self, request: Request) -> Response:
        board = self._sidecar.status
        model = request.query.get("model")
        key = None if model is None else (model, request.query.get("version", ""))
        # All models that are unknown share a document.
        kind = f"history {key}" if key is None or board.has_history(key) else "history"
        return self._json(kind, lambda: board.history(key))

    def _json(self, kind: str, document: Callable[[], dict[str, Any]]) -> Response:
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        page = self._pages.take(
            kind, lambda: Rendered(json.dumps(document()).encode(), headers)
        )
        return Response(page.body, headers=page.headers, page=page)

    async def _page(self, _: Request) -> Response:
        return _html(*page.document())

    async def _runbook(self, request: Request) -> Response:
        name = request.path.rpartition("/")[2]
        if "text/html" in request.headers.get("accept", ""):
            return _html(*runbooks.as_page(name, request.query.get("model", "")))
        return Response(runbooks.markdown()[name].encode())

    async def _probe(self, request: Request) -> Response:
        try:
            result = await self._multi_target.probe(
                self._sidecar.config,
                request.query,
                request.headers,
                request.peer,
                self._sidecar.access.own,
            )
        except ProbeRefusedError as refused:
            if refused.status == HTTPStatus.SERVICE_UNAVAILABLE:
                self._sidecar.admission.web.refused["probes"] += 1
            return _text(str(refused), refused.status)
        if request.query.get("debug") == "true":
            return _text(result.debug_text())
        body, headers = exposition.render(
            result.samples,
            accept=request.headers.get("accept", ""),
            accept_encoding=request.headers.get("accept-encoding", ""),
        )
        return Response(body, headers=headers)

    async def _reload_config(self, _: Request) -> Response:
        if self._reload is None:
            return _text(
                "reload over HTTP is off; start with --web.enable-lifecycle",
                HTTPStatus.FORBIDDEN,
            )
        problem = self._reload()
        if problem is not None:
            return _text(problem, HTTPStatus.INTERNAL_SERVER_ERROR)
        return _text("reloaded")


def _request(scope: Mapping[str, Any]) -> Request:
    query = parse_qs(
        scope["query_string"].decode("latin-1"), max_num_fields=_MAX_FIELDS
    )
    return Request(
        scope["method"],
        scope["path"],
        {key: values[-1] for key, values in query.items()},
        {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]},
        (scope.get("client") or ("",))[0],
    )
