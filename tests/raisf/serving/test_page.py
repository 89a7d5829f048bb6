"""The page in a real Chromium: ask, watch, stop, fail, reload, and text that would like to be a page."""

import hashlib
from typing import Any

import dspy
import pytest

from raisf.serving.guard import Access
from raisf.serving.service import Served

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow
DONE = ".answer:not(.working)"
MINUTE = 60_000


def ask(page: Any, question: str) -> None:
    page.fill("#question", question)
    page.keyboard.press("Enter")


def test_a_question_shows_its_answer_its_tree_and_its_source(page: Any, ask_about: Any) -> None:
    ask(page, ask_about.sea)
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer") == "Pasmur Sea"
    assert page.locator(".children > .node").count() == 2
    assert page.locator(".node mark").all_inner_texts()[-1] == "It flows into the Pasmur Sea below Oltrey."
    assert "Pasmur Sea" in page.inner_text("[role=status]") and not page.is_visible("#stop")
    page.click(".cited button")
    assert "Bulgorton lies on" in page.locator("#source-body .here").inner_text()
    page.keyboard.press("Escape")
    assert not page.is_visible("#source") and page.inner_text(".answer") == "Pasmur Sea"


def test_a_citations_link_opens_its_source_in_an_open_tab_too(page: Any, server: Any) -> None:
    for pid, text in (("r1", "The Funzol River rises"), ("r3", "The Pasmur Sea is shallow")):
        page.goto(f"{server.url}/#source=ra-isf/{pid}")
        page.wait_for_selector(f"#source-body .here:has-text('{text}')")


def test_back_and_forward_lead_from_question_to_question_and_out_of_a_source(page: Any, server: Any) -> None:
    for number in (1, 2):
        ask(page, f"number {number}")
        page.wait_for_selector(f"{DONE}:has-text('A{number}')")
    asked = page.url
    page.goto(f"{server.url}/#source=ra-isf/r1")
    page.wait_for_selector("#source-body .here")
    page.go_back()
    page.wait_for_selector("#source", state="hidden")
    assert page.url == asked and page.inner_text(".answer") == "A2"
    page.go_forward()
    page.wait_for_selector("#source-body .here")
    page.keyboard.press("Escape")  # what is shown now is what a reload shows
    page.wait_for_function("url => location.href === url", arg=asked)
    page.go_back()
    page.go_back()
    page.wait_for_selector(f"{DONE}:has-text('A1')")
    page.go_back()
    page.wait_for_selector("#empty")
    assert page.locator(".run").count() == 0 and page.input_value("#question") == ""
    page.go_forward()
    page.wait_for_selector(f"{DONE}:has-text('A1')")
    assert page.locator("#past [aria-current] .q").inner_text() == "number 1"


def test_what_is_under_way_is_forgotten_too(page: Any, script: Any) -> None:
    ask(page, "slow?")
    assert script.begun.wait(60)
    page.click("#forget")
    page.wait_for_selector(".again")
    script.let_go.set()
    assert page.is_visible("#none") and page.evaluate("localStorage.getItem('raisf.past')") is None


def test_who_stops_by_keyboard_can_ask_on(page: Any, script: Any) -> None:
    ask(page, "slow?")
    assert script.begun.wait(60)
    page.focus("#stop")
    page.keyboard.press("Enter")
    page.wait_for_selector("#stop", state="hidden")
    assert page.evaluate("document.activeElement.id") == "question"


def test_without_javascript_it_says_so_first_and_takes_no_question(browser: Any, server: Any) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(server.url)
    assert page.inner_text("main").startswith("This page needs JavaScript") and page.is_hidden("#question")
    page.close()


def test_the_tree_grows_while_the_program_works_and_stops_when_told_to(page: Any, script: Any, service: Any) -> None:
    ask(page, "slow Bulgorton?")
    assert script.begun.wait(60)
    page.wait_for_selector(".node")
    assert page.is_visible("#stop") and page.locator(".working").count() == 1
    page.keyboard.press("Escape")
    page.wait_for_selector(".again")
    assert page.inner_text(".answer") == "Stopped" and not page.is_visible("#stop")
    script.let_go.set()
    page.click(".again")
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer") == "Pasmur Sea"


