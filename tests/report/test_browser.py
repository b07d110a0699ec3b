"""The page in a real browser, at the width of a phone."""

import functools
import http.server
import re
import shutil
import threading

import pytest

from tests.report.test_command import HOSTILE, page_with

pytest.importorskip("matplotlib")
playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
# What playwright says of its own Chromium where that, or a library that it needs, is missing.
ABSENT = re.compile(r"Executable doesn't exist|missing dependencies|shared libraries")
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The page with hostile text, its address on this machine, and every path asked for."""
    page = page_with(tmp_path_factory.mktemp("page"), HOSTILE)
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(page.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{page.name}", asked
        server.shutdown()


def launched(play):
    """The browser of the system, else playwright's own."""
    try:
        return play.chromium.launch(executable_path=BROWSER, timeout=120_000)
    except playwright.Error as error:
        if BROWSER is None and ABSENT.search(str(error)):
            pytest.skip(
                "needs a Chromium: apt-get install chromium, or playwright install chromium"
            )
        raise


@pytest.fixture(scope="module")
def opened(served):
    """The loaded page, and what it did while it loaded."""
    address, _ = served
    requests, dialogs, errors = [], [], []
    with playwright.sync_playwright() as play:
        browser = launched(play)
        page = browser.new_page(viewport=PHONE, is_mobile=True, device_scale_factor=2)
        page.on("request", lambda request: requests.append(request.url))
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address, timeout=120_000)
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        page.wait_for_load_state("networkidle")
        yield page, requests, dialogs, errors
        browser.close()


def test_nothing_is_asked_for_but_the_page(served, opened):
    address, asked = served
    _, requests, dialogs, errors = opened
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert asked == ["/index.html"]
    assert dialogs == errors == []


def test_the_body_does_not_scroll_sideways(opened):
    page, *_ = opened
    assert page.evaluate("window.innerWidth") == PHONE["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate("document.body.scrollWidth") <= PHONE["width"]


def test_images_are_drawn_within_the_screen(opened):
    page, *_ = opened
    sizes = page.evaluate(
        "[...document.images].map(i => [i.naturalWidth, i.getBoundingClientRect().width])"
    )
    assert len(sizes) >= 2
    assert all(natural > 0 and 0 < width <= PHONE["width"] for natural, width in sizes)


def test_model_text_stands_in_its_own_place(opened):
    page, *_ = opened
    texts = page.locator(".part.model").all_inner_texts()
    assert any("<script>alert(1)</script>" in text for text in texts)
    assert page.evaluate("document.scripts.length") == 0
    assert page.locator("iframe, meta[http-equiv=refresh]").count() == 0
