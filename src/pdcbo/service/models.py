"""What goes over the wire: strict models, so that a boolean is no number and NaN is nothing at all.

What the study itself checks is described here and not validated (`SkipValidation`): it is refused in the study's words,
which name the field, the value and what would be right, and are the same over HTTP as in the plant's own process.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SkipValidation, StrictBool, StrictInt, StrictStr
from pydantic.config import JsonDict

from pdcbo.store.opening import NAME

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Name = Annotated[str, Field(strict=True, min_length=1)]
Key = Annotated[str, Field(min_length=1, max_length=200), SkipValidation]
StudyName = Annotated[str, Field(strict=True, pattern=f"^{NAME.pattern}$")]
Scalar = StrictBool | StrictInt | Number | StrictStr
Values = dict[Name, Annotated[Scalar, SkipValidation]]
Reading = Annotated[Number | None, SkipValidation]
Measured = dict[Name, Reading]
HOUR = 3600
Seconds = Annotated[float, Field(strict=True, gt=0, le=HOUR)]

SUGGESTION: JsonDict = {
    "id": 1, "parameters": {"feed_rate": 4.61, "temperature": 81.3}, "context": {"price_p": 1100.0}, "outside": [],
    "bounds": {"objective": [-80.1, -60.2], "x_a": [0.1, 0.13]},
}  # fmt: skip


class Body(BaseModel):
    """A request's body: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RealSpec(Body):
    """A real number between lo and hi."""

    type: Literal["real"] = "real"
    lo: Number
    hi: Number
    log: StrictBool = False


class IntegerSpec(Body):
    """A whole number from lo to hi."""

    type: Literal["integer"]
    lo: StrictInt
    hi: StrictInt


class ChoiceSpec(Body):
    """One of several options."""

    type: Literal["choice"]
    options: Annotated[list[Scalar], Field(min_length=2, max_length=256)]


class ConstraintSpec(Body):
    """Limits on a time average."""

    upper: Number | None = None
    lower: Number | None = None
    noise: Number | None = None
    worst: Number | None = None


Range = Annotated[list[Number], Field(min_length=2, max_length=2)]
Variables = Annotated[dict[Name, Range | RealSpec | IntegerSpec | ChoiceSpec], Field(max_length=64)]
Limits = Annotated[dict[Name, Number | ConstraintSpec], Field(max_length=64)]


class ProblemSpec(Body):
    """Parameters, context and constraints in the plant's own units."""

    parameters: Annotated[Variables, Field(min_length=1)]
    context: Variables = Field(default_factory=dict)
    constraints: Limits = Field(default_factory=dict)


def _within_an_hour(deadline: Any) -> Any:
    """Refuse a number of seconds that is too large; what is no number is refused in the study's words."""
    if isinstance(deadline, int | float) and deadline > HOUR:
        raise ValueError(f"must be at most {HOUR} seconds")
    return deadline


class GuardSpec(Body):
    """What stands between a suggestion and the plant."""

    max_change: Annotated[dict[Name, Annotated[Number, SkipValidation]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    bounds: Annotated[dict[Name, Annotated[list[Scalar], SkipValidation]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    fallback: Values | None = None
    start: Values | None = None
    deadline: Annotated[Seconds | None, SkipValidation, AfterValidator(_within_an_hour)] = None


class NewStudy(Body):
    """A study to create."""

    name: StudyName
    problem: ProblemSpec
    optimizer: Name = "pdcbo"
    horizon: Annotated[int, Field(strict=True, ge=1, le=10**9)] | None = None
    seed: Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)] = 0
    delta: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.05
    guards: GuardSpec = Field(default_factory=GuardSpec)
    settings: Annotated[dict[Name, Any], Field(max_length=32)] = Field(default_factory=dict)

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "reactor",
                    "problem": {
                        "parameters": {"feed_rate": [4.0, 7.0], "temperature": [70.0, 100.0]},
                        "context": {"price_p": [834.7, 1252.1]},
                        "constraints": {"x_a": 0.12},
                    },
                    "horizon": 300,
                    "guards": {"max_change": {"temperature": 5.0}},
                }
            ]
        },
    )


class Ask(Body):
    """Ask for parameters; a key makes the call repeatable."""

    context: Values = Field(default_factory=dict)
    key: Key | None = None
    deadline: Seconds | None = None

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"context": {"price_p": 1100.0}, "key": "2026-11-15T12:00"}]}
    )


class Proposed(Body):
    """A suggestion as the caller has it: refused unless it is the one that was made here under this number."""

    parameters: Values
    context: Values = Field(default_factory=dict)


class Tell(Body):
    """What the plant answered; null means not measured."""

    objective: Reading
    constraints: Measured = Field(default_factory=dict)
    applied: Values | None = None
    context: Values | None = None
    reference: Reading = None
    proposed: Proposed | None = None

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"objective": -71.3, "constraints": {"x_a": 0.118}}]}
    )


class Fail(Body):
    """A suggestion that brought no measurement."""

    reason: StrictStr = ""
    applied: Annotated[bool, SkipValidation] = True
    proposed: Proposed | None = None

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "analyser offline"}]})


class Correct(Body):
    """Other values for a step that counts; what is not named stays."""

    objective: Reading = None
    constraints: Measured | None = None
    proposed: Proposed | None = None
    key: Key | None = None


class Row(Body):
    """One row of past operation, by group."""

    parameters: Values
    context: Values = Field(default_factory=dict)
    objective: Reading = None
    constraints: Measured = Field(default_factory=dict)


class Observe(Body):
    """Past operation to learn from: models only, no averages, no dual. A row may be flat, its names the columns."""

    rows: Annotated[
        list[Annotated[Row | dict[Name, Scalar | None], SkipValidation]], Field(min_length=1, max_length=10_000)
    ]
    key: Key | None = None


class NewLimits(Body):
    """Limits for suggestions asked from now on."""

    limits: Annotated[dict[Name, Annotated[Number | ConstraintSpec, SkipValidation]], Field(max_length=64)]
    key: Key | None = None


class NewGuards(Body):
    """Guards in force from the next suggestion on."""

    guards: GuardSpec
    key: Key | None = None


class Order(Body):
    """An operator's order."""

    reason: StrictStr = ""
    key: Key | None = None


class KnownGood(Body):
    """Parameters to return to in need, or the suggestion that had them."""

    parameters: Values | None = None
    suggestion: StrictInt | None = None
    proposed: Proposed | None = None
    key: Key | None = None


class SuggestionOut(BaseModel):
    """What to apply next."""

    id: int
    parameters: dict[str, Scalar]
    context: dict[str, Scalar]
    outside: list[str]
    bounds: dict[str, list[float]]

    model_config = ConfigDict(json_schema_extra={"examples": [SUGGESTION]})


class Accepted(BaseModel):
    """The call is on disk."""

    study: str
    step: int
    seq: int


class StudyList(BaseModel):
    """The studies of the store."""

    studies: list[str]


class EventOut(BaseModel):
    """One line of the journal."""

    seq: int
    kind: str
    payload: dict[str, Any]
    key: str | None
    time: float


class HistoryOut(BaseModel):
    """Events in order; ask for those after `next` to go on."""

    events: list[EventOut]
    next: int


class Problem(BaseModel):
    """Why a call was refused; `kind` says which, where the status leaves it open.

    It is `type` with a 422 for a value of a wrong type, and `suggestion` with a 404 where the study is there and the
    suggestion is not.
    """

    error: str
    fields: list[str] = Field(default_factory=list)
    kind: Literal["type", "suggestion"] | None = None

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"error": "context['price_p'] is missing", "fields": [], "kind": None}]}
    )
