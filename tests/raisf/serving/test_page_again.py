"""The page in a real Chromium: what it draws anew, and questions that end before their answer comes."""

import re
from typing import Any

import pytest

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
