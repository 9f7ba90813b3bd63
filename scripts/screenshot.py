"""Draw docs/screenshot.png: the live page of a reactor study, in Debian's Chromium."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

import pdcbo
from pdcbo.service.server import make_server

PORT = 8798
STEPS = 150
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """Run a study and take the picture."""
    plant = pdcbo.PLANTS["williams-otto"]()
    with tempfile.TemporaryDirectory() as folder:
        server = make_server(f"sqlite:///{folder}/s.db", port=PORT)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        url = f"http://127.0.0.1:{PORT}"
        with pdcbo.connect(url, "reactor", plant.problem, horizon=300) as study, sync_playwright() as play:
            for t in range(1, STEPS + 1):
                context = plant.context(t)
                suggestion = study.ask(context)
                observed = plant.evaluate(suggestion.parameters, context)
                study.tell(suggestion, observed.objective, observed.constraints)
            study.ask(plant.context(STEPS + 1))
            browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 1640})
            page.goto(f"{url}/studies/reactor")
            page.wait_for_selector("#posterior .main-svg")
            page.wait_for_timeout(1500)
            page.screenshot(path=Path(__file__).parents[1] / "docs" / "screenshot.png")
            browser.close()
        server.should_exit = True
        server.config.app.state.stopping.set()
        thread.join()


if __name__ == "__main__":
    main()
