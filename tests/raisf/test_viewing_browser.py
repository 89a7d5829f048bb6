"""The viewer in a real browser: found, filtered, opened, shared, and nothing of a record obeyed."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from raisf.viewing.page import export
from raisf.viewing.view import View

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
SLOW = 120_000  # milliseconds that a busy machine may take


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium refuses to have as root
        made = driver.chromium.launch(executable_path=CHROMIUM, args=options, timeout=SLOW)
        yield made
        made.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test for anything that goes wrong in it, or that it asks of the network."""
    context, wrong = browser.new_context(viewport={"width": 1280, "height": 900}), []
    page = context.new_page()
    page.set_default_timeout(SLOW)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    yield page
    context.close()
    assert not wrong


@pytest.fixture(scope="module")
def exported(records: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of an export of two runs of 5,000 questions; one of them is hostile."""
    a = [records.record(number, number % 2 == 0) for number in range(5000)]
    b = [records.record(number, number % 5 == 0) for number in range(5000)]
    strange = records.record(7, False, question=records.HOSTILE, prediction=records.LONG, answers=[records.HOSTILE])
    strange["trace"]["root"] |= {"question": records.HOSTILE, "answer": records.LONG, "evidence": records.HOSTILE}
    strange["trace"]["root"]["passages"][0]["title"] = records.HOSTILE
    a[7], b[7] = strange, {**strange, "trace": {"root": {"question": 5, "passages": "none"}}}
    folder = tmp_path_factory.mktemp("view")
    report = records.write_report(folder / "report", {"A <b>": a, "B": b})
    export(View([report]), folder / "view.html")
    return f"file://{folder / 'view.html'}"


def _rows(page: Any) -> int:
    return page.locator("table.questions tbody tr").count()


def test_from_the_runs_to_a_question_and_its_two_trees(page: Any, exported: str) -> None:
    page.goto(exported)
    page.get_by_role("link", name="2000 that A").click()  # of the flips: A right, B wrong
    assert "2,000 of 5,000" in page.get_by_role("status").inner_text()
    assert _rows(page) == 100, "a page of rows, however many there are"
    page.get_by_role("button", name="next →").first.click()
    page.locator("table.questions tbody a").first.click()
    page.wait_for_selector(".tree")
    sides = page.locator(".side")
    assert "✓ right" in sides.nth(0).inner_text() and "✗ wrong" in sides.nth(1).inner_text()
    assert "the North Sea" in page.locator(".gold").inner_text()
    assert "gold says relevant" in sides.nth(0).inner_text()
    first = page.locator("h1").inner_text()
    page.keyboard.press("j")
    page.wait_for_function("was => document.querySelector('h1').innerText !== was", arg=first)
    page.keyboard.press("Escape")
    page.wait_for_selector("table.questions")


def test_filters_narrow_the_table_and_a_link_brings_them_back(page: Any, exported: str) -> None:
    page.goto(exported + "#view=questions&a=A+%3Cb%3E")
    page.locator("[name=kind]").select_option("lookup")
    page.locator("[name=route]").select_option("passages")
    page.locator("[name=flag]").select_option("know")
    page.get_by_role("searchbox").fill("river 39")
    page.wait_for_function("document.querySelector('[role=status]').innerText.startsWith('20 ')")
    shared = page.url
    page.goto("about:blank")
    page.goto(shared)
    assert page.get_by_role("status").inner_text().startswith("20 ")
    assert page.get_by_role("searchbox").input_value() == "river 39"


def test_a_keyboard_is_enough(page: Any, exported: str) -> None:
    page.goto(exported + "#view=questions")
    page.wait_for_selector("table.questions")
    assert page.evaluate("document.activeElement.tagName") == "H1", "a reader begins at the page's heading"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    unnamed = "[...document.querySelectorAll('select, input')].filter(one => !one.labels.length).length"
    assert page.evaluate(unnamed) == 0


def test_what_a_record_says_stays_text(page: Any, exported: str) -> None:
    page.goto(exported + "#view=question&id=q7&a=A+%3Cb%3E&b=B")
    page.wait_for_selector(".side")
    assert "onerror=alert(1)" in page.locator("h1").inner_text() and page.title() != "owned"
    assert page.locator("main img, main script").count() == 0
    assert "\\u202e" in page.locator("h1").inner_text(), "a mark that reorders is shown"
    page.get_by_role("button", name="show all 20,000 characters").first.click()
    assert page.locator(".side").nth(1).inner_text(), "a strange trace is shown as far as it goes, or refused"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_shows_all_of_it(page: Any, exported: str, scheme: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=scheme)
    for view in ("", "#view=questions&b=B", "#view=question&id=q8&b=B"):
        page.goto("about:blank")
        page.goto(exported + view)
        page.wait_for_selector("h1")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


def test_a_share_is_rounded_as_the_terminal_does(page: Any, records: Any, tmp_path: Any) -> None:
    """5 of 80 was 6.3 here, and 6.2 in `raisf eval`."""
    report = records.write_report(tmp_path / "report", {"A": [records.record(n, n < 5) for n in range(80)]})
    export(View([report]), tmp_path / "view.html")
    page.goto(f"file://{tmp_path / 'view.html'}")
    assert "6.2" in page.locator("table.runs tbody td").nth(1).inner_text()
