"""Kill -9 at random times and at every failpoint: nothing acknowledged is lost, nothing doubled, nothing differs.

A child drives a plant's loop on a study and writes one line to a pipe for every call that was acknowledged. The parent
kills it, starts the next one on the same store, and in the end holds the journal against all the lines, and the state
against a run that nobody interrupted.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from store_tools import PROBLEM, answer, context

import pdcbo
from pdcbo.optimizers import OPTIMIZERS
from pdcbo.store import Study
from pdcbo.store.failpoints import NAMES, arm
from pdcbo.store.journal import encode

MODEL = pdcbo.Model(length_scales={"a": 0.3, "b": 0.6, "c": 0.3}, variance=1.0, noise_var=0.0025)
STEPS = 60


def settings(optimizer: str) -> dict[str, Any]:
    return {"optimizer": optimizer, "horizon": STEPS, **({"models": MODEL} if optimizer == "pdcbo" else {})}


def drive(tuner: Any, steps: int, say: Any = lambda *_: None) -> None:
    """Do what a plant's script does: go on after the last step that counts; every ninth step brings no measurement."""
    durable = isinstance(tuner, Study)
    for t in range(tuner.step, steps):
        s = tuner.ask(context(t), key=f"t{t}") if durable else tuner.ask(context(t))
        say("ask", t, s.id, s.parameters)
        if t % 9 == 5:
            tuner.fail(s, "analyser offline")
        else:
            tuner.tell(s, *answer(s.parameters, s.context, t))
        say("done", t, s.id, None)
        if durable and t % 7 == 6:
            tuner.checkpoint()


def child(url: str, name: str, optimizer: str, failpoint: str, pipe: int) -> None:
    """Live until killed or done; never returns."""
    status = 1
    try:
        arm(failpoint)
        study = Study.open(url, name, PROBLEM, **settings(optimizer))
        drive(study, STEPS, lambda *line: os.write(pipe, (json.dumps(line) + "\n").encode()))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def life(
    url: str, name: str, optimizer: str, failpoint: str, seconds: float, at_work: bool = False
) -> tuple[list[Any], int]:
    """Start a child, kill it after some time, and return what it said was acknowledged, and how it ended.

    With `at_work` the time counts from the first call that was acknowledged: how long a child takes to open its study
    depends on the machine, and a kill before that proves nothing.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        child(url, name, optimizer, failpoint, write)
    os.close(write)
    text, until = b"", time.monotonic() + (60.0 if at_work else seconds)
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            until = time.monotonic() + 60.0
            continue
        data = os.read(read, 65536)
        if not data:
            break
        if at_work and not text:
            until = time.monotonic() + seconds
        text += data
    os.close(read)
    _, status = os.waitpid(pid, 0)
    lines = text.split(b"\n")[:-1]  # a line without its end was cut off by the kill
    return [json.loads(line) for line in lines], status


def check(url: str, name: str, acknowledged: list[Any]) -> None:
    """Hold the journal against what was acknowledged."""
    with Study.open(url, name) as study:
        events = study.events()
        assert [e.seq for e in events] == list(range(1, len(events) + 1))
        asked = {e.key: e.payload["step"]["suggestion"] for e in events if e.kind == "ask"}
        settled = [e.payload["id"] for e in events if e.kind in ("tell", "fail")]
        assert len(asked) == sum(e.kind == "ask" for e in events), "an ask was doubled"
        assert len(settled) == len(set(settled)), "a tell was doubled"
        for kind, t, number, parameters in acknowledged:
            if kind == "ask":
                assert asked[f"t{t}"]["id"] == number
                assert asked[f"t{t}"]["parameters"] == parameters
            else:
                assert number in settled


def check_uninterrupted(url: str, name: str, optimizer: str) -> None:
    """Compare the finished study with a run that nobody interrupted: posterior, dual, ledger, next suggestion."""
    state, suggestion = uninterrupted(optimizer)
    with Study.open(url, name) as study:
        assert encode(study.state()) == state
        assert study.ask(context(9999)) == suggestion


@cache
def uninterrupted(optimizer: str) -> tuple[str, pdcbo.Suggestion]:
    """Return the state after all steps, and what is proposed next, of an optimizer that nobody interrupted."""
    options = settings(optimizer)
    bare = OPTIMIZERS[options.pop("optimizer")](PROBLEM, **options)
    drive(bare, STEPS)
    return encode(bare.state()), bare.ask(context(9999))


def random_kills(url: str, kills: int, seed: int, optimizer: str = "pdcbo") -> dict[str, int]:
    """Kill children at random times; return what was seen."""
    rng = random.Random(seed)
    done = {"kills": 0, "kills at work": 0, "studies": 0, "acknowledged": 0}
    while done["kills"] < kills:
        name, acknowledged, status = f"kills-{optimizer}-{done['studies']}", [], 9
        while status != 0:
            # The last study is driven to its end without kills.
            seconds = rng.expovariate(1 / 0.1) if done["kills"] < kills else 600.0
            lines, status = life(url, name, optimizer, "", seconds, at_work=done["kills"] % 4 > 0)
            acknowledged += lines
            assert status in (0, signal.SIGKILL), f"a child ended with status {status}"
            done["kills"] += status == signal.SIGKILL
            done["kills at work"] += status == signal.SIGKILL and len(lines) > 0
            if acknowledged:
                check(url, name, lines)
        check(url, name, acknowledged)
        check_uninterrupted(url, name, optimizer)
        done["studies"] += 1
        done["acknowledged"] += len(acknowledged)
    return done


def failpoint_kills(url: str, counts: tuple[int, ...], optimizer: str = "pdcbo") -> dict[str, int]:
    """Kill a child at every failpoint, at several passages of each; return how often each one struck."""
    struck: dict[str, int] = {}
    for name in NAMES:
        study, acknowledged = f"failpoint-{name}", []
        for count in counts:
            lines, status = life(url, study, optimizer, f"{name}:{count}", 600.0)
            acknowledged += lines
            struck[name] = struck.get(name, 0) + (status == signal.SIGKILL)
            assert status in (0, signal.SIGKILL)
        lines, status = life(url, study, optimizer, "", 600.0)
        assert status == 0
        check(url, study, acknowledged + lines)
        check_uninterrupted(url, study, optimizer)
    assert set(struck) == set(NAMES)
    assert all(struck.values()), f"these failpoints never struck: {[n for n, c in struck.items() if not c]}"
    return struck


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/kills.db"
