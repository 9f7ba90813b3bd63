"""The interface under /api/v1: studies, ask and tell, an operator's orders, what is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request

from pdcbo.optimizers.ledger import Suggestion
from pdcbo.problem import Problem
from pdcbo.service import models as m
from pdcbo.service.registry import Registry
from pdcbo.store import Conflict, Event, ModelError, StoreError, Study
from pdcbo.store.journal import encode
from pdcbo.store.opening import NAME
from pdcbo.store.status import status

REFUSED: dict[int | str, dict[str, Any]] = {
    400: {"model": m.Problem, "description": "The body is not JSON"},
    401: {"model": m.Problem, "description": "A bearer token is needed"},
    403: {"model": m.Problem, "description": "A foreign Host or Origin"},
    404: {"model": m.Problem, "description": "No such study or suggestion"},
    409: {"model": m.Problem, "description": "It contradicts an earlier call"},
    413: {"model": m.Problem, "description": "The body is too large"},
    422: {
        "model": m.Problem,
        "description": "Malformed: the message names the field, the value and what would be right",
    },
    503: {
        "model": m.Problem,
        "description": "The store or the model failed, or the service stops; nothing was acknowledged, repeat the call",
    },
}
HISTORY_BYTES = 8 << 20
PART = 50  # events read at a time; one may be a table of a megabyte

router = APIRouter(prefix="/api/v1", responses=REFUSED)
StudyPath = Annotated[str, Path(pattern=f"^{NAME.pattern}$", examples=["reactor"])]
NOTHING = m.Order()
IdPath = Annotated[int, Path(ge=1, le=2**53, examples=[1])]


def registry(request: Request) -> Registry:
    """Return the service's studies."""
    studies: Registry = request.app.state.registry
    return studies


class Refusal(HTTPException):
    """An answer that says why, with the kind of `models.Problem`."""

    def __init__(self, status: int, why: str, kind: str | None = None) -> None:
        super().__init__(status, why)
        self.kind = kind


@contextmanager
def refusing(*more: type[Exception]) -> Iterator[None]:
    """Turn what a study refuses into an answer that says why."""
    refused: tuple[type[Exception], ...] = (TypeError, ValueError, *more)
    try:
        yield
    except (Conflict, ModelError, StoreError, HTTPException):
        raise  # each has an answer of its own
    except RecursionError as error:
        raise Refusal(422, "the body is nested too deeply; a value is a number, a string, true or false") from error
    except refused as error:
        raise Refusal(422, str(error), "type" if isinstance(error, TypeError) else None) from error


def find(request: Request, name: str) -> Study:
    """Return a study, or answer that there is none."""
    try:
        return registry(request).get(name)
    except KeyError as error:
        raise HTTPException(404, f"there is no study {name!r}; give a problem to create it") from error


def find_step(study: Study, number: int) -> Suggestion:
    """Return a suggestion, or answer that there is none."""
    with study.record() as record:
        try:
            return record.book.ledger.find(number).suggestion
        except ValueError as error:
            raise Refusal(404, str(error), "suggestion") from error


def given(study: Study, number: int, proposed: m.Proposed | None) -> Suggestion | int:
    """Return a suggestion that is there as the caller gave it; the study refuses one that it did not make."""
    find_step(study, number)
    return number if proposed is None else Suggestion(number, proposed.parameters, proposed.context)


def accepted(request: Request, study: Study) -> m.Accepted:
    """Wake whoever watches, let the models learn meanwhile, and answer."""
    registry(request).changed(study.name)
    study.prepare()
    with study.record() as record:
        return m.Accepted(study=study.name, step=record.book.step, seq=record.seq)


@router.get("/studies")
def list_studies(request: Request) -> m.StudyList:
    """Name the studies."""
    return m.StudyList(studies=registry(request).names())


@router.post("/studies", status_code=201)
def create_study(request: Request, body: m.NewStudy) -> m.Accepted:
    """Create a study; the same definition again is accepted, another one refused."""
    with refusing(ArithmeticError, LookupError, AttributeError, MemoryError):
        problem = Problem.from_json(body.problem.model_dump())
        definition = {
            "problem": problem,
            "optimizer": body.optimizer,
            "horizon": body.horizon,
            "seed": body.seed,
            "delta": body.delta,
            "guards": dict(body.guards),
        }
        for name in ("store", "name", *definition):
            if name in body.settings:
                raise ValueError(f"settings[{name!r}] is no setting of an optimizer; beside settings there are "
                                 f"{['name', *definition]!r}")  # fmt: skip
        study = registry(request).create(body.name, {**definition, **body.settings})
    return accepted(request, study)


@router.get("/studies/{name}")
def study_status(request: Request, name: StudyPath) -> dict[str, Any]:
    """Return what an operator wants to know: averages, pending suggestions, alarms in words."""
    study = find(request, name)
    return {**status(study), "problem": study.problem.to_json()}


@router.post("/studies/{name}/ask")
def ask(request: Request, name: StudyPath, body: m.Ask) -> m.SuggestionOut:
    """Propose parameters for a context; the same key gets the same suggestion."""
    study = find(request, name)
    with refusing():
        suggestion = study.ask(body.context, key=body.key, deadline=body.deadline)
    registry(request).changed(name)
    return m.SuggestionOut(**suggestion.to_json())


@router.get("/studies/{name}/suggestions/{number}")
def suggestion(request: Request, name: StudyPath, number: IdPath) -> m.SuggestionOut:
    """Return a suggestion as it was proposed."""
    return m.SuggestionOut(**find_step(find(request, name), number).to_json())


