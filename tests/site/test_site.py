"""The built docs site in a browser, opened from its folder: nothing is clipped, nothing is loaded from another host, the search
finds pages, and axe-core has no serious finding. `make test-site` builds the site and runs this with Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html"))
CLIPPED = """() => [...document.querySelectorAll("pre > code, table, img")]
    .filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0)
    .filter(each => getComputedStyle(each).overflowX !== "visible")
    .map(each => each.textContent.slice(0, 60))"""
BROKEN = """() => [...document.querySelectorAll("td code")]
    .filter(each => !/[\\s/[(]/.test(each.textContent) && each.textContent.length <= 30 && each.getClientRects().length > 1)
    .map(each => each.textContent)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=request.param)
    yield context.new_page()
    context.close()


def address(name: str) -> str:
    return (SITE / name).as_uri()


def test_no_block_is_clipped_and_nothing_comes_from_another_host(page: Page) -> None:
    assert len(PAGES) > 50
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    found = {}
    for name in PAGES:
        page.goto(address(name))
        wrong = [*page.evaluate(CLIPPED), *page.evaluate(BROKEN)]
        if wrong:
            found[name] = wrong
    assert not found
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def test_the_search_finds_a_page_without_a_server(page: Page) -> None:
    page.goto(address("index.html"))
    found = page.locator(".md-search-result__link")
    for _ in range(30):  # what is typed before the index is loaded counts for nothing
        page.locator("input.md-search__input").fill("")
        page.locator("input.md-search__input").press_sequentially("preempted")
        page.wait_for_timeout(1000)
        if found.count():
            break
    assert "phases" in page.locator(".md-search-result").inner_html()


@pytest.mark.parametrize("name", ["index.html", "queues.html", "cli.html", "reference/trainjob.html"])
def test_axe_has_no_serious_finding(page: Page, name: str) -> None:
    page.goto(address(name))
    found = Axe().run(page).response["violations"]
    serious = [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} ({len(each['nodes'])})"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious
