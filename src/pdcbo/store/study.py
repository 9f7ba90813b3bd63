"""A study: an optimizer with the same ask, tell and fail, whose every event is on disk before it is acknowledged.

    ask    read what is new -> model proposes (no lock held) -> lock, guards, append, COMMIT -> answer
    tell   lock, read what is new, check against the ledger, append, COMMIT -> answer; the models learn when next asked

Two processes may use one study at once. A call that fails with `StoreError` may or may not have reached the disk. It
may be repeated: a tell or a fail is known by its suggestion, everything else by its `key`. Without a key the same
object knows it again, as long as no other call has written since; after a restart it could count twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as DeadlineError
from threading import TIMEOUT_MAX
from typing import Any

import numpy as np

from pdcbo.certificates import Certificate
from pdcbo.guards import Guards
from pdcbo.optimizers import Suggestion
from pdcbo.optimizers.base import UNCHANGED
from pdcbo.optimizers.ledger import DROPPED, Step
from pdcbo.optimizers.past import as_rows
from pdcbo.optimizers.summary import Summary
from pdcbo.problem import Constraint, Problem, Values, as_positive, as_quantity
from pdcbo.store.backends import StoreError
from pdcbo.store.core import Conflict, StudyCore
from pdcbo.store.draft import Draft, choose_fallback, guarded, ordered
from pdcbo.store.failpoints import failpoint
from pdcbo.store.journal import Event, Journal
from pdcbo.store.opening import open_journal, opened
from pdcbo.store.replay import constraint_changes
from pdcbo.store.values import as_failure_reason, as_json, as_json_values, as_key, as_reason

STOP_SECONDS = 5.0


class Study(StudyCore):
    """A durable study; made by `Study.open`."""

    @classmethod
    def open(
        cls,
        store: str | os.PathLike[str] | Journal,
        name: str,
        problem: Problem | None = None,
        *,
        optimizer: str | None = None,
        horizon: int | None = None,
        seed: int | None = None,
        delta: float | None = None,
        guards: Guards | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Study:
        """Open a study, or create it if there is none of this name.

        Args:
            store: `sqlite:///file.db`, `postgresql://user@host/database`, a file's path, or an open journal.
            name: of the study: letters, digits, `_`, `-` and `.`, at most 64.
            problem: needed to create it. Where the study exists, a problem with all that goes with it must be what it
                was created with; without a problem, what else is given must be.
            optimizer: a name in `pdcbo.OPTIMIZERS`; a new study has "pdcbo".
            horizon: see the optimizer.
            seed: see the optimizer; a new study has 0.
            delta: see the optimizer; a new study has 0.05.
            guards: see `pdcbo.guards`; later ones are set by `set_guards`.
            settings: other arguments of the optimizer.

        Raises:
            KeyError: there is no such study and no problem was given.
            TypeError, ValueError: something malformed, or the study exists with another definition.
            StoreError: the store cannot be read or written, or is a file that does not exist and no problem was given.
        """
        journal = open_journal(store, create=problem is not None)
        given = {"optimizer": optimizer, "horizon": horizon, "seed": seed, "delta": delta, "guards": guards}
        try:
            study = opened(journal, name, problem, {k: v for k, v in given.items() if v is not None}, settings)
        except BaseException:
            if journal is not store:
                journal.close()
            raise
        return cls(journal, name, study)

    # Ask and tell

    def ask(
        self, context: Values | None = None, *, key: str | None = None, deadline: float | None = None
    ) -> Suggestion:
        """Propose parameters for a context and put them on record.

        Args:
            context: as the problem names it.
            key: the caller's name for this call; asked again with it, the same suggestion comes back.
            deadline: seconds after which the fallback is proposed instead; by default that of the guards.

        Raises:
            Conflict: the key was used before for something else.
            TypeError, ValueError: the context, the key or the deadline is malformed.
            StoreError: it may or may not be on record; the call may be repeated with the same key.
        """
        started = time.monotonic()
        deadline = None if deadline is None else as_positive(deadline, "deadline")
        given, key = as_json_values(context, "context") or {}, as_key(key)
        with self.record() as record:
            record.book.problem.encode_context(given)
            if (answer := self._answer(key, given)) is not None:
                return answer
            deadline = record.guards.deadline if deadline is None else deadline
            order = ordered(record, given)
        failpoint("ask-begin")
        draft = order or self._model_draft(given, deadline, started)
        failpoint("ask-proposed")
        with self._writing() as record:
            if (answer := self._answer(key, given)) is not None:
                return answer
            draft = ordered(record, given) or draft
            step, payload = guarded(record, draft)
            self._append(record, "ask", payload, key)
            failpoint("ask-appended")
        failpoint("ask-done")
        self._checkpoint_if_due(record)
        return step.suggestion

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
        """Put on record what the plant answered; see `Optimizer.tell`.

        Args:
            suggestion: or its id.
            objective: the measured cost, None if it was not measured.
            constraints: name -> measured value or None.
            applied: the parameters that were really used, where they differ.
            context: the context that really held, where it differs.
            reference: the lowest cost that was possible in this step, where it is known (a simulation): it is learned
                from by nothing and only shown, as regret.

        Raises:
            Conflict: the suggestion was settled before with another result.
            TypeError, ValueError: a value is malformed.
            StoreError: it may or may not be on record; the same call may be repeated.
        """
        payload = {
            "objective": as_json(objective, "objective"),
            "constraints": as_json_values(constraints, "constraints") or {},
            "applied": as_json_values(applied, "applied"),
            "context": as_json_values(context, "context"),
            "reference": None if reference is None else as_quantity(reference, "reference"),
        }
        self._settle("tell", suggestion, payload)

    def fail(self, suggestion: Suggestion | int, reason: str = "", *, applied: bool = True) -> None:
        """Put on record that a suggestion brought no measurement; see `Optimizer.fail`."""
        self._settle("fail", suggestion, {"reason": as_failure_reason(reason), "applied": as_json(applied, "applied")})

    def correct(
        self,
        suggestion: Suggestion | int,
        *,
        objective: float | None = UNCHANGED,
        constraints: Values | None = None,
        key: str | None = None,
    ) -> None:
        """Replace measured values, or supply late ones; see `Optimizer.correct`."""
        payload = {} if objective is UNCHANGED else {"objective": as_json(objective, "objective")}
        if constraints is not None:
            payload["constraints"] = as_json_values(constraints, "constraints")
        with self._writing() as record:
            number = record.book.ledger.find(suggestion).suggestion.id
            self._order(record, "correct", {"id": number, **payload}, key)

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
        """Learn from a table of past operation; all rows enter as one event or none. Return how many there were."""
        table = [as_json(row, f"rows[{i}]") for i, row in enumerate(as_rows(rows))]
        if table:
            self._command("observe", {"rows": table}, key)
        return len(table)

    def set_limits(self, limits: Values, *, key: str | None = None) -> None:
        """Change limits for suggestions asked from now on; see `Optimizer.set_limits`."""
        if not isinstance(limits, Mapping):
            raise TypeError(f"limits must be a mapping of names, got {limits!r}")
        plain = {
            n: v.to_json() if isinstance(v, Constraint) else as_json(v, f"limits[{n!r}]") for n, v in limits.items()
        }
        self._command(
            "limits", {"limits": plain}, key, lambda record: record.book.problem.with_limits(constraint_changes(plain))
        )

    # What an operator orders

    def set_guards(self, guards: Guards | Mapping[str, Any], *, key: str | None = None) -> None:
        """Put other guards in force from the next suggestion on."""
        if guards is None:
            raise TypeError("guards must be Guards or a mapping, got None; Guards() removes all of them")
        given = guards if isinstance(guards, Guards) else Guards.from_json(guards)
        self._command("guards", given.check(self.problem).to_json(), key)

    def pause(self, reason: str = "", *, key: str | None = None) -> None:
        """Hold the newest parameters until `resume`; the plant is still answered, nothing new is tried.

        The newest are those of the latest suggestion, which is taken for applied while it is pending; where that was
        reported as never run, those applied last.
        """
        self._command("pause", {"reason": as_reason(reason)}, key)

    def resume(self, reason: str = "", *, key: str | None = None) -> None:
        """End a pause or a return to known-good parameters."""
        self._command("resume", {"reason": as_reason(reason)} if reason else {}, key)

    def set_known_good(self, parameters: Values | Suggestion | int, *, key: str | None = None) -> None:
        """Name the parameters to return to in need, or the suggestion that had them: as applied, where it was told.

        Raises:
            Conflict: the suggestion never ran.
        """
        key = as_key(key)
        if isinstance(parameters, Mapping):
            given = as_json_values(parameters, "parameters") or {}
            with self._writing() as record:
                problem = record.book.problem
                problem.encode_parameters(given)
                plain = problem.plain_parameters(given)
                self._order(
                    record, "known-good", {"parameters": plain}, key,
                    lambda record: record.guards.admit(problem, plain, "parameters"),
                )  # fmt: skip
        elif isinstance(parameters, Suggestion | int | np.integer) and not isinstance(parameters, bool):
            with self._writing() as record:
                step = record.book.ledger.find(parameters)
                number = step.suggestion.id
                earlier = None if key is None else self.journal.by_key(self._id, key)
                if earlier is not None and earlier.payload.get("suggestion") == number:
                    return
                if step.status == DROPPED:
                    raise Conflict(f"suggestion {number} never ran; name parameters that did")
                ran = record.applied(number)
                record.guards.admit(record.book.problem, ran, "parameters")
                self._order(record, "known-good", {"parameters": ran, "suggestion": number}, key)
        else:
            raise TypeError(f"parameters must be a mapping of names, a Suggestion or its id, got {parameters!r}")

    def return_to_known_good(self, reason: str = "", *, key: str | None = None) -> None:
        """Propose the known-good parameters from now on, as fast as the rate limits allow, until `resume`."""
        if self._current().known_good is None:
            raise Conflict("no known-good parameters are set; name them with set_known_good first")
        self._command("return", {"reason": as_reason(reason)}, key)

    # What is known

    @property
    def problem(self) -> Problem:
        """The problem with the limits in force."""
        return self._current().book.problem

    @property
    def horizon(self) -> int | None:
        """The number of steps planned."""
        return self._current().book.horizon

    @property
    def step(self) -> int:
        """The number of steps that count."""
        return self._current().book.step

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions nobody has settled, oldest first."""
        with self.record() as record:
            return record.book.pending

    @property
    def seq(self) -> int:
        """The number of events on record."""
        return self._current().seq

    @property
    def trouble(self) -> str | None:
        """In words, why the model could not be formed the last time it was needed, or None."""
        return self._follower.trouble

    def events(self, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the journal's events after a seq."""
        return self.journal.events(self._id, after, limit)

    def certificate(self, delta: float | None = None) -> dict[str, Certificate]:
        """Return what can be said of each limit's true average; see `Optimizer.certificate`."""
        with self.optimizer() as optimizer:
            return optimizer.certificate(delta)

    def summary(self) -> Summary:
        """Return what an operator wants to know, in words; `.data` holds the same as JSON data."""
        with self.optimizer() as optimizer:
            return optimizer.summary()

    def state(self) -> dict[str, Any]:
        """Return the optimizer's state; `OPTIMIZERS[name].restore` continues from it without the store."""
        with self.optimizer() as optimizer:
            return optimizer.state()

    def close(self) -> None:
        """Let the threads of models and checkpoints end and close the store."""
        for worker in (self._worker, self._clerk):
            worker.stop(STOP_SECONDS, self.journal.close)  # a late job opens the store once more
        self.journal.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        with self.record() as record:
            state = f"paused ({record.paused})" if record.paused else "running"
            state = f"returning to known-good parameters ({record.returning})" if record.returning else state
            return f"<Study {self.name!r}: {record.created['optimizer']}, step {record.book.step}, {state}>"

    # Inside

    def _settle(self, kind: str, suggestion: Suggestion | int, payload: dict[str, Any]) -> None:
        failpoint("tell-begin")
        with self._writing() as record:
            number = record.book.ledger.find(suggestion).suggestion.id
            payload = {"id": number, **payload}
            settled = record.settled_as(number)
            if settled is not None:
                before, now = record.in_full(settled[1]), record.in_full(payload)
                if settled[0] == kind and before == now:
                    return
                elsewhere = settled[0] == kind and any(before.get(k) != now.get(k) for k in ("applied", "context"))
                remedy = record.book.ledger.steps[number].remedy(elsewhere=elsewhere)
                raise Conflict(f"suggestion {number} was settled before ({settled[0]}) with another result; {remedy}")
            self._append(record, kind, payload, None)
            failpoint(f"{kind}-appended")
        failpoint("tell-done")

    def _answer(self, key: str | None, context: dict[str, Any]) -> Suggestion | None:
        """Return the suggestion that this call was answered with before, or would have been but for a failing store."""
        if key is None:
            known = self._repeated("ask", lambda payload: bool(payload["step"]["suggestion"]["context"] == context))
        else:
            known = self.journal.by_key(self._id, key)
        if known is None:
            return None
        if known.kind != "ask" or known.payload["step"]["suggestion"]["context"] != context:
            raise Conflict(f"key {key!r} was used before for another call ({known.kind}); use a new one")
        return Step.from_json(known.payload["step"]).suggestion

    def _model_draft(self, context: dict[str, Any], deadline: float | None, started: float) -> Draft:
        def propose() -> Draft:
            with self._follower.caught_up() as (optimizer, seq):
                with self.record() as record:  # which others change while the model proposes
                    guards, running = record.guards, record.running()
                try:
                    draft = Draft.from_model(optimizer, guards, running, optimizer.propose(context), seq)
                except BaseException as error:
                    self._follower.discard(error)
                    raise
                self._follower.trouble = None
                return draft

        try:
            if deadline is None:
                return propose()
            job = self._worker.submit(propose)
            try:
                left = max(0.0, deadline - (time.monotonic() - started))
                draft: Draft = job.result(min(left, TIMEOUT_MAX))
                return draft
            except DeadlineError:
                job.cancel()
                why = f"the model did not answer within {deadline:g} s"
        except (StoreError, KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:
            why = f"the model could not be formed ({type(error).__name__}: {error})"
        with self.record() as record:
            return choose_fallback(record, context, why)