@router.post("/studies/{name}/suggestions/{number}/tell")
def tell(request: Request, name: StudyPath, number: IdPath, body: m.Tell) -> m.Accepted:
    """Report what the plant answered; the same body again gives the same answer, another one is refused."""
    study = find(request, name)
    suggestion = given(study, number, body.proposed)
    with refusing():
        study.tell(suggestion, body.objective, body.constraints, applied=body.applied, context=body.context,
                   reference=body.reference)  # fmt: skip
    return accepted(request, study)


@router.post("/studies/{name}/suggestions/{number}/fail")
def fail(request: Request, name: StudyPath, number: IdPath, body: m.Fail) -> m.Accepted:
    """Report that a suggestion brought no measurement."""
    study = find(request, name)
    suggestion = given(study, number, body.proposed)
    with refusing():
        study.fail(suggestion, body.reason, applied=body.applied)
    return accepted(request, study)


@router.post("/studies/{name}/suggestions/{number}/correct")
def correct(request: Request, name: StudyPath, number: IdPath, body: m.Correct) -> m.Accepted:
    """Replace measured values or supply late ones; what is not named stays."""
    study = find(request, name)
    suggestion = given(study, number, body.proposed)
    with refusing():
        cost = {"objective": body.objective} if "objective" in body.model_fields_set else {}
        study.correct(suggestion, constraints=body.constraints, key=body.key, **cost)
    return accepted(request, study)


@router.post("/studies/{name}/observe")
def observe(request: Request, name: StudyPath, body: m.Observe) -> m.Accepted:
    """Learn from past operation."""
    study = find(request, name)
    rows: list[Any] = list(body.rows)  # as they came: the study checks them
    with refusing():
        study.observe_table(rows, key=body.key)
    return accepted(request, study)


@router.post("/studies/{name}/limits")
def limits(request: Request, name: StudyPath, body: m.NewLimits) -> m.Accepted:
    """Change limits for suggestions asked from now on."""
    study = find(request, name)
    with refusing():
        study.set_limits(body.limits, key=body.key)
    return accepted(request, study)


@router.put("/studies/{name}/guards")
def guards(request: Request, name: StudyPath, body: m.NewGuards) -> m.Accepted:
    """Put other guards in force."""
    study = find(request, name)
    with refusing():
        study.set_guards(dict(body.guards), key=body.key)
    return accepted(request, study)


@router.post("/studies/{name}/pause")
def pause(request: Request, name: StudyPath, body: m.Order = NOTHING) -> m.Accepted:
    """Hold the parameters applied last until resumed."""
    study = find(request, name)
    with refusing():
        study.pause(body.reason, key=body.key)
    return accepted(request, study)


@router.post("/studies/{name}/resume")
def resume(request: Request, name: StudyPath, body: m.Order = NOTHING) -> m.Accepted:
    """End a pause or a return to known-good parameters."""
    study = find(request, name)
    with refusing():
        study.resume(body.reason, key=body.key)
    return accepted(request, study)


@router.put("/studies/{name}/known-good")
def known_good(request: Request, name: StudyPath, body: m.KnownGood) -> m.Accepted:
    """Name the parameters to return to, or the suggestion that had them."""
    study = find(request, name)
    if (body.parameters is None) == (body.suggestion is None):
        raise HTTPException(422, "give either parameters or a suggestion")
    if body.suggestion is None and body.proposed is not None:
        raise HTTPException(422, "proposed is what a suggestion proposed; give its number as suggestion")
    wanted = body.parameters or {} if body.suggestion is None else given(study, body.suggestion, body.proposed)
    with refusing():
        study.set_known_good(wanted, key=body.key)
    return accepted(request, study)


@router.post("/studies/{name}/return")
def return_to_known_good(request: Request, name: StudyPath, body: m.Order = NOTHING) -> m.Accepted:
    """Propose the known-good parameters from now on, until resumed."""
    study = find(request, name)
    with refusing():
        study.return_to_known_good(body.reason, key=body.key)
    return accepted(request, study)


@router.get("/studies/{name}/history")
def history(
    request: Request,
    name: StudyPath,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> m.HistoryOut:
    """Return the journal's events in order, fewer than the limit where they are large."""
    events: list[m.EventOut] = []
    size = 0
    for event in _in_parts(find(request, name), after, limit):
        events.append(m.EventOut(**event.to_json()))
        size += len(encode(event.payload))
        if size >= HISTORY_BYTES:
            break
    return m.HistoryOut(events=events, next=events[-1].seq if events else after)


def _in_parts(study: Study, after: int, limit: int) -> Iterator[Event]:
    while limit and (part := study.events(after, min(limit, PART))):
        yield from part
        after, limit = part[-1].seq, limit - len(part)


@router.get("/studies/{name}/certificate")
def certificate(
    request: Request, name: StudyPath, delta: Annotated[float, Query(gt=0, lt=1, allow_inf_nan=False)] | None = None
) -> dict[str, Any]:
    """Return what can be said of each limit's true average, valid at all times at once."""
    study = find(request, name)
    with refusing():
        return {label: c.to_json() for label, c in study.certificate(delta).items()}


@router.get("/studies/{name}/summary")
def summary(request: Request, name: StudyPath) -> dict[str, Any]:
    """Return the optimizer's summary: in words and as data."""
    said = find(request, name).summary()
    return {"text": str(said), "data": said.data}
