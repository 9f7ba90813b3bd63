"""The application: routes, the gate in front of them, and answers that are always JSON with a reason."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

import pdcbo
from pdcbo.service import live, pages, routes
from pdcbo.service.models import Problem
from pdcbo.service.registry import Registry
from pdcbo.service.security import Gate, Sessions
from pdcbo.service.telemetry import Metrics
from pdcbo.store import Conflict, ModelError, SchemaError, StoreError, Study

log = logging.getLogger("pdcbo.service")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_BODY = 1 << 20
THREADS = 200


class Json(JSONResponse):
    """JSON in ASCII, so that any string a client sent can be sent back, and never with NaN."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def create_app(
    store: str, *, hosts: frozenset[str] = LOOPBACK, require_token: bool = False, max_body: int = MAX_BODY
) -> FastAPI:
    """Return the service on a store.

    Args:
        store: its address; see `Study.open`.
        hosts: names the service answers to, beside none: a foreign Host header is refused.
        require_token: every request must carry a token known to the store.
        max_body: bytes that a request's body may have.
    """
    registry = Registry(store)
    metrics = Metrics()
    sessions = Sessions()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry.attach(asyncio.get_running_loop())
        app.state.stopping = asyncio.Event()
        # asks wait for models in these threads, and nobody else is to wait for a free one
        current_default_thread_limiter().total_tokens = THREADS
        await run_in_threadpool(registry.names)  # the store is reachable and its schema known, or we do not start
        yield
        await run_in_threadpool(registry.close)
        log.info("stopped")

    app = FastAPI(
        title="pdcbo",
        version=pdcbo.__version__,
        summary="Tune running control systems: ask for parameters, tell what came of them.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        default_response_class=Json,
    )
    app.state.registry, app.state.metrics, app.state.sessions = registry, metrics, sessions
    app.state.require_token = require_token
    app.state.figures = pages.FigureCache()
    app.state.stopping = asyncio.Event()
    app.include_router(routes.router)
    app.include_router(live.router)
    app.include_router(pages.api)
    app.include_router(pages.router)
    app.add_middleware(
        Gate,
        hosts=hosts,
        max_body=max_body,
        metrics=metrics,
        hashes=registry.journal.tokens if require_token else None,
        sessions=sessions,
    )
    _handlers(app)

    @app.get("/healthz", responses={503: {"model": Problem}})
    def healthz() -> dict[str, str]:
        """Tell whether the store answers."""
        registry.names()
        return {"status": "ok", "version": pdcbo.__version__}

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: {"model": Problem}, 503: {"model": Problem}})
    def prometheus() -> PlainTextResponse:
        """Return metrics in the Prometheus text format."""
        text = metrics.text(_gauges(registry))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


def _gauges(registry: Registry) -> Iterator[dict[str, Any]]:
    """Yield what is known of each study: of one that nobody has called yet its events, as the rest needs a replay."""
    opened = {study.name: study for study in registry.open_studies()}
    for name in registry.names():
        if name in opened:
            yield _gauges_of(opened[name])
        elif (study := registry.journal.find(name)) is not None:
            yield {"study": name, "events": registry.journal.latest(study)}


def _gauges_of(study: Study) -> dict[str, Any]:
    with study.record() as record:
        return {
            "study": study.name,
            "steps": record.book.step,
            "pending": len(record.open),
            "events": record.seq,
            "running": int(record.paused is None and not record.returning),
            "fallbacks": sum(note["origin"] == "fallback" for note in record.notes.values()),
        }


def _handlers(app: FastAPI) -> None:
    def answer(status: int, error: str, headers: dict[str, str] | None = None, **more: Any) -> Json:
        return Json({"error": error, "fields": [], "kind": None, **more}, status_code=status, headers=headers)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> Json:
        """Name the fields and, cut short, what they held."""
        found = error.errors()
        fields = [
            f"{'.'.join(str(part)[:100] for part in e['loc'])}: {str(e['msg'])[:300]}, got {repr(e.get('input'))[:100]}"
            for e in found
        ]
        if any(e["type"] == "json_invalid" for e in found):
            return answer(400, "the body is not JSON", fields=fields[:1])
        if any(tuple(e["loc"]) == ("body",) and isinstance(e.get("input"), str | bytes) for e in found):
            return answer(422, "the body must be a JSON object, sent with the header Content-Type: application/json")
        kind = "type" if any(e["type"].endswith("_type") for e in found[:1]) else None
        return answer(422, fields[0] if fields else "malformed", fields=fields[:50], kind=kind)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Json:
        kind = getattr(error, "kind", None)
        return answer(error.status_code, str(error.detail)[:2000], dict(error.headers or {}), kind=kind)

    @app.exception_handler(Conflict)
    def conflict(request: Request, error: Conflict) -> Json:
        return answer(409, str(error)[:2000])

    async def unavailable(request: Request, error: Exception) -> Json:
        log.error("unavailable", extra={"fields": {"error": str(error)}})
        return answer(503, str(error)[:2000], headers={"Retry-After": "1"})

    for kind in (StoreError, ModelError, SchemaError):
        app.add_exception_handler(kind, unavailable)
