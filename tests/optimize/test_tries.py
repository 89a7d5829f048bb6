"""If these failed, a verdict would have the credit of another, or be judged by ends that no program reaches."""

from pathlib import Path
from typing import Any

import pytest
from dspy.utils.exceptions import LMServerError

from raisf.programs.ra_isf import RAISF
from tests.optimize.test_outcomes import script, tried, truth_and_lie, verdicts
from tests.scripted import ScriptedLM
from tests.shelf import Shelf


def student(answer: Any = script, **options: Any) -> RAISF:
    made = RAISF(Shelf(truth_and_lie), k=2, **options)
    made.set_lm(ScriptedLM(answer))
    return made


def test_a_passage_has_no_credit_for_what_was_read_beside_it(tmp_path: Path) -> None:
    def discerning(fields: dict[str, Any]) -> dict[str, Any]:
        right = "the truth" in str(fields.get("passages"))
        return {"evidence": "e", "answer": "from the truth"} if right else script(fields)

    found = verdicts(tried(student(discerning), tmp_path, "read"), "relevance")
    assert found["What of read? / the truth of read"] == ("relevant", 1.0)
    assert found["What of read? / a lie of read"] == ("irrelevant", 1.0)


def test_a_budget_of_the_students_ends_no_try(tmp_path: Path) -> None:
    free, tight = (tried(student(max_calls=n), tmp_path / str(n), "known", "read", "hard") for n in (None, 3))
    assert verdicts(free, "know") == verdicts(tight, "know") != {}
    assert verdicts(free, "relevance") == verdicts(tight, "relevance") != {}


def test_what_two_questions_ask_weighs_what_it_is_worth_to_both_in_the_mean(tmp_path: Path) -> None:
    def shared(fields: dict[str, Any]) -> dict[str, Any]:
        said = script(fields)
        if "known" not in fields["question"]:
            return said
        return {**said, "sub_questions": ["What of part?"], "answer": "by heart"}  # whatever its part's answer is

    found = tried(student(shared), tmp_path, "hard", "known")
    # To the one it is worth the answer, less the two calls that memory saves; to the other these calls alone.
    assert verdicts(found, "know")["What of part?"] == ("unknown", (1 - 0.02 - 0.02) / 2)


def test_of_ends_that_are_as_right_the_cheapest_says_what_a_verdict_is_worth(tmp_path: Path) -> None:
    def doubtful(fields: dict[str, Any]) -> dict[str, Any]:
        if "passage" in fields:
            return {"verdict": "irrelevant"}
        if "facts" in fields:
            return {"answer": "from the truth"}
        said = script(fields)
        return {**said, "verdict": "unknown", "sub_questions": ["What of part?"]} if "verdict" in said else said

    # As it is judged it is decomposed, which ends right, too, and takes more than the 4 calls that reading does.
    assert verdicts(tried(student(doubtful), tmp_path, "read"), "know")["What of read?"] == ("unknown", 1 - 0.04 + 0.02)


@pytest.mark.parametrize("times", [1, 100])
def test_a_call_that_is_lost_is_made_again_and_costs_no_other_try(times: int, tmp_path: Path) -> None:
    left = [times]

    def flaky(fields: dict[str, Any]) -> dict[str, Any]:
        if "a lie of read" in str(fields.get("passage")) and left[0]:
            left[0] -= 1
            raise LMServerError("busy", status=503)
        return script(fields)

    found = tried(student(flaky), tmp_path, "read", "known")
    assert found.failed == (times > 1)
    whole = verdicts(tried(student(), tmp_path / "whole", "read", "known"), "know")
    assert verdicts(found, "know") == (whole if times == 1 else {"What of known?": whole["What of known?"]})