def test_two_programs_side_by_side(page: Any, ask_about: Any) -> None:
    page.select_option("#other", "rag")
    ask(page, ask_about.sea)
    for number in (1, 2):
        page.wait_for_selector(f".run:nth-child({number}) {DONE}")
    assert page.locator(".cost .program").all_inner_texts() == ["ra-isf", "rag"]
    tops = [box["y"] for box in (page.locator(".run").nth(n).bounding_box() for n in (0, 1))]
    assert tops[0] == tops[1]


def test_an_error_is_said_and_the_question_can_be_asked_again(page: Any) -> None:
    ask(page, "Does it fail?")
    assert "the endpoint is down" in page.locator("[role=alert]").inner_text()
    assert page.is_visible(".again") and page.is_enabled("#go")
    ask(page, "number 5")
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer") == "A5"


def test_a_reload_shows_the_question_again_and_past_ones_are_kept(page: Any, ask_about: Any, script: Any) -> None:
    ask(page, "number 1")
    page.wait_for_selector(DONE)
    ask(page, ask_about.sea)
    page.wait_for_selector(DONE)
    page.reload()
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer") == "Pasmur Sea" and page.locator(".children > .node").count() == 2
    page.click("#past li:nth-child(2) button")
    assert page.inner_text(".answer") == "A1"
    ask(page, "slow?")
    assert script.begun.wait(60)
    page.reload()
    page.wait_for_selector(".again")
    assert "left before the answer" in page.inner_text(".run")
    page.click("#forget")
    assert page.is_visible("#none")


def test_past_questions_show_how_they_ended_where_there_is_no_tree(page: Any, service: Any, script: Any) -> None:
    class Own(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=f"{question}!")

    service.served["own"] = Served("own", Own())
    page.reload()
    page.select_option("#program", "own")
    ask(page, "mine")
    page.wait_for_selector(DONE)
    page.select_option("#program", "rag")
    ask(page, "Does it fail?")
    page.wait_for_selector(".again")
    ask(page, "slow?")
    assert script.begun.wait(60)
    page.keyboard.press("Escape")
    page.wait_for_selector(".again")
    page.evaluate("""() => { // and one whose tree was too large to keep
        const run = { program: "rag", state: "answered", answer: "A", cut: true };
        const entry = { id: "x", question: "large", runs: [run] };
        localStorage.setItem("raisf.past", JSON.stringify([entry, ...JSON.parse(localStorage.getItem("raisf.past"))]));
    }""")
    page.reload()
    for number, (answer, told) in enumerate(
        [("A", "too large"), ("Stopped", "You stopped"), ("No answer", "the endpoint is down"), ("mine!", "own")], 1
    ):
        page.click(f"#past li:nth-child({number}) button")
        assert page.inner_text(".answer") == answer and told in page.inner_text(".run")
    assert page.locator(".error").count() == 0 and "0 LM calls" in page.inner_text(".cost")
    assert "search" not in page.inner_text(".cost")  # of one's own module nobody counts them


