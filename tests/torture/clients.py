"""Many clients on one service that is killed in between: the history is checked for anything lost, doubled or mixed up.

Each client keeps what it was told; in the end the journal must hold every acknowledged ask and tell once, with the
client's own values, ids must be unique across clients, and refused contradictions must have left nothing.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from store_tools import PROBLEM, free_port

import pdcbo
from pdcbo.store import Conflict, Study

COMMAND = ("import typer; from pdcbo.service.commands import register; app = typer.Typer(); register(app); app()",)


class Service:
    """A service in a process of its own, on one port, that can be killed and started again."""

    def __init__(self, store: str) -> None:
        self.store, self.port = store, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["serve", "--store", self.store, "--port", str(self.port), "--log-level", "ERROR"]
        self.process = subprocess.Popen([sys.executable, "-c", *COMMAND, *arguments], env=dict(os.environ))
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/healthz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise RuntimeError("the service did not start")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


def client(url: str, number: int, operations: int, seen: list[Any], failures: list[BaseException]) -> None:
    """Ask and tell, repeat, contradict; keep what was acknowledged."""
    rng = random.Random(number)
    try:
        with pdcbo.connect(url, "plant", retries=40, timeout=20.0) as study:
            for t in range(operations // 2):
                context = {"c": round(rng.random(), 6)}
                key = f"client-{number}-{t}"
                s = study.ask(context, key=key)
                if rng.random() < 0.1:
                    assert study.ask(context, key=key) == s
                value = number + t / 1e4
                study.tell(s, value, {"g": 0.1})
                if rng.random() < 0.1:
                    study.tell(s, value, {"g": 0.1})
                if rng.random() < 0.1:
                    try:
                        study.tell(s, value + 1.0, {"g": 0.1})
                    except Conflict:
                        pass
                    else:
                        raise AssertionError("a contradiction was accepted")
                seen.append((key, s.id, s.parameters, context, value))
    except BaseException as error:
        failures.append(error)


def many_clients(folder: Path, clients: int, operations: int, kills: int, seed: int, store: str = "") -> dict[str, Any]:
    """Run the clients against a service that is killed so many times; return what was seen."""
    store = store or f"sqlite:///{folder}/clients.db"
    service = Service(store)
    service.start()
    pdcbo.connect(service.url, "plant", PROBLEM, optimizer="random").close()
    seen: list[list[Any]] = [[] for _ in range(clients)]
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=client, args=(service.url, i, operations, seen[i], failures)) for i in range(clients)
    ]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    rng = random.Random(seed)
    wanted = clients * operations // 2
    struck = 0
    while any(thread.is_alive() for thread in threads):
        done = sum(map(len, seen))
        if struck < kills and done >= (struck + rng.random()) * wanted / (kills + 1):
            service.kill()
            struck += 1
            service.start()
        time.sleep(0.02)
    seconds = time.monotonic() - started
    service.kill()
    assert not failures, failures[0]
    check(store, [line for lines in seen for line in lines], wanted)
    return {"clients": clients, "pairs": wanted, "kills": struck, "seconds": round(seconds, 1)}


def check(store: str, seen: list[Any], wanted: int) -> None:
    """Hold the journal against what the clients know."""
    assert len(seen) == wanted
    with Study.open(store, "plant") as study:
        events = study.events()
        assert [e.seq for e in events] == list(range(1, len(events) + 1))
        asked = {e.key: (e.seq, e.payload["step"]["suggestion"]) for e in events if e.kind == "ask"}
        told = {e.payload["id"]: (e.seq, e.payload) for e in events if e.kind == "tell"}
        assert sum(e.kind == "ask" for e in events) == len(asked) == wanted
        assert sum(e.kind == "tell" for e in events) == len(told) == wanted
        for key, number, parameters, context, value in seen:
            at, suggestion = asked[key]
            assert (suggestion["id"], suggestion["parameters"], suggestion["context"]) == (number, parameters, context)
            told_at, payload = told[number]
            assert payload["objective"] == value
            assert told_at > at
        assert study.step == wanted
