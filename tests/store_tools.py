"""What the tests of the store and the service share: problems, a PostgreSQL server of their own, free ports."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdcbo

PROBLEM = pdcbo.Problem(
    {"a": (0.0, 1.0), "b": (0.0, 2.0)}, {"c": (0.0, 1.0)}, {"g": pdcbo.Constraint(upper=0.5, noise=0.1)}
)


def answer(parameters: dict[str, Any], context: dict[str, Any], step: int) -> tuple[float, dict[str, float]]:
    """Return a noisy plant's answer that depends on nothing but its arguments."""
    rng = np.random.default_rng([step, round(context["c"] * 1e6)])
    a, b, c = parameters["a"], parameters["b"], context["c"]
    return (a - c) ** 2 + 0.3 * b + 0.05 * rng.normal(), {"g": 0.9 - 0.5 * b - 0.2 * a + 0.05 * rng.normal()}


def context(step: int) -> dict[str, float]:
    """Return the context of a step."""
    return {"c": float(np.random.default_rng(step).random())}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def postgres() -> Iterator[str]:
    """Start a PostgreSQL server on a socket of its own, or take the one that PDCBO_TEST_POSTGRES names."""
    if given := os.environ.get("PDCBO_TEST_POSTGRES"):
        yield given
        return
    binaries = Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
    folder = Path(tempfile.mkdtemp(prefix="pdcbo-pg-"))
    person: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        name = "postgres" if any(p.pw_name == "postgres" for p in pwd.getpwall()) else "nobody"
        entry = pwd.getpwnam(name)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        person = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    data = folder / "data"
    server = None
    try:
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "pdcbo", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            check=True, stdout=subprocess.DEVNULL, cwd=folder, **person,
        )  # fmt: skip
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="],
                stdout=log, stderr=log, cwd=folder, **person,
            )  # fmt: skip
        import psycopg

        url = f"postgresql://pdcbo@/postgres?host={folder}"
        for attempt in range(1200):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                if attempt == 1199:
                    raise
                time.sleep(0.05)
        yield url
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # its fast shutdown: clients are sent away
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store's address; on PostgreSQL, a schema of its own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/plant.db"
    import psycopg

    url = request.getfixturevalue("postgres_url")
    schema = f"t{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"


@contextmanager
def served(address: str, **options: Any) -> Iterator[str]:
    """Serve a store from a thread of this process; the address is free and the stop is graceful."""
    from pdcbo.service.server import listen, make_server

    server = make_server(address, **options)
    sockets = listen("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    thread = threading.Thread(target=server.run, args=(sockets,))
    thread.start()
    try:
        for _ in range(400):
            if server.started or not thread.is_alive():
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.config.app.state.stopping.set()
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """A service on an empty SQLite store."""
    with served(f"sqlite:///{tmp_path}/service.db") as url:
        yield url
