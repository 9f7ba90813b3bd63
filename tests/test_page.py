"""The live page in a real Chromium: it moves, it fits a phone, it works by keyboard, it bears 10,000 steps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from store_tools import PROBLEM, answer, context

import pdcbo
from pdcbo.report import report
from pdcbo.store import Event, Study
from pdcbo.store.journal import encode

OWN = ("http://127.0.0.1", "data:", "blob:", "file:")
CHROMIUM = "/usr/bin/chromium"
REFUSED = re.compile(r"status of (404|409)")  # a browser logs these; the page shows what the service said
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, service: str) -> Iterator[Page]:
    """A page that may fetch from its own service only, must not log an error and is closed before the service stops."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    foreign: list[str] = []
    errors: list[str] = []
    opened.on("request", lambda r: None if r.url.startswith(OWN) else foreign.append(r.url))
    opened.on("pageerror", lambda e: errors.append(str(e)))
    opened.on("console", lambda m: errors.append(m.text) if m.type == "error" and not REFUSED.search(m.text) else None)
    yield opened
    context.close()
    assert foreign == []
    assert errors == []


def drive(study: object, first: int, last: int) -> None:
    for t in range(first, last):
        s = study.ask(context(t))
        study.tell(s, *answer(s.parameters, s.context, t), reference=0.1)


def points(page: Page, figure: str, trace: int) -> int:
    return int(page.evaluate(f"document.getElementById({figure!r}).data[{trace}].x.length"))


def test_a_study_made_through_the_api_is_seen_to_move(page: Page, service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, horizon=40) as remote:
        drive(remote, 0, 5)
        page.goto(f"{service}/studies/plant")
        expect(page.locator("#live")).to_have_text("live")
        for figure in ("constraint-0", "cost", "regret", "duals", "operation", "posterior"):
            expect(page.locator(f"#{figure} .main-svg").first).to_be_visible(timeout=15_000)
        assert points(page, "cost", 0) == 5
        drive(remote, 5, 9)
        remote.ask(context(99))
        expect(page.locator(".card", has_text="Step").locator(".value")).to_have_text("9", timeout=10_000)
        page.wait_for_function("document.getElementById('cost').data[0].x.length === 9", timeout=10_000)
        expect(page.locator("text=Waiting for a result")).to_be_visible()
        expect(page.locator(".panel", has_text="Waiting for a result").locator("td").first).to_have_text("10")
        expect(page.locator(".alarms")).to_contain_text("All well")
        names = page.evaluate("document.getElementById('constraint-0').data.map(t => t.name)")
        assert {"measured", "running average", "certified, 95%", "limit"} <= set(names)
        assert "suggestion" in page.evaluate("document.getElementById('posterior').data.map(t => t.name)")


