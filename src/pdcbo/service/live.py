"""The journal as a live stream of server-sent events.

Every event of a study is sent once, in order, with its seq as the event's id; a browser that lost its connection asks
for what came after the last id it saw. Changes through this process are sent at once; those of other processes on the
same store are found by looking twice a second. Every 15 seconds a stream says that it is there, or ends if the token
or the session that it was opened with is no longer known.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from pdcbo.service.routes import PART, REFUSED, StudyPath, find, registry
from pdcbo.store import Study
from pdcbo.store.journal import Event

router = APIRouter(prefix="/api/v1", responses=REFUSED)

LOOK_SECONDS = 0.5
BEAT_SECONDS = 15.0


@router.get(
    "/studies/{name}/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The events"}},
)
async def stream(
    request: Request,
    name: StudyPath,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Stream the events after a seq (by default: from now on) as they happen."""
    study = await run_in_threadpool(find, request, name)
    if last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17:
        after = int(last_event_id)
    start = after if after is not None else await run_in_threadpool(lambda: study.seq)
    body = _events(request, study, start)
    return StreamingResponse(body, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _events(request: Request, study: Study, after: int) -> AsyncIterator[str]:
    event = registry(request).listen(study.name)
    beat = time.monotonic()
    try:
        yield f"retry: 1000\n: from {after}\n\n"
        while not request.app.state.stopping.is_set():
            if time.monotonic() - beat >= BEAT_SECONDS:
                if await request.scope["unknown"]():
                    return
                beat = time.monotonic()
                yield ": still here\n\n"
            event.clear()
            found = await run_in_threadpool(study.events, after, PART)
            if found:
                yield "".join(map(_text, found))
                after = found[-1].seq
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), LOOK_SECONDS)
    finally:
        registry(request).leave(study.name, event)


def _text(event: Event) -> str:
    data = {"seq": event.seq, "kind": event.kind, "time": event.time, "payload": event.payload}
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {json.dumps(data)}\n\n"
