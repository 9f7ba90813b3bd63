"""Generated requests against the service's own description: no 5xx, and every answer as described.

Most generated names and numbers would only ever meet "not found"; so half of the requests are pointed at a study and a
suggestion that exist.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as reproducible
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.errors import UnsupportedSchema
from store_tools import PROBLEM

import pdcbo

WANTED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def fuzz(url: str, cases: int, seed: int) -> dict[str, int]:
    """Send about so many requests, spread evenly over the operations; return how many of each status came back."""
    seen: dict[str, int] = {"cases": 0}
    with pdcbo.connect(url, "plant", PROBLEM, optimizer="random") as remote:
        for t in range(5):
            s = remote.ask({"c": t / 5})
            if t < 3:
                remote.tell(s, 1.0, {"g": 0.1})
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    operations = [o for o in operations if not o.path.endswith("/stream")]  # it never ends; tested by itself
    checks = CHECKS.get_by_names(WANTED)
    for operation in operations:
        for mode, share in ((GenerationMode.POSITIVE, 0.6), (GenerationMode.NEGATIVE, 0.4)):
            count = max(1, round(cases * share / len(operations)))
            before = seen["cases"]
            # An operation without any argument has nothing that could be malformed, and the generator does not know
            # how to break every schema; what it cannot make is made up by bodies broken here.
            with suppress(*([Unsatisfiable, UnsupportedSchema] if mode is GenerationMode.NEGATIVE else [])):
                _send(url, operation.as_strategy(generation_mode=mode), checks, count, seen, seed)
            missing = count - (seen["cases"] - before)
            if missing > 0:
                positive = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
                _send(url, positive, checks, missing, seen, seed + 1, breaking=True)
    with pdcbo.connect(url, "plant") as remote:
        events = remote.events(limit=10_000)
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    return seen


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _send(
    url: str, strategy: Any, checks: Any, count: int, seen: dict[str, int], seed: int, breaking: bool = False
) -> None:
    @reproducible(seed)
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=strategy, aim=st.booleans(), number=st.integers(1, 6), wrong=ANYTHING, place=st.integers(0, 10))
    def send(case: Any, aim: bool, number: int, wrong: Any, place: int) -> None:
        if breaking and isinstance(case.body, dict) and case.body:
            case.body = {**case.body, sorted(case.body)[place % len(case.body)]: wrong}
        if aim and case.path_parameters:
            for name, value in (("name", "plant"), ("number", number)):
                if name in case.path_parameters:
                    case.path_parameters[name] = value
        answer = case.call(base_url=url)
        seen["cases"] += 1
        seen[str(answer.status_code)] = seen.get(str(answer.status_code), 0) + 1
        case.validate_response(answer, checks=checks)

    send()
