"""What collecting counts: if these failed, a teacher would seem cheaper, or an agreement surer, than it is."""

from pathlib import Path
from typing import Any

import dspy

from raisf.lm.scripted import ScriptedLM
from raisf.optimize.judges.collect import collect
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage


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
