"""What collecting counts: if these failed, a teacher would seem cheaper, or an agreement surer, than it is.

And what was paid for once would be paid for again.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.optimize.judges.collect import collect
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def collected(questions: list[dspy.Example], folder: Path, teacher: dspy.LM | None = None) -> dict[str, Any]:
    program = RAISF(lambda query, k: [Passage("1", "Ada was born in Rome.")])
    program.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    return collect(program, questions, folder, teacher=teacher, threads=1, progress=False)


def question(text: str, **more: Any) -> dspy.Example:
    return dspy.Example(question=text, answer="x", **more).with_inputs("question")


def test_a_teacher_that_is_asked_again_for_what_can_be_read_has_made_both_calls(tmp_path: Path) -> None:
    """Twelve calls were told where twenty-four were made."""
    made = 0

    def reply(fields: dict[str, str]) -> Any:
        nonlocal made
        made += 1
        return {"verdict": "relevant", "sub_questions": ["a?", "b?"]} if made % 2 == 0 else "I think so"

    teacher = ScriptedLM(reply)
    teacher.adapter = dspy.ChatAdapter()  # which asks again, in JSON
    asked = [question(f"Q{number} about Ada?") for number in range(6)]
    told = collected(asked, tmp_path / "j", teacher)["teacher"]
    assert (told["calls"], told["unmetered_calls"], made) == (24, 0, 24)


def test_a_question_that_stands_there_twice_counts_once(tmp_path: Path) -> None:
    """Of two questions, given three times, an agreement was told with n = 6 and an interval half as wide."""
    asked = [question(f"Who is Ada {number}?", known=True) for number in range(30)]
    teacher = ScriptedLM(lambda fields: {"verdict": "relevant", "sub_questions": ["a?", "b?"]})
    once, thrice = (collected(asked * times, tmp_path / str(times), teacher) for times in (1, 3))
    assert once["agreement"]["know"]["n"] == 30 and once["teacher"]["calls"] == 60
    for told in (once, thrice):
        del told["teacher"]["seconds"]
    assert thrice == once
    assert len((tmp_path / "3" / "know.jsonl").read_text("utf-8").splitlines()) == 30


def test_a_question_that_stands_there_twice_is_unfinished_once(tmp_path: Path) -> None:
    asked = [question("Who is Ada?", known=True), *[question(f"Where was {name} born?") for name in "ABC"]]

    def reply(fields: dict[str, str]) -> Any:
        return "" if "Ada" in fields["question"] else {"answer": "x"}

    program = RAISF(lambda query, k: [Passage("1", "Ada was born in Rome.")])
    program.set_lm(ScriptedLM(reply))
    assert collect(program, asked + asked[:1], tmp_path / "j", threads=1, progress=False)["unfinished"] == 1


def test_labels_are_taken_up_by_whose_they_are_where_the_file_that_says_so_is_lost(tmp_path: Path) -> None:
    folder, asked = tmp_path / "j", [question(f"Q{number} about Ada?") for number in range(3)]
    teacher = ScriptedLM(lambda fields: {"verdict": "relevant", "sub_questions": ["a?", "b?"]})
    whole, paid = collected(asked, folder, teacher), len(teacher.calls)
    state = folder / "collected.json"
    for lose in (lambda: state.write_text(""), state.unlink):
        lose()
        with pytest.raises(InputError, match="another program, LM, teacher"):
            collected(asked[:1], folder, teacher)
        assert collected(asked, folder, teacher)["rows"] == whole["rows"] and len(teacher.calls) == paid
    state.unlink()
    journal = folder / "journal.jsonl"
    journal.write_text("".join(journal.read_text("utf-8").splitlines(keepends=True)[1:]))  # as an earlier version's
    with pytest.raises(InputError, match=r"has lost its collected\.json"):
        collected(asked, folder, teacher)
    (folder / ".lock").unlink()  # as it would be another's journal.jsonl
    with pytest.raises(InputError, match="holds other things"):
        collected(asked, folder, teacher)
    (folder / ".lock").touch()
    journal.unlink()  # the rows alone were kept, maybe changed
    with pytest.raises(InputError, match="holds other things"):
        collected(asked, folder, teacher)
