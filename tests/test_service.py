"""The service over real HTTP: idempotency, refusals, the client, the stream, the gate."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from store_tools import PROBLEM, answer, context, free_port, served

import pdcbo
from pdcbo.client import ServiceError
from pdcbo.guards import Guards
from pdcbo.service import live, routes, server
from pdcbo.service.security import SESSION_SECONDS, Sessions
from pdcbo.service.server import make_server
from pdcbo.store import Conflict, Study, open_journal
from pdcbo.store.journal import hash_token

API = "/api/v1/studies"


def test_a_remote_study_is_the_optimizer_to_the_last_bit(store: str) -> None:
    bare = pdcbo.PDCBO(PROBLEM, horizon=30, seed=1)
    with served(store) as url, pdcbo.connect(url, "plant", PROBLEM, horizon=30, seed=1) as remote:
        assert remote.problem == PROBLEM
        for t in range(10):
            s, r = bare.ask(context(t)), remote.ask(context(t))
            assert s == r
            objective, constraints = answer(s.parameters, s.context, t)
            for tuner in (bare, remote):
                if t == 4:
                    tuner.fail(s, "offline")
                else:
                    tuner.tell(s, np.float64(objective), constraints, applied={"a": 0.5} if t == 6 else None)
        for tuner in (bare, remote):
            tuner.observe({"a": 0.1, "b": 0.2}, {"c": 0.3}, objective=0.5)
            tuner.set_limits({"g": 0.45})
            tuner.correct(2, objective=0.4)
        assert remote.certificate() == bare.certificate()
        assert str(remote.summary()) == str(bare.summary())
        assert remote.step == bare.step == 10
        s = remote.ask(context(11))
        assert remote.pending == [s]
        remote.set_guards(Guards(max_change={"a": 0.1}))
        remote.set_known_good(s)
        remote.pause("lunch")
        remote.return_to_known_good("smoke")
        assert remote.status()["mode"] == "known-good"
        remote.resume()
        assert [e["seq"] for e in remote.events()] == list(range(1, len(remote.events()) + 1))
    with Study.open(store, "plant") as study:
        assert study.step == 10


def test_same_body_same_answer_other_body_409(service: str) -> None:
    with httpx.Client(base_url=service) as http:
        body = {"name": "plant", "problem": PROBLEM.to_json(), "optimizer": "random"}
        assert http.post(API, json=body).status_code == 201
        assert http.post(API, json=body).status_code == 201
        assert http.post(API, json={**body, "seed": 9}).status_code == 409
        one = http.post(f"{API}/plant/ask", json={"context": {"c": 0.5}, "key": "k"}).json()
        assert http.post(f"{API}/plant/ask", json={"context": {"c": 0.5}, "key": "k"}).json() == one
        assert http.post(f"{API}/plant/ask", json={"context": {"c": 0.6}, "key": "k"}).status_code == 409
        tell = {"objective": 1.0, "constraints": {"g": 0.2}}
        first = http.post(f"{API}/plant/suggestions/1/tell", json=tell)
        again = http.post(f"{API}/plant/suggestions/1/tell", json=tell)
        assert first.status_code == again.status_code == 200
        assert first.json() == again.json() == {"study": "plant", "step": 1, "seq": 3}
        other = http.post(f"{API}/plant/suggestions/1/tell", json={**tell, "objective": 2.0})
        assert other.status_code == 409
        assert "settled before" in other.json()["error"]
        assert http.post(f"{API}/plant/suggestions/7/tell", json=tell).status_code == 404
        assert http.post(f"{API}/none/ask", json={}).status_code == 404
        assert http.get(f"{API}/plant/suggestions/1").json() == one


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("plant/ask", '{"context": {"c": NaN}}', 422),
        ("plant/ask", '{"context": {"c": 1e999}}', 422),
        ("plant/ask", '{"context": {"c": -Infinity}}', 422),
        ("plant/ask", '{"context": {"c": true}}', 422),
        ("plant/ask", '{"context": {"c": "0.5"}}', 422),
        ("plant/ask", '{"context": {"c": ' + "9" * 400 + "}}", 422),
        ("plant/ask", '{"context": {}}', 422),
        ("plant/ask", '{"context": {"c": 0.5}, "extra": 1}', 422),
        ("plant/ask", '{"context": {"c": 0.5}, "key": "\\ud800"}', 422),
        ("plant/ask", '{"context": {"\\ud800": 0.5}}', 422),
        ("plant/ask", "{", 400),
        ("plant/ask", "[" * 100_000, 400),
        ("plant/ask", '{"context": ' + "9" * 5000 + "}", 400),
        ("plant/suggestions/1/tell", '{"objective": NaN, "constraints": {"g": 0.1}}', 422),
        ("plant/suggestions/1/tell", '{"objective": 1e999, "constraints": {"g": 0.1}}', 422),
        ("plant/suggestions/1/tell", '{"objective": 1, "constraints": {"g": 1e999}}', 422),
        ("plant/suggestions/1/tell", '{"objective": false, "constraints": {"g": 0.1}}', 422),
        ("plant/suggestions/1/tell", '{"constraints": {"g": 0.1}}', 422),
        ("plant/suggestions/1/fail", '{"reason": 5}', 422),
        ("plant/suggestions/0/fail", "{}", 422),
        ("plant/observe", '{"rows": [{"parameters": {"a": 0.1, "b": NaN}, "context": {"c": 0}}]}', 422),
        ("plant/limits", '{"limits": {"g": 1e999}}', 422),
        ("plant/limits", '{"limits": {"g": {"upper": 0.4, "colour": 1}}}', 422),
        ("plant/ask", '{"context": {"c": ' + "[" * 500 + "]" * 500 + "}}", 422),
        ("plant/observe", '{"rows": [' + '{"a":' * 500 + "1" + "}" * 500 + "]}", 422),
        ("plant/suggestions/1/tell", '{"objective": 1, "constraints": {"g": 1}, "reference": NaN}', 422),
        ("plant/suggestions/1/tell", '{"objective": 1, "constraints": {"g": 1}, "proposed": {}}', 422),
        ("plant/known-good", '{"parameters": {"a": 0, "b": 0}, "proposed": {"parameters": {}}}', 422),
    ],
)
def test_malformed_bodies_are_refused_and_change_nothing(service: str, path: str, body: str, status: int) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        remote.ask({"c": 0.5})
        method = "PUT" if path.endswith("known-good") else "POST"
        headers = {"Content-Type": "application/json"}
        given = httpx.request(method, f"{service}{API}/{path}", content=body, headers=headers)
        assert given.status_code == status, given.text
        assert given.json()["error"]
        assert given.json()["kind"] in (None, "type")
        assert remote.status()["seq"] == 2


def test_the_gate(service: str) -> None:
    assert httpx.get(f"{service}/healthz").json()["status"] == "ok"
    assert httpx.get(f"{service}/healthz", headers={"Host": "evil.example"}).status_code == 403
    assert httpx.get(f"{service}{API}", headers={"Origin": "http://evil.example"}).status_code == 403
    assert httpx.get(f"{service}{API}", headers={"Origin": service}).status_code == 200
    big = b'{"context": {"c": ' + b" " * (1 << 20) + b"1}}"
    assert httpx.post(f"{service}{API}/x/ask", content=big).status_code == 413

    def chunks():
        for _ in range(40):
            yield b" " * 65536

    sent = httpx.post(f"{service}{API}/x/ask", content=chunks(), headers={"Content-Type": "application/json"})
    assert sent.status_code == 413
    page = httpx.get(service)
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert httpx.get(f"{service}/docs").status_code == 404


def test_metrics_are_prometheus_text(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        remote.tell(remote.ask({"c": 0.5}), 1.0, {"g": 0.1})
    text = httpx.get(f"{service}/metrics").text
    assert 'pdcbo_study_steps{study="plant"} 1' in text
    assert 'pdcbo_http_requests_total{method="POST",route="/api/v1/studies/{name}/ask",status="200"} 1' in text
    for line in text.splitlines():
        assert line.startswith("# TYPE ") or float(line.rsplit(" ", 1)[1]) >= 0


def test_made_up_methods_are_counted_as_one(service: str) -> None:
    for method in ("BREW", "STEEP"):
        httpx.request(method, f"{service}{API}", headers={"Host": "evil.example"})
    text = httpx.get(f"{service}/metrics").text
    assert 'pdcbo_http_requests_total{method="other",route="other",status="403"} 2' in text
    assert "BREW" not in text


def test_metrics_count_the_events_of_studies_that_nobody_has_called_yet(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    with Study.open(address, "idle", PROBLEM, optimizer="random") as study:
        study.ask({"c": 0.5})
    with served(address) as url:
        text = httpx.get(f"{url}/metrics").text
        assert 'pdcbo_study_events{study="idle"} 2' in text
        assert "pdcbo_study_steps{" not in text
        pdcbo.connect(url, "idle").close()
        text = httpx.get(f"{url}/metrics").text
        assert 'pdcbo_study_events{study="idle"} 2' in text
        assert 'pdcbo_study_pending{study="idle"} 1' in text


def test_a_token_is_needed_beyond_this_machine(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    with pytest.raises(ValueError, match="needs a token"), served(address, host="0.0.0.0"):
        pass
    journal = open_journal(address)
    journal.add_token("plant", "correct horse")
    assert "correct horse" not in str(journal.database.execute("SELECT * FROM tokens"))
    with served(address, host="0.0.0.0", allow_hosts=("tuner.example",)) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}{API}").status_code == 401
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert httpx.get(f"{url}{API}", headers={"Authorization": "Bearer wrong"}).status_code == 401
        known = {"Authorization": "Bearer correct horse"}
        assert httpx.get(f"{url}{API}", headers=known).status_code == 200
        assert httpx.get(f"{url}{API}", headers={**known, "Host": "tuner.example:99"}).status_code == 200
        with pytest.raises(PermissionError, match="token"):
            pdcbo.connect(url, "plant", PROBLEM)
        pdcbo.connect(url, "plant", PROBLEM, token="correct horse").close()
        with httpx.Client(base_url=url) as browser:
            assert browser.get("/", headers={"Accept": "text/html"}).headers["location"] == "/login"
            assert browser.post("/login", data={"token": "wrong"}).status_code == 401
            signed = browser.post("/login", data={"token": "correct horse"})
            assert signed.status_code == 303
            assert "HttpOnly" in signed.headers["set-cookie"]
            assert "SameSite=strict" in signed.headers["set-cookie"]
            assert browser.get("/").status_code == 200
            journal.remove_token("plant")
            assert httpx.get(f"{url}{API}", headers=known).status_code == 401
            gone = browser.get(API)  # its sessions end with a token
            assert gone.status_code == 401
            assert gone.json()["kind"] is None
    journal.close()


def test_a_name_that_others_know_needs_a_token_on_this_machine_too(tmp_path: Path) -> None:
    """A proxy that speaks TLS to others reaches the service from this machine, as anybody through it does."""
    address = f"sqlite:///{tmp_path}/service.db"
    with pytest.raises(ValueError, match=r"tuner\.example needs a token"):
        make_server(address, allow_hosts=("localhost", "tuner.example"))
    with served(address, allow_hosts=("LocalHost", "127.0.0.2")) as url:
        assert httpx.get(f"{url}{API}").status_code == 200
    journal = open_journal(address)
    journal.add_token("plant", "secret")
    journal.close()
    with served(address, allow_hosts=("tuner.example",)) as url:
        assert httpx.get(f"{url}{API}").status_code == 401
        proxied = {"Host": "tuner.example", "Origin": "https://tuner.example", "Authorization": "Bearer secret"}
        assert httpx.get(f"{url}{API}", headers=proxied).status_code == 200


def events_of(url: str, after: int, count: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    with httpx.stream("GET", f"{url}{API}/plant/stream", params={"after": after}, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                if len(found) == count:
                    break
    return found


def test_the_stream_sends_each_event_once_whoever_made_it(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    with served(address) as url, pdcbo.connect(url, "plant", PROBLEM, optimizer="random") as remote:
        found: list[list[dict[str, object]]] = []
        watcher = threading.Thread(target=lambda: found.append(events_of(url, 1, 8)))
        watcher.start()
        remote.tell(remote.ask({"c": 0.5}), 1.0, {"g": 0.1})
        with Study.open(address, "plant") as other:  # another process would do the same
            for _ in range(3):
                other.tell(other.ask({"c": 0.5}), 1.0, {"g": 0.1})
        watcher.join(20)
        assert [e["seq"] for e in found[0]] == list(range(2, 10))
        assert [e["kind"] for e in found[0]] == ["ask", "tell"] * 4


def test_a_stop_ends_streams_and_keeps_everything(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", "import sys, typer; from pdcbo.service.commands import register;"
               "app = typer.Typer(); register(app); app()", "serve", "--store", f"sqlite:///{tmp_path}/s.db",
               "--port", str(port)]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        with pdcbo.connect(url, "plant", PROBLEM, optimizer="random", retries=8) as remote:
            s = remote.ask({"c": 0.5})
            remote.tell(s, 1.0, {"g": 0.1})
            with httpx.stream("GET", f"{url}{API}/plant/stream", timeout=60) as stream:
                process.terminate()
                list(stream.iter_lines())  # raises if the stream is cut and not ended
            _, said = process.communicate(timeout=60)
            lines = [json.loads(line) for line in said.splitlines()]
            assert {"serving", "request", "stopped"} <= {line["message"] for line in lines}
            assert any(line.get("path") == f"{API}/plant/ask" and line["status"] == 200 for line in lines)
    finally:
        process.kill()
        process.wait()
    with Study.open(f"sqlite:///{tmp_path}/s.db", "plant") as study:
        assert study.step == 1


def test_a_call_that_a_stop_does_not_wait_for_is_to_be_repeated(tmp_path: Path, monkeypatch: Any) -> None:
    begun, release = threading.Event(), threading.Event()
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(Study, "summary", lambda _: begun.set() or release.wait(20))
    with ThreadPoolExecutor() as pool:
        with served(f"sqlite:///{tmp_path}/service.db") as url:
            pdcbo.connect(url, "plant", PROBLEM, optimizer="random").close()
            call = pool.submit(httpx.get, f"{url}{API}/plant/summary", timeout=20)
            assert begun.wait(20)
        release.set()
        assert call.result().status_code == 503
        assert call.result().headers["retry-after"] == "1"
        assert call.result().json()["error"] == "the service is stopping; repeat the call"


def test_a_stream_ends_with_its_token_however_busy_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.2)
    address = f"sqlite:///{tmp_path}/service.db"
    journal = open_journal(address)
    journal.add_token("plant", "secret")
    known = {"Authorization": "Bearer secret"}
    with (
        served(address, require_token=True) as url,
        Study.open(address, "plant", PROBLEM, optimizer="random") as study,
        ThreadPoolExecutor() as pool,
        httpx.stream("GET", f"{url}{API}/plant/stream", headers=known, timeout=5) as stream,
    ):
        lines = stream.iter_lines()
        while next(lines) != ": still here":
            pass
        journal.remove_token("plant")
        rest = pool.submit(list, lines)
        for _ in range(100):
            if not rest.done():
                study.ask({"c": 0.5})
                time.sleep(0.02)
        assert rest.done()
    journal.close()


def test_warnings_are_json_lines_too() -> None:
    script = "import warnings; from pdcbo.service import telemetry; telemetry.configure_logs(); warnings.warn('hm')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    [line] = map(json.loads, done.stderr.splitlines())
    assert (line["level"], line["logger"]) == ("warning", "py.warnings")
    assert "UserWarning: hm" in line["message"]


def test_the_client_says_what_it_was_refused_and_when_nobody_answers(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    Study.open(address, "plant", PROBLEM, optimizer="random").close()
    with pytest.raises(ServiceError, match="failed 2 times"):
        pdcbo.connect("http://127.0.0.1:1", "plant", retries=1)
    with served(address) as url:
        with pytest.raises(KeyError, match="no study"):
            pdcbo.connect(url, "other")
        with pdcbo.connect(url, "plant") as remote:
            s = remote.ask({"c": 0.5})
            remote.tell(s, 1.0, {"g": 0.1})
            with pytest.raises(Conflict):
                remote.tell(s, 2.0, {"g": 0.1})
            with pytest.raises(ValueError, match="context"):
                remote.ask({})


def test_two_services_share_a_store(store: str) -> None:
    with (
        served(store) as one,
        served(store) as two,
        pdcbo.connect(one, "plant", PROBLEM, horizon=9) as a,
        pdcbo.connect(two, "plant") as b,
    ):
        for t in range(6):
            first, second = (a, b) if t % 2 else (b, a)
            s = first.ask(context(t))
            second.tell(s, *answer(s.parameters, s.context, t))
        assert a.status()["seq"] == b.status()["seq"] == 13
        assert str(a.summary()) == str(b.summary())


def test_every_route_is_documented_with_an_example_or_a_schema(service: str) -> None:
    described = httpx.get(f"{service}/openapi.json").json()
    paths = described["paths"]
    assert len(paths) >= 20
    for operations in paths.values():
        for operation in operations.values():
            assert operation.get("description")
    assert described["components"]["schemas"]["NewStudy"]["examples"]
    page = (Path(__file__).parents[1] / "docs" / "service.md").read_text()
    for path in paths:
        assert path.removeprefix("/api/v1") in page, f"{path} is missing in docs/service.md"


def test_the_code_in_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[1] / "docs" / "service.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    with served("sqlite:///service.db") as url:
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block.replace("http://127.0.0.1:8765", url), names)
            if isinstance(study := names.get("study"), pdcbo.client.RemoteStudy):
                study.close()


def test_floats_cross_the_wire_without_losing_a_bit(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        s = remote.ask({"c": 0.25})
        remote.tell(s, 0.1 + 0.2, {"g": None})
        told = remote.events()[-1]
        assert told["payload"]["objective"] == 0.1 + 0.2


NAN = float("nan")
ALIEN = pdcbo.Suggestion(1, {"a": 0.5, "b": 0.5}, {"c": 0.5})  # as another study would have made it
OUTCOME = {"g": 0.2}
REFUSED = {
    "another study's, told": lambda t: t.tell(ALIEN, 1.0, OUTCOME),
    "another study's, failed": lambda t: t.fail(ALIEN, "offline"),
    "another study's, corrected": lambda t: t.correct(ALIEN, objective=1.0),
    "edited": lambda t: t.tell(replace(t.pending[0], parameters={"a": 0.0, "b": 0.0}), 1.0, OUTCOME),
    "edited context": lambda t: t.tell(replace(t.pending[0], context={"c": 0.9}), 1.0, OUTCOME),
    "unknown, told": lambda t: t.tell(9999, 1.0, OUTCOME),
    "unknown, failed": lambda t: t.fail(9999),
    "unknown, corrected": lambda t: t.correct(9999, objective=1.0),
    "no id": lambda t: t.tell("1", 1.0, OUTCOME),
    "no flag": lambda t: t.fail(2, "offline", applied="no"),
    "a number for a flag": lambda t: t.fail(2, "offline", applied=1),
    "nan context": lambda t: t.ask({"c": NAN}),
    "infinite context": lambda t: t.ask({"c": np.float64("inf")}),
    "nan objective": lambda t: t.tell(2, NAN, OUTCOME),
    "nan constraint": lambda t: t.tell(2, 1.0, {"g": NAN}),
    "nan corrected": lambda t: t.correct(1, constraints={"g": NAN}),
    "nan limit": lambda t: t.set_limits({"g": NAN}),
    "None for a context": lambda t: t.ask({"c": None}),
    "a list for a context": lambda t: t.ask({"c": [1]}),
    "a string for a context": lambda t: t.ask({"c": "x"}),
    "a mapping for a context": lambda t: t.ask({"c": {"x": True}}),
    "a string for the objective": lambda t: t.tell(2, "x", OUTCOME),
    "a boolean for a constraint": lambda t: t.tell(2, 1.0, {"g": True}),
    "a list applied": lambda t: t.tell(2, 1.0, OUTCOME, applied={"a": [1]}),
    "a string corrected": lambda t: t.correct(1, objective="x"),
    "a list for a limit": lambda t: t.set_limits({"g": [1]}),
    "no limits": lambda t: t.set_limits([1]),
    "a row that is none": lambda t: t.observe_table([3]),
    "a string in a flat row": lambda t: t.observe_table([{"a": "x", "b": 0.2, "c": 0.3, "objective": 1.0}]),
    "an unknown column": lambda t: t.observe_table([{"a": 0.1, "b": 0.2, "c": 0.3, "objective": 1.0, "d": 1.0}]),
    "delta of a wrong type": lambda t: t.certificate("x"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_remote_study_refuses_what_the_optimizer_refuses_in_its_words(service: str, case: str) -> None:
    local = pdcbo.OPTIMIZERS["random"](PROBLEM)
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        said = []
        for tuner in (local, remote):
            tuner.tell(tuner.ask({"c": 0.5}), 1.0, OUTCOME)
            tuner.ask({"c": 0.5})
            with pytest.raises((TypeError, ValueError)) as caught:
                REFUSED[case](tuner)
            said.append((caught.type, str(caught.value)))
        assert said[0] == said[1]
        assert remote.status()["seq"] == 4


@pytest.mark.parametrize(
    "guards",
    [
        {"max_change": {"a": "x"}},
        {"max_change": {"a": [1]}},
        {"bounds": {"a": 3}},
        {"bounds": {"a": [None, 1]}},
        {"fallback": {"a": "x", "b": 0.5}},
        {"fallback": {"a": 0.5, "b": 0.5}, "deadline": "x"},
        [1],
    ],
    ids=repr,
)
def test_guards_of_a_wrong_type_are_refused_as_in_a_study(service: str, tmp_path: Path, guards: Any) -> None:
    with (
        pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote,
        Study.open(tmp_path / "local.db", "plant", PROBLEM, optimizer="random") as local,
    ):
        said = []
        for study in (local, remote):
            with pytest.raises(TypeError, match="guards") as caught:
                study.set_guards(guards)
            said.append(str(caught.value))
        assert said[0] == said[1] or not isinstance(guards, dict)
        with pytest.raises(TypeError, match="guards"):
            pdcbo.connect(service, "other", PROBLEM, guards=guards)


def test_a_reason_is_in_words(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        with pytest.raises(TypeError, match="reason"):
            remote.fail(remote.ask({"c": 0.5}), 5)
        remote.pause(ValueError("valve"))
        assert remote.events()[-1]["payload"] == {"reason": "valve"}


def test_known_good_parameters_are_those_of_this_study(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        made = remote.ask({"c": 0.5})
        with pytest.raises(ValueError, match="made by another tuner or changed since"):
            remote.set_known_good(ALIEN)
        with pytest.raises(ValueError, match="suggestion 9999 is unknown"):
            remote.set_known_good(9999)
        remote.set_known_good(made)
        assert remote.events()[-1]["payload"] == {"parameters": made.parameters, "suggestion": made.id}


def test_a_remote_study_takes_numbers_of_numpy(service: str) -> None:
    numbers = {"horizon": np.int64(30), "seed": np.int64(1), "delta": np.float64(0.1)}
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random", **numbers) as remote:
        s = remote.ask({"c": np.float32(0.5)}, deadline=np.float64(5.0))
        remote.tell(np.int64(s.id), np.float64(1.0), {"g": np.float32(0.25)})
        remote.fail(remote.ask({"c": 0.5}), applied=np.False_)
        assert remote.certificate(np.float64(0.2)) == remote.certificate(0.2)
        assert remote.step == 1


def test_keys_are_those_of_a_study(service: str, tmp_path: Path) -> None:
    with (
        pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote,
        Study.open(tmp_path / "local.db", "plant", PROBLEM, optimizer="random") as local,
    ):
        for study in (local, remote):
            study.tell(study.ask({"c": 0.5}, key="step 1, größer"), 1.0, OUTCOME)
            for _ in range(2):
                study.correct(1, objective=0.5, key="mine")
                study.observe({"a": 0.1, "b": 0.2}, {"c": 0.3}, objective=0.5, key="past")
                study.set_limits({"g": 0.4}, key="limit")
                study.pause("lunch", key="pause")
                study.resume(key="resume")
                study.set_known_good(1, key="good")
                study.return_to_known_good(key="return")
                study.set_guards({"max_change": {"a": 0.1}}, key="guards")
            with pytest.raises(Conflict, match="'mine' was used before"):
                study.correct(1, objective=0.6, key="mine")
            for key, error in (("", ValueError), ("a\nb", ValueError), ("k" * 201, ValueError), (5, TypeError)):
                with pytest.raises(error, match="key must "):
                    study.correct(1, objective=0.6, key=key)
                with pytest.raises(error, match="key must "):
                    study.ask({"c": 0.5}, key=key)
        keys = ["step 1, größer", None, "mine", "past", "limit", "pause", "resume", "good", "return", "guards"]
        assert [e["key"] for e in remote.events()][1:] == keys
        assert [e.key for e in local.events()][1:] == keys


def test_past_operation_comes_flat_or_by_group(service: str) -> None:
    flat = {"a": 0.1, "b": np.float64(0.2), "c": 0.3, "objective": 0.5, "g": None}
    nested = {"parameters": {"a": 0.1, "b": 0.2}, "context": {"c": 0.3}, "constraints": {"g": 0.4}}
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        assert remote.observe_table([flat, nested]) == 2
        with pytest.raises(ValueError, match=r"rows\[1\]\['a'\] must be a finite number, got nan"):
            remote.observe_table([flat, {**flat, "a": NAN}])
        assert [e["kind"] for e in remote.events()] == ["created", "observe"]


def test_a_study_is_not_defined_behind_its_fields(service: str) -> None:
    body = {"name": "plant", "problem": PROBLEM.to_json(), "horizon": 300}
    for name in ("horizon", "optimizer", "seed", "delta", "guards", "problem", "store", "name"):
        answered = httpx.post(f"{service}{API}", json={**body, "settings": {name: 7}})
        assert answered.status_code == 422
        assert f"settings[{name!r}]" in answered.json()["error"]
    assert httpx.get(f"{service}{API}").json() == {"studies": []}
    with pytest.raises(TypeError, match="nonsense"):
        pdcbo.connect(service, "plant", PROBLEM, nonsense=3)
    with pytest.raises(TypeError, match="problem must be a Problem"):
        pdcbo.connect(service, "plant", PROBLEM.to_json())
    pdcbo.connect(service, "plant", PROBLEM, horizon=300).close()
    with pytest.raises(TypeError, match=r"\['horizon', 'nonsense'\] are for the creation"):
        pdcbo.connect(service, "plant", horizon=7, nonsense=3)


def test_refusals_say_what_they_got_and_what_is_missing(service: str) -> None:
    unlabelled = httpx.post(f"{service}{API}", content='{"name": "x"}')
    assert unlabelled.status_code == 422
    assert "Content-Type: application/json" in unlabelled.json()["error"]
    named = httpx.post(f"{service}{API}", json={"name": "r 2!", "problem": {"parameters": {"u": [0, 1]}}})
    assert "got 'r 2!'" in named.json()["error"]
    with pytest.raises(ValueError, match=r"url must begin with http:// or https://.*, got '127.0.0.1:1'"):
        pdcbo.connect("127.0.0.1:1", "x")


def test_names_and_options_of_any_length_are_answered(service: str, tmp_path: Path) -> None:
    long = pdcbo.Problem({"k": pdcbo.Choice(["o" * 300, "p" * 300])}, {"c" * 200: (0.0, 1.0)}, {"g": 0.5})
    with Study.open(f"sqlite:///{tmp_path}/service.db", "long", long, optimizer="random"):
        pass
    with pdcbo.connect(service, "long") as remote:
        s = remote.ask({"c" * 200: 0.5})
        assert s.parameters["k"] in ("o" * 300, "p" * 300)
        remote.tell(s, 1.0, {"g": 0.1})


def test_models_go_over_the_wire(service: str) -> None:
    models = {"objective": pdcbo.Model(length_scales=0.5, variance=1.0, noise_var=0.01), "g": pdcbo.Model("matern-5/2")}
    pdcbo.connect(service, "one", PROBLEM, models=models["g"], horizon=5).close()
    pdcbo.connect(service, "two", PROBLEM, models=models, horizon=5).close()
    with pdcbo.connect(service, "two", PROBLEM, models=models, horizon=5) as remote:
        assert remote.ask({"c": 0.5}).id == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "http://127.0.0.1:x"}, "url must be an address .*, got 'http://127.0.0.1:x'"),
        ({"study": "a/b"}, "study must have 1 to 64 letters"),
        ({"study": 5}, "study must have 1 to 64 letters"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"timeout": 0.0}, "timeout must be"),
    ],
)
def test_connect_says_what_is_wrong(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pdcbo.connect(**{"url": "http://127.0.0.1:1", "study": "plant", **arguments})


def test_a_store_that_fails_behind_the_gate_is_unavailable_and_the_client_repeats(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    journal = open_journal(address)
    journal.add_token("plant", "secret")
    known = {"Authorization": "Bearer secret"}
    with served(address, require_token=True) as url:
        pdcbo.connect(url, "plant", PROBLEM, token="secret\n", optimizer="random").close()  # as a file has it
        journal.database.execute("ALTER TABLE tokens RENAME TO elsewhere")
        refused = httpx.get(f"{url}{API}", headers=known)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert "store" in refused.json()["error"]
        timer = threading.Timer(0.5, lambda: journal.database.execute("ALTER TABLE elsewhere RENAME TO tokens"))
        timer.start()
        with pdcbo.connect(url, "plant", token="secret") as remote:
            assert remote.ask({"c": 0.5}).id == 1
        timer.join()
    journal.close()


@pytest.mark.parametrize("token", ["", "  \n", "se\ncret", "sécret", 5])
def test_a_token_that_cannot_be_one_is_refused_and_not_shown(token: Any) -> None:
    with pytest.raises(ValueError, match="token must be what") as caught:
        pdcbo.connect("http://127.0.0.1:9", "plant", token=token)
    assert "cret" not in str(caught.value)


def test_the_gate_refuses_what_is_no_origin(service: str) -> None:
    for origin in ("http://[", "null", "", "http://"):
        assert httpx.get(f"{service}{API}", headers={"Origin": origin}).status_code == 403


def test_orders_need_no_body_and_a_resume_keeps_its_reason(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        remote.ask({"c": 0.5})
        assert httpx.post(f"{service}{API}/plant/pause").status_code == 200
        remote.resume("analyser repaired")
        assert remote.events()[-1]["payload"] == {"reason": "analyser repaired"}
        assert httpx.post(f"{service}{API}/plant/resume").status_code == 200
        remote.pause("x" * 5000)
        assert len(remote.events()[-1]["payload"]["reason"]) == 2000


def test_a_long_reason_is_cut_short_and_not_refused(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        remote.ask({"c": 0.5})
        for order in ("suggestions/1/fail", "pause", "resume"):
            answered = httpx.post(f"{service}{API}/plant/{order}", json={"reason": "x" * 5000})
            assert answered.status_code == 200, answered.text
            assert remote.events()[-1]["payload"]["reason"] == "x" * 2000


def test_a_history_is_sent_in_parts_of_bounded_size(service: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(routes, "PART", 3)
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        for _ in range(4):
            remote.tell(remote.ask({"c": 0.5}), 1.0, {"g": 0.1})
        whole = httpx.get(f"{service}{API}/plant/history").json()
        assert [e["seq"] for e in whole["events"]] == list(range(1, 10))
        for size in (1, 1000):
            monkeypatch.setattr(routes, "HISTORY_BYTES", size)
            part = httpx.get(f"{service}{API}/plant/history").json()
            assert part["events"] == whole["events"][: part["next"]]
            assert part["next"] == 1 if size == 1 else 1 < part["next"] < 9
            assert remote.events() == whole["events"]
            assert remote.events(2, 5) == whole["events"][2:7]


def test_a_host_is_allowed_by_its_name_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--allow-host takes a name without a port, got 'tuner\.example:8765'"):
        make_server(f"sqlite:///{tmp_path}/service.db", allow_hosts=("tuner.example:8765",))


def test_another_port_of_this_machine_is_another_origin(service: str) -> None:
    host = service.removeprefix("http://").partition(":")[0]
    assert httpx.get(f"{service}{API}", headers={"Origin": f"http://{host}:1"}).status_code == 403
    assert httpx.get(f"{service}{API}", headers={"Origin": f"http://{host}"}).status_code == 403


def test_a_session_ends_after_half_a_day_and_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, hashes = Sessions(), {"plant": hash_token("secret")}
    name = sessions.create("secret")
    assert sessions.valid(name, lambda: hashes)
    assert not sessions.valid(name + "x", lambda: hashes)
    assert not sessions.valid(name, dict)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + SESSION_SECONDS - 60.0)
    assert sessions.valid(name, lambda: hashes)
    monkeypatch.setattr(time, "monotonic", lambda: now + SESSION_SECONDS + 60.0)
    assert not sessions.valid(name, lambda: hashes)


def test_every_page_but_the_sign_in_needs_the_token(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    journal = open_journal(address)
    journal.add_token("plant", "secret")
    journal.close()
    with served(address, require_token=True) as url:
        described = httpx.get(f"{url}/openapi.json", headers={"Authorization": "Bearer secret"}).json()
        for path in ("/", "/studies/plant", "/studies/plant/status", "/openapi.json", *described["paths"]):
            asked = path.replace("{name}", "plant").replace("{number}", "1")
            status = httpx.get(url + asked).status_code
            assert status == (200 if path == "/healthz" else 401), path
        assert httpx.get(f"{url}/login").status_code == 200


def test_bodies_tables_and_deadlines_have_the_limits_that_are_stated(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/service.db", max_body=4096) as url:
        pdcbo.connect(url, "plant", PROBLEM, optimizer="random").close()
        ask = f"{url}{API}/plant/ask"
        for size, status in ((3000, 200), (5000, 413)):
            body = b'{"context": {"c": ' + b" " * size + b"0.5}}"
            assert httpx.post(ask, content=body, headers={"Content-Type": "application/json"}).status_code == status
        assert httpx.post(ask, json={"context": {"c": 0.5}, "deadline": 3600}).status_code == 200
        assert httpx.post(ask, json={"context": {"c": 0.5}, "deadline": 3601}).status_code == 422
        for deadline, status in ((3600, 200), (3601, 422), (1e9, 422)):
            guards = {"fallback": {"a": 0.5, "b": 0.5}, "deadline": deadline}
            answer = httpx.put(f"{url}{API}/plant/guards", json={"guards": guards})
            assert answer.status_code == status, answer.text
            assert status == 200 or "guards.deadline" in answer.json()["error"]
    with served(f"sqlite:///{tmp_path}/service.db") as url:
        row = {"a": 0.1, "b": 0.2, "c": 0.3, "g": 1.0}
        for count, status in ((10_000, 200), (10_001, 422)):
            answer = httpx.post(f"{url}{API}/plant/observe", json={"rows": [row] * count}, timeout=60)
            assert answer.status_code == status, answer.text[:200]


def test_a_stream_goes_on_after_the_last_event_that_was_seen(service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        for _ in range(3):
            remote.tell(remote.ask({"c": 0.5}), 1.0, {"g": 0.1})
    with httpx.stream("GET", f"{service}{API}/plant/stream", headers={"Last-Event-ID": "4"}, timeout=20) as stream:
        ids, lines = [], stream.iter_lines()
        assert [next(lines), next(lines)] == ["retry: 1000", ": from 4"]
        for line in lines:
            if line.startswith("id: "):
                ids.append(int(line[4:]))
                if len(ids) == 3:
                    break
    assert ids == [5, 6, 7]


def test_it_speaks_tls_and_its_cookie_stays_there(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    address = f"sqlite:///{tmp_path}/service.db"
    journal = open_journal(address)
    journal.add_token("plant", "secret")
    journal.close()
    with served(address, require_token=True, certificate=str(certificate), key=str(key)) as url:
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=url.replace("http:", "https:"), verify=trusted) as browser:
            signed = browser.post("/login", data={"token": "secret"})
            assert signed.status_code == 303
            assert "Secure" in signed.headers["set-cookie"]
            assert browser.get("/").status_code == 200


def test_healthz_says_when_the_store_does_not_answer(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/service.db"
    with served(address) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
        journal = open_journal(address)
        journal.database.execute("ALTER TABLE studies RENAME TO elsewhere")
        assert httpx.get(f"{url}/healthz").status_code == 503
        journal.database.execute("ALTER TABLE elsewhere RENAME TO studies")
        assert httpx.get(f"{url}/healthz").status_code == 200
        journal.close()


def test_an_answer_that_got_lost_is_fetched_again_and_counts_once(service: str, monkeypatch: Any) -> None:
    """The service did it and the answer did not come through: the client repeats the call under the same key."""
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        real, lose = remote._http.request, threading.Event()

        def request(*arguments: Any, **more: Any) -> httpx.Response:
            answer = real(*arguments, **more)
            if lose.is_set():
                lose.clear()
                raise httpx.ReadError("connection reset by peer")
            return answer

        monkeypatch.setattr(remote._http, "request", request)
        made = remote.ask({"c": 0.5})
        calls = {
            "ask": lambda: remote.ask({"c": 0.5}),
            "tell": lambda: remote.tell(made, 1.0, {"g": 0.2}),
            "correct": lambda: remote.correct(made, objective=2.0),
            "observe": lambda: remote.observe({"a": 0.1, "b": 0.2}, {"c": 0.3}, objective=0.5),
            "limits": lambda: remote.set_limits({"g": 0.4}),
            "guards": lambda: remote.set_guards({"max_change": {"a": 0.1}}),
            "pause": lambda: remote.pause("lunch"),
            "resume": lambda: remote.resume(),
            "known-good": lambda: remote.set_known_good({"a": 0.5, "b": 0.5}),
            "return": lambda: remote.return_to_known_good(),
        }
        for call in calls.values():
            lose.set()
            call()
            assert not lose.is_set()
        assert [event["kind"] for event in remote.events()] == ["created", "ask", *calls]
