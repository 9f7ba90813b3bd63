"""A study on a service, with the optimizer's own interface: `pdcbo.connect(url, study)`.

Calls are repeated when the service cannot be reached or says that it is unavailable, with growing pauses; that is safe,
because every ask and every order carries a key of its own and a tell is known by its suggestion.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from pdcbo.certificates import Bound, Certificate
from pdcbo.guards import Guards
from pdcbo.optimizers.base import UNCHANGED
from pdcbo.optimizers.ledger import Suggestion
from pdcbo.optimizers.modelled import models_to_json
from pdcbo.optimizers.past import as_rows
from pdcbo.optimizers.summary import Summary
from pdcbo.problem import Constraint, Problem, Scalar, Values, as_number, as_positive, as_whole
from pdcbo.store.core import Conflict
from pdcbo.store.opening import check_name
from pdcbo.store.values import as_failure_reason, as_json, as_json_values, as_reason

RETRIED = (502, 503, 504)


class ServiceError(RuntimeError):
    """Say that the service could not be reached, or failed, in spite of repetitions."""


class RemoteStudy:
    """A study on a service; made by `connect`."""

    def __init__(
        self, url: str, study: str, *, token: str | None = None, timeout: float = 30.0, retries: int = 6
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {_token(token)}"}
        self.name = study
        self.retries = retries
        self._http = httpx.Client(base_url=f"{url.rstrip('/')}/api/v1", headers=headers, timeout=timeout)
        self._path = f"/studies/{quote(study, safe='')}"

    def ask(
        self, context: Values | None = None, *, key: str | None = None, deadline: float | None = None
    ) -> Suggestion:
        """Propose parameters for a context; see `Study.ask`."""
        body = {"context": as_json_values(context, "context") or {}, "key": _key(key), "deadline": deadline}
        return _suggestion(self._call("POST", "/ask", body))

    def tell(
        self,
        suggestion: Suggestion | int,
        objective: float | None,
        constraints: Values | None = None,
        *,
        applied: Values | None = None,
        context: Values | None = None,
        reference: float | None = None,
    ) -> None:
        """Report what the plant answered; see `Study.tell`."""
        body = {
            "objective": objective,
            "constraints": as_json_values(constraints, "constraints") or {},
            "applied": as_json_values(applied, "applied"),
            "context": as_json_values(context, "context"),
            "reference": reference,
            **_proposed(suggestion),
        }
        self._call("POST", f"/suggestions/{_id(suggestion)}/tell", body)

    def fail(self, suggestion: Suggestion | int, reason: str = "", *, applied: bool = True) -> None:
        """Report that a suggestion brought no measurement."""
        body = {"reason": as_failure_reason(reason), "applied": applied, **_proposed(suggestion)}
        self._call("POST", f"/suggestions/{_id(suggestion)}/fail", body)

    def correct(
        self,
        suggestion: Suggestion | int,
        *,
        objective: float | None = UNCHANGED,
        constraints: Values | None = None,
        key: str | None = None,
    ) -> None:
        """Replace measured values, or supply late ones."""
        body = {"constraints": as_json_values(constraints, "constraints"), "key": _key(key), **_proposed(suggestion)}
        if objective is not UNCHANGED:
            body["objective"] = objective
        self._call("POST", f"/suggestions/{_id(suggestion)}/correct", body)

    def observe(
        self,
        parameters: Values,
        context: Values | None = None,
        *,
        objective: float | None = None,
        constraints: Values | None = None,
        key: str | None = None,
    ) -> None:
        """Learn from past operation that nobody asked for."""
        row = {"parameters": parameters, "context": context or {}, "objective": objective,
               "constraints": constraints or {}}  # fmt: skip
        self.observe_table([row], key=key)

    def observe_table(self, rows: Iterable[Mapping[str, Any]], *, key: str | None = None) -> int:
        """Learn from a table of past operation; either all rows enter or none."""
        table = list(as_rows(rows))
        if table:
            self._call("POST", "/observe", {"rows": table, "key": _key(key)})
        return len(table)

    def set_limits(self, limits: Values, *, key: str | None = None) -> None:
        """Change limits for suggestions asked from now on."""
        if not isinstance(limits, Mapping):
            raise TypeError(f"limits must be a mapping of names, got {limits!r}")
        plain = {n: v.to_json() if isinstance(v, Constraint) else v for n, v in limits.items()}
        self._call("POST", "/limits", {"limits": plain, "key": _key(key)})

    def set_guards(self, guards: Guards | Mapping[str, Any], *, key: str | None = None) -> None:
        """Put other guards in force."""
        self._call("PUT", "/guards", {"guards": _guards(guards), "key": _key(key)})

    def pause(self, reason: str = "", *, key: str | None = None) -> None:
        """Hold the parameters applied last until `resume`."""
        self._call("POST", "/pause", {"reason": as_reason(reason), "key": _key(key)})

    def resume(self, reason: str = "", *, key: str | None = None) -> None:
        """End a pause or a return to known-good parameters."""
        self._call("POST", "/resume", {"reason": as_reason(reason), "key": _key(key)})

    def set_known_good(self, parameters: Mapping[str, Scalar] | Suggestion | int, *, key: str | None = None) -> None:
        """Name the parameters to return to in need, or the suggestion that had them."""
        given = (
            {"parameters": parameters}
            if isinstance(parameters, Mapping)
            else {"suggestion": _id(parameters), **_proposed(parameters)}
        )
        self._call("PUT", "/known-good", {**given, "key": _key(key)})

    def return_to_known_good(self, reason: str = "", *, key: str | None = None) -> None:
        """Propose the known-good parameters from now on, until `resume`."""
        self._call("POST", "/return", {"reason": as_reason(reason), "key": _key(key)})

    def certificate(self, delta: float | None = None) -> dict[str, Certificate]:
        """Return what can be said of each limit's true average."""
        query = "" if delta is None else f"?delta={as_number(delta, 'delta')!r}"
        data = self._call("GET", "/certificate" + query)
        return {label: _certificate(c) for label, c in data.items()}

    def summary(self) -> Summary:
        """Return what an operator wants to know, in words."""
        data = self._call("GET", "/summary")
        said = Summary(data["text"])
        said.data = data["data"]
        return said

    def status(self) -> dict[str, Any]:
        """Return the state of the study: averages, pending suggestions, alarms."""
        result: dict[str, Any] = self._call("GET", "")
        return result

    def events(self, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the journal's events after a seq; where they are large, the service sends them in parts."""
        found: list[dict[str, Any]] = []
        while True:
            part = self._call("GET", f"/history?after={after}&limit={limit - len(found)}")
            found += part["events"]
            if not part["events"] or len(found) >= limit:
                return found
            after = part["next"]

    @property
    def problem(self) -> Problem:
        """The problem with the limits in force."""
        return Problem.from_json(self.status()["problem"])

    @property
    def step(self) -> int:
        """The number of steps that count."""
        return int(self.status()["step"])

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions nobody has settled, oldest first."""
        return [_suggestion(self._call("GET", f"/suggestions/{p['id']}")) for p in self.status()["pending"]]

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> RemoteStudy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteStudy {self.name!r} on {self._http.base_url}>"

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, root: bool = False) -> Any:
        plain = None if body is None else {name: _finite(as_json(v, name), name) for name, v in body.items()}
        where = path if root else self._path + path
        pause = 0.1
        for attempt in range(self.retries + 1):
            try:
                answer = self._http.request(method, where, json=plain)
                if answer.status_code not in RETRIED:
                    return _checked(answer)
                said = _words(answer)
            except httpx.TransportError as error:
                said = f"{type(error).__name__}: {error}"
            if attempt < self.retries:
                time.sleep(pause * (0.5 + random.random()))
                pause = min(2.0 * pause, 5.0)
        raise ServiceError(
            f"{method} {str(self._http.base_url).rstrip('/')}{where} failed {self.retries + 1} times, the last time: "
            f"{said}; is the service running there?"
        )


def connect(
    url: str,
    study: str,
    problem: Problem | None = None,
    *,
    token: str | None = None,
    timeout: float = 30.0,
    retries: int = 6,
    **options: Any,
) -> RemoteStudy:
    """Connect to a study on a service; with a problem, create it if it is not there.

    Args:
        url: of the service, e.g. `http://127.0.0.1:8765`.
        study: its name.
        problem: needed to create the study.
        token: a bearer token, where the service asks for one.
        timeout: seconds for one try of a call.
        retries: of a call that did not get through.
        options: `optimizer`, `horizon`, `seed`, `delta`, `guards` and the optimizer's settings, for the creation.

    Raises:
        KeyError: there is no such study and no problem was given.
        TypeError: the problem is none, or options were given without one.
        ValueError: the url, the name or a number is none.
        ServiceError: the service cannot be reached.
    """
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, as in http://127.0.0.1:8765, got {url!r}")
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"url must be an address such as http://127.0.0.1:8765, got {url!r}: {error}") from None
    check_name(study, "study")
    if as_whole(retries, "retries") < 0:
        raise ValueError(f"retries must be at least 0, got {retries!r}")
    timeout = as_positive(timeout, "timeout")
    if problem is not None and not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    if problem is None and options:
        raise TypeError(f"{sorted(options)!r} are for the creation of a study; give a problem too, or leave them out")
    remote = RemoteStudy(url, study, token=token, timeout=timeout, retries=retries)
    try:
        if problem is None:
            remote.status()
        else:
            names = ("optimizer", "horizon", "seed", "delta")
            known: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
            guards = options.pop("guards", None)
            if guards is not None:
                known["guards"] = _guards(guards)
            if "models" in options:
                options["models"] = models_to_json(options["models"])
            body = {"name": study, "problem": problem.to_json(), **known, "settings": options}
            remote._call("POST", "/studies", body, root=True)
    except BaseException:
        remote.close()
        raise
    return remote


def _checked(answer: httpx.Response) -> Any:
    if answer.is_success:
        return answer.json()
    words, kind = _words(answer), _said(answer, "kind")
    if answer.status_code == 404:
        raise ValueError(words) if kind == "suggestion" else KeyError(words)
    if answer.status_code == 409:
        raise Conflict(words)
    if answer.status_code in (400, 413, 422):
        raise TypeError(words) if kind == "type" else ValueError(words)
    if answer.status_code in (401, 403):
        raise PermissionError(words)
    raise ServiceError(f"the service answered {answer.status_code}: {words}")


def _said(answer: httpx.Response, field_name: str) -> Any:
    try:
        return answer.json()[field_name]
    except (ValueError, KeyError, TypeError):  # it is not from the service, but from what stands before it
        return None


def _words(answer: httpx.Response) -> str:
    return str(_said(answer, "error") or answer.text[:200])


def _finite(value: Any, field_name: str) -> Any:
    """Return plain data as it is, after looking for numbers that JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        measured = math.isnan(value) and field_name.startswith(("objective", "constraints"))
        remedy = ", or None if it was not measured" if measured else ""
        raise ValueError(f"{field_name} must be a finite number{remedy}, got {value!r}")
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _finite(inner, f"{field_name}[{name!r}]")
    return value


def _token(token: object) -> str:
    """Return a token without the line's end that a file adds; an error does not show it."""
    plain = token.strip() if isinstance(token, str) else ""
    if not plain or not plain.isascii() or not plain.isprintable():
        raise ValueError("token must be what `pdcbo token` printed, letters and digits; got something else (not shown)")
    return plain


def _key(key: str | None) -> str:
    return uuid.uuid4().hex if key is None else key


def _guards(guards: Guards | Mapping[str, Any]) -> dict[str, Any] | None:
    return guards.to_json() if isinstance(guards, Guards) else as_json_values(guards, "guards")


def _id(suggestion: Suggestion | int) -> int:
    number = suggestion.id if isinstance(suggestion, Suggestion) else suggestion
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise TypeError(f"suggestion must be a Suggestion or its id, got {suggestion!r}")
    return int(number)


def _proposed(suggestion: Suggestion | int) -> dict[str, Any]:
    """Return what a suggestion proposed, for the service to hold against its own; a number has nothing to compare."""
    if not isinstance(suggestion, Suggestion):
        return {}
    return {"proposed": {"parameters": suggestion.parameters, "context": suggestion.context}}


def _suggestion(data: Mapping[str, Any]) -> Suggestion:
    bounds = {k: (v[0], v[1]) for k, v in data["bounds"].items()}
    return Suggestion(data["id"], data["parameters"], data["context"], tuple(data["outside"]), bounds)


def _certificate(data: Mapping[str, Any]) -> Certificate:
    fields = {k: v for k, v in data.items() if k != "holds"}
    for kind in ("observation", "posterior"):
        fields[kind] = None if fields[kind] is None else Bound(**fields[kind])
    return Certificate(**fields)
