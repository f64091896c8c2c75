"""The site that ``make docs`` has built opens from the disk, without a web server and without a network."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import open_browser

SITE = Path(__file__).parents[2] / "out" / "site"


@pytest.fixture(scope="module")
def browser() -> Any:
    with open_browser() as browser:
        yield browser


@pytest.mark.snippets
@pytest.mark.skipif(not SITE.exists(), reason="make docs builds the site")
def test_the_search_finds_a_page_from_the_disk(browser: Any) -> None:
    from playwright.sync_api import expect

    page, asked = browser.new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((SITE / "running" / "operations.html").as_uri())
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Search")).to_be_focused()
    page.keyboard.type("idle streams")
    found = page.locator(".md-search-result__item").first
    expect(found).to_contain_text(re.compile("idle", re.IGNORECASE), timeout=20_000)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.snippets
@pytest.mark.skipif(not SITE.exists(), reason="make docs builds the site")
def test_the_site_is_dark_on_a_dark_screen(browser: Any) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto((SITE / "index.html").as_uri())
    assert page.evaluate("document.body.getAttribute('data-md-color-scheme')") == "slate"
    assert page.get_by_title("Follow the system").count() == 1
    context.close()
