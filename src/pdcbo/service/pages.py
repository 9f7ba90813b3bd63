"""Pages for people and the figures on them."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from pdcbo import figures
from pdcbo.history import History
from pdcbo.optimizers.modelled import ModelBased
from pdcbo.service import html
from pdcbo.service.routes import REFUSED, StudyPath, find, registry
from pdcbo.service.security import COOKIE, SESSION_SECONDS, token_is_known
from pdcbo.store import Study
from pdcbo.store.status import history_of, status

log = logging.getLogger("pdcbo.service")

api = APIRouter(prefix="/api/v1", responses=REFUSED)
router = APIRouter(include_in_schema=False)

LOGIN_BYTES = 4096
STATIC = {"app.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8"}


class FigureCache:
    """The latest figures of each study, so that many watchers cost as much as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._kept: dict[tuple[str, str], tuple[int, figures.Figure]] = {}

    def get(self, study: Study, kind: str, make: Callable[[], figures.Figure]) -> figures.Figure:
        """Return what `make` gives, made anew only after the study has changed."""
        place = (study.name, kind)
        with self._lock:
            lock = self._locks.setdefault(place, threading.Lock())
        with lock:  # whoever comes meanwhile waits for the same figure instead of making it again
            seq = study.seq
            kept = self._kept.get(place)
            if kept is None or kept[0] != seq:
                kept = self._kept[place] = (seq, make())
            return kept[1]


def _cache(request: Request) -> FigureCache:
    kept: FigureCache = request.app.state.figures
    return kept


def _history(study: Study) -> History:
    with study.record() as record:
        return history_of(record)


@api.get("/studies/{name}/figures")
def history_figures(request: Request, name: StudyPath) -> dict[str, Any]:
    """Return the figures that need no model, by name, for Plotly."""
    study = find(request, name)
    return _cache(request).get(study, "figures", lambda: figures.history_figures(_history(study), study.noise_levels()))


@api.get("/studies/{name}/figures/posterior")
def posterior_figure(request: Request, name: StudyPath) -> dict[str, Any]:
    """Return what the models believe at the latest context, with the latest suggestion marked."""
    study = find(request, name)

    def make() -> figures.Figure:
        with study.record() as record:
            suggestion = record.latest
        if suggestion is None:
            raise HTTPException(404, "nothing was asked yet, so there is no context to show")
        with study.optimizer() as optimizer:
            if not isinstance(optimizer, ModelBased):
                raise HTTPException(404, f"{optimizer.name!r} has no models")
            return figures.posterior_figure(optimizer, suggestion.context, suggestion.parameters)

    return _cache(request).get(study, "posterior", make)


@router.get("/", response_class=HTMLResponse)
def index(request: Request) -> HTMLResponse:
    """List the studies."""
    return HTMLResponse(html.index([_listed(request, name) for name in registry(request).names()]))


def _listed(request: Request, name: str) -> dict[str, Any]:
    """Return what the list shows of a study; one that cannot be read says so and hides no other."""
    try:
        return registry(request).facts(name)
    except Exception as error:
        log.error("unreadable", extra={"fields": {"study": name, "error": str(error)}})
        alarm = {"level": "alarm", "text": f"It cannot be read: {error}"[:300]}
        return {"name": name, "mode": "unreadable", "step": None, "horizon": None, "alarms": [alarm]}


@router.get("/studies/{name}", response_class=HTMLResponse)
def study_page(request: Request, name: StudyPath) -> HTMLResponse:
    """Show a study live."""
    study = find(request, name)
    return HTMLResponse(html.study(status(study), study.problem.to_json(), registry(request).names()))


@router.get("/studies/{name}/status", response_class=HTMLResponse)
def study_status(request: Request, name: StudyPath) -> HTMLResponse:
    """Return the part of the page that changes."""
    study = find(request, name)
    return HTMLResponse(html.status(status(study)))


@router.get("/login", response_class=HTMLResponse)
def login_page() -> HTMLResponse:
    """Ask for a token."""
    return HTMLResponse(html.login(""))


@router.post("/login")
async def login(request: Request) -> Response:
    """Give a browser a session for a token."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LOGIN_BYTES:  # before it is parsed: this is open to everybody, and the loop waits meanwhile
            return HTMLResponse(html.login("That is longer than any token."), status_code=413)
    [token] = parse_qs(body.decode("latin-1")).get("token", [""])[:1]
    hashes = registry(request).journal.tokens
    if request.app.state.require_token and not await run_in_threadpool(token_is_known, token, hashes):
        return HTMLResponse(html.login("That token is not known."), status_code=401)
    answer = RedirectResponse("/", status_code=303)
    session = request.app.state.sessions.create(token)
    answer.set_cookie(
        COOKIE, session, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return answer


@cache
def _plotly() -> tuple[bytes, bytes]:
    """Return Plotly's script from its installed package, plain and compressed."""
    plain = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return plain, gzip.compress(plain, 6)


@router.get("/static/{file}")
def static(request: Request, file: str) -> Response:
    """Serve the page's own script and style, and Plotly's script."""
    if file == "plotly.min.js":
        plain, packed = _plotly()
        headers = {"Cache-Control": "max-age=86400", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, media_type="text/javascript", headers={**headers, "Content-Encoding": "gzip"})
        return Response(plain, media_type="text/javascript", headers=headers)
    if file not in STATIC:
        raise HTTPException(404, "no such file")
    body = (files("pdcbo.service") / "static" / file).read_bytes()
    return Response(body, media_type=STATIC[file], headers={"Cache-Control": "no-cache"})