def test_orders_by_keyboard_and_alarms_in_words(page: Page, service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        drive(remote, 0, 3)
        page.goto(f"{service}/studies/plant")
        expect(page.locator("#live")).to_have_text("live")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator("#reason").focus()
        page.keyboard.type("maintenance")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.dataset.order") == "pause"
        page.keyboard.press("Enter")
        expect(page.locator(".alarms")).to_contain_text("The study is paused (maintenance)", timeout=10_000)
        assert page.evaluate("document.activeElement.dataset.order") == "pause"  # the focus stays
        page.locator("[data-order=return]").press("Enter")
        expect(page.locator("#said")).to_contain_text("no known-good parameters are set")
        remote.set_known_good({"a": 0.5, "b": 0.5})
        page.locator("[data-order=return]").press("Enter")
        expect(page.locator(".alarms")).to_contain_text("known-good parameters (maintenance) until", timeout=10_000)
        page.locator("[data-order=resume]").press("Space")
        expect(page.locator(".alarms")).not_to_contain_text("until you resume", timeout=10_000)
        kinds = [e["kind"] for e in remote.events()][-4:]
        assert kinds == ["pause", "known-good", "return", "resume"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(browser: Browser, service: str, scheme: str) -> None:
    problem = pdcbo.Problem({"a": (0.0, 1.0), "b": (0.0, 2.0)}, {"c": (0.0, 1.0)}, {"g": 0.5})
    with pdcbo.connect(service, "plant", problem, horizon=40) as remote:
        drive(remote, 0, 4)
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True)
    page = context.new_page()
    page.goto(f"{service}/studies/plant")
    expect(page.locator("#posterior .main-svg").first).to_be_visible(timeout=15_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", back)[:3])) < 200
    assert dark == (scheme == "dark")
    text = page.evaluate("document.getElementById('cost').layout.font.color")
    assert text == ("#e6ebf2" if scheme == "dark" else "#17202e")
    context.close()


def test_the_page_finds_back_after_a_stream_and_a_look_that_were_refused(browser: Browser, service: str) -> None:
    with pdcbo.connect(service, "plant", PROBLEM, optimizer="random") as remote:
        drive(remote, 0, 2)
        page = browser.new_page()
        page.route("**/stream", lambda route: route.fulfill(status=503), times=1)
        page.goto(f"{service}/studies/plant")
        expect(page.locator("#live")).to_have_text("connection lost, trying again")
        expect(page.locator("#live")).to_have_text("live", timeout=10_000)
        drive(remote, 2, 3)
        expect(page.locator(".card", has_text="Step").locator(".value")).to_have_text("3", timeout=10_000)
        page.route("**/status", lambda route: route.abort(), times=1)
        page.evaluate("refresh()")
        expect(page.locator("#live")).to_have_text("connection lost, trying again")
        page.evaluate("refresh()")
        expect(page.locator("#live")).to_have_text("live", timeout=5_000)
        page.close()


def ten_thousand(path: Path) -> None:
    """Write a journal of 10,000 steps in one transaction."""
    with Study.open(path, "long", PROBLEM, optimizer="random", horizon=10_000) as study:
        s = study.ask(context(0))
        study.tell(s, 1.0, {"g": 0.4})
        ask, tell = study.events()[1:]
        with study.journal.database.transaction():
            for t in range(1, 10_000):
                step = json.loads(encode(ask.payload["step"]))
                step["suggestion"]["id"] = t + 1
                step["suggestion"]["context"] = context(t)
                payload = {**tell.payload, "id": t + 1, "objective": 1.0 / t, "constraints": {"g": 0.4 + 0.1 * (t % 3)}}
                study.journal.append(1, Event(2 * t + 2, "ask", {**ask.payload, "step": step}, None, ask.time))
                study.journal.append(1, Event(2 * t + 3, "tell", payload, None, tell.time))


def test_ten_thousand_steps_are_usable(page: Page, service: str, tmp_path: Path) -> None:
    ten_thousand(tmp_path / "service.db")
    with pdcbo.connect(service, "long") as remote:
        page.goto(f"{service}/studies/long")
        expect(page.locator("#operation .main-svg").first).to_be_visible(timeout=30_000)
        assert points(page, "cost", 0) <= 1002
        drive(remote, 10_000, 10_001)
        expect(page.locator(".card", has_text="Step").locator(".value")).to_have_text("10,001", timeout=30_000)


def test_several_studies_hostile_names_and_the_report(page: Page, service: str, tmp_path: Path) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    problem = pdcbo.Problem({nasty: (0.0, 1.0)}, {"</script><b>": (0.0, 1.0)}, {"g & h": 0.5})
    with pdcbo.connect(service, "one", problem, horizon=9) as remote:
        for t in range(3):
            s = remote.ask({"</script><b>": t / 3})
            remote.tell(s, 1.0 * t, {"g & h": 0.7})
        remote.pause(nasty)
    pdcbo.connect(service, "two", PROBLEM, optimizer="random").close()
    page.goto(service)
    expect(page.locator(".study")).to_have_count(2)
    page.locator(".study", has_text="one").click()
    expect(page.locator("#operation .main-svg").first).to_be_visible(timeout=15_000)
    expect(page.locator("th", has_text=nasty)).to_be_visible()
    assert page.locator("#status img").count() == 0
    with Study.open(tmp_path / "service.db", "one") as study:
        written = report(study, tmp_path / "report.html")
    assert nasty not in written.read_text().split("<script>")[0]
    page.goto(written.as_uri())
    expect(page.locator("#posterior .main-svg").first).to_be_visible(timeout=15_000)
