"""The page in a real Chromium: what it draws anew, and questions that end before their answer comes."""

import re
from typing import Any

import pytest

from raisf.programs.baselines.iter_retgen import IterRetGen
from raisf.serving.service import Served
from tests.scripted import ScriptedLM

pytestmark = pytest.mark.slow
DONE = ".answer:not(.working)"
FOCUSED = "document.activeElement."


def put(page: Any, question: str, program: str = "rag") -> None:
    page.select_option("#program", program)
    page.fill("#question", question)
    page.keyboard.press("Enter")


def seconds(page: Any) -> float:
    return float(re.findall(r"([\d.]+) s\b", page.inner_text(".cost"))[0])


def test_a_question_that_is_stopped_says_how_long_it_took(page: Any, script: Any) -> None:
    put(page, "slow?")
    assert script.begun.wait(60)
    page.wait_for_selector(".cost:has-text('1 LM call')")
    while seconds(page) <= 1:
        page.wait_for_timeout(100)
    page.keyboard.press("Escape")
    page.wait_for_selector(".again")
    stopped = seconds(page)
    page.reload()
    page.wait_for_selector(".again")
    assert seconds(page) == stopped > 1


def test_the_sentence_of_a_program_that_works_in_steps_is_marked_where_it_is_seen(
    page: Any, service: Any, rivers: Any
) -> None:
    said = {
        "reasoning": "It ends.",
        "evidence": "The Funzol River flows into the Pasmur Sea.",
        "answer": "Sea",
    }
    program = IterRetGen(rivers, k=2)
    program.set_lm(ScriptedLM(lambda fields: said))
    service.served["steps"] = Served("steps", program)
    page.reload()
    put(page, "Where does the Funzol River end?", "steps")
    page.wait_for_selector(DONE)
    for _ in range(2):
        assert page.locator(".step mark:visible").all_inner_texts() == ["It flows into the Pasmur Sea below Oltrey."]
        page.reload()
        page.wait_for_selector(DONE)


def test_a_question_that_is_left_says_that_this_stopped_it(page: Any, script: Any) -> None:
    put(page, "number 1", "ra-isf")
    page.wait_for_selector(DONE)
    put(page, "slow?")
    assert script.begun.wait(60)
    page.click("#past [aria-current]")  # itself
    assert page.locator(".working").count() == 1
    page.click("#past li:nth-child(2) button")
    assert page.inner_text(".answer") == "A1"
    page.click("#past li:has-text('You left this question')")
    assert "You left this question" in page.inner_text(".run")


def test_the_focus_stays_where_it_was_when_that_is_drawn_anew(page: Any, script: Any) -> None:
    put(page, "slow Bulgorton?")
    assert script.begun.wait(60)
    page.focus(".passage summary")
    page.keyboard.press("Enter")
    focused = page.evaluate(f"{FOCUSED}innerText")
    script.let_go.set()
    page.wait_for_selector(DONE)
    assert page.evaluate(f"{FOCUSED}tagName") == "SUMMARY" and page.evaluate(f"{FOCUSED}innerText") == focused
    put(page, "number 2")
    page.wait_for_selector(DONE)
    page.focus("#past li:nth-child(2) button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".asked:has-text('slow Bulgorton?')")
    assert page.evaluate(f"{FOCUSED}closest('#past li').innerText").startswith("slow Bulgorton?")


def test_who_asks_again_by_keyboard_is_at_the_question(page: Any) -> None:
    put(page, "Does it fail?")
    page.focus(".again")
    page.keyboard.press("Enter")
    page.wait_for_selector(".again")
    assert page.evaluate(f"{FOCUSED}id") == "question"
