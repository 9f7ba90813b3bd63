"""A twentieth or more of every torture run: kills, failpoints, power cuts, failing disks, clients, fuzz."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "torture"))

import clients
import disks
import fuzz
import kills


def test_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    seen = kills.random_kills(kills.sqlite_url(tmp_path), 50, seed=11)
    assert seen["kills"] >= 50
    assert seen["kills at work"] >= 25


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_random_kills_on_postgresql(store: str) -> None:
    assert kills.random_kills(store, 10, seed=12, optimizer="random")["kills at work"] >= 5


def test_a_kill_at_every_failpoint(tmp_path: Path) -> None:
    struck = kills.failpoint_kills(kills.sqlite_url(tmp_path), (2,), optimizer="random")
    assert all(count == 1 for count in struck.values())


def test_power_cuts_lose_nothing() -> None:
    seen = disks.power_cuts(60, seed=13)
    assert seen["calls acknowledged"] > 100
    assert seen["calls lost"] == 0


def test_the_power_cut_test_bites() -> None:
    assert disks.power_cuts(50, seed=13, synchronous="NORMAL")["cuts that lost something"] > 5


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("error", ["full", "io"])
def test_disk_errors_are_clear_and_pass(error: str, forever: bool) -> None:
    seen = disks.write_errors(8, error, forever, offset=3 if forever else 0)
    assert seen["failed"] >= seen["writes"] // 20
    assert seen["calls refused"] >= seen["failed"] // 2


def test_clients_on_a_killed_service(tmp_path: Path) -> None:
    assert clients.many_clients(tmp_path, clients=10, operations=50, kills=1, seed=14)["kills"] == 1


def test_generated_requests_never_break_the_service(service: str) -> None:
    seen = fuzz.fuzz(service, 560, seed=0)
    assert seen["cases"] >= 500
    assert not [status for status in seen if status.startswith("5")]