def test_a_key_is_asked_for_until_it_fits_and_one_may_leave(browser: Any, make: Any, start: Any) -> None:
    key = "k" * 32
    with start(make(), Access(keys=(hashlib.sha256(key.encode()).digest(),))) as server:
        page = browser.new_page()
        page.set_default_timeout(MINUTE)
        page.goto(server.url)
        page.wait_for_selector("#key[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("#trouble [role=alert]")
        assert "asks for a key" in page.inner_text("#trouble") and page.is_hidden("#key")
        ask(page, "number 3")  # with no programs listed yet: it asks for the key again
        for given, told in (("w" * 20, "does not take"), ("ключ" * 5, "ASCII")):
            page.wait_for_selector("#key[open]")
            page.fill("#key-value", given)
            page.keyboard.press("Enter")
            page.wait_for_selector(f"#key [role=alert]:has-text('{told}')")
        page.fill("#key-value", key)
        page.keyboard.press("Enter")
        page.wait_for_selector(DONE)
        assert page.inner_text(".answer") == "A3" and page.inner_text("#trouble") == ""
        page.evaluate("sessionStorage.setItem('raisf.key', 'old' )")
        page.select_option("#other", "rag")
        ask(page, "number 4")
        page.wait_for_selector("#key [role=alert]")
        page.keyboard.press("Escape")
        playwright.expect(page.locator(".again:has-text('Enter key')")).to_have_count(2, timeout=MINUTE)
        page.close()


def test_programs_are_asked_for_again_where_the_server_was_not_there(page: Any) -> None:
    page.route("**/programs", lambda route: route.abort())
    page.reload()
    page.wait_for_selector("#trouble [role=alert]:has-text('cannot be reached')")
    page.unroute("**/programs")
    ask(page, "number 6")
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer") == "A6" and page.inner_text("#trouble") == ""


def test_hostile_text_is_only_text(page: Any, ask_about: Any) -> None:
    ask(page, ask_about.hostile + " \u202eabc מי ראש העיר")
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer").startswith("<script>window.hacked = true</script>")
    assert "\\u202e" in page.inner_text(".answer") and "**bold**" in page.inner_text(".answer")
    ask(page, "hostile Bulgorton?")
    page.wait_for_selector(DONE)
    # And it says that no passage holds such an answer, which nothing supports then.
    assert page.is_visible("text=stands in none of the passages read") and "confidence 0.00" in page.inner_text(".cost")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img, main a[href^=javascript]").count() == 0


def test_twenty_thousand_characters(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    ask(page, "number 9 " + "x" * 19_900)
    page.wait_for_selector(DONE)
    assert page.inner_text(".answer") == "A9"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".asked").bounding_box()["height"] < 300
    ask(page, "y" * 20_001)
    assert "20,000" in page.locator("[role=alert]").inner_text()


def test_it_works_by_keyboard_and_everything_has_a_name(page: Any, ask_about: Any) -> None:
    ask(page, ask_about.sea)
    page.wait_for_selector(DONE)
    page.locator(".node summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".node details").first.get_attribute("open") is not None
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "question"
    nameless = page.evaluate("""[...document.querySelectorAll('button, input, select, textarea, summary')].filter(
        (one) => !(one.textContent.trim() || one.labels?.length || one.getAttribute('aria-label'))).length""")
    assert nameless == 0 and page.locator("h1").count() == 1 and page.locator("html[lang]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_dark_enough_on_its_ground(browser: Any, server: Any, ask_about: Any, scheme: str) -> None:
    """WCAG AA: 4.5 to 1, of every text against the nearest ground behind it."""
    page = browser.new_page(color_scheme=scheme)
    page.set_default_timeout(MINUTE)
    page.goto(server.url)
    ask(page, ask_about.sea)
    page.wait_for_selector(DONE)
    weak = page.evaluate(CONTRAST)
    page.close()
    assert weak == []


CONTRAST = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (one) => { for (; one; one = one.parentElement) {
    const color = numbers(getComputedStyle(one).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color; } return [255, 255, 255]; };
  const weak = [];
  for (const one of document.querySelectorAll('body *')) {
    const says = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!says || !one.checkVisibility()) continue;
    const [a, b] = [light(numbers(getComputedStyle(one).color)), light(ground(one))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(`${one.tagName}.${one.className} ${one.textContent.slice(0, 30)}`);
  }
  return weak;
}"""


@pytest.fixture
def ask_about(request: Any) -> Any:
    return request.getfixturevalue("ask")


def test_the_document_itself_opens_as_plain_text(
    browser: Any, make: Any, start: Any, documents: Any, ask_about: Any
) -> None:
    with start(make(), documents=documents) as server:
        page = browser.new_page()
        page.set_default_timeout(MINUTE)
        page.goto(server.url)
        page.wait_for_selector("#program option", state="attached")
        ask(page, ask_about.sea)
        page.wait_for_selector(DONE)
        page.click(".cited button")
        with page.expect_popup() as opened:
            page.click("#source-file button")
        opened.value.wait_for_url("blob:**")
        assert "<script>window.hacked" in opened.value.inner_text("body")
        assert opened.value.evaluate("window.hacked") is None
        page.evaluate("window.open = () => null")  # as a blocked pop-up gives
        page.click("#source-file button")
        page.wait_for_selector("#source-file [role=alert]")
        with page.expect_popup() as opened:
            page.click("#source-file a")
        assert "<script>window.hacked" in opened.value.inner_text("body")
        page.close()
