"""If these failed, a module of the user's own would look free beside ours."""

import dspy
import pytest

from raisf.evaluation.runner import evaluate
from raisf.lm.scripted import ScriptedLM

ASKED = [dspy.Example(id=f"q{i}", question=f"What is {i}?", answer="1").with_inputs("question") for i in range(3)]


class Twice(dspy.Module):
    """A module of the user's own, which tells no trace."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        draft = self.ask(question=question).answer
        return self.ask(question=f"{question} {draft}?")


@pytest.mark.parametrize("tracked", [False, True])
def test_a_module_of_ones_own_costs_what_it_asks(tracked: bool) -> None:
    """It was free: no calls, no tokens."""
    program = Twice()
    program.set_lm(ScriptedLM(lambda fields: {"answer": "1"}))
    with dspy.context(track_usage=tracked):
        report = evaluate(program, ASKED, progress=False)
    assert (report.cost["lm_calls"], report.cost["unmetered_calls"]) == (2, 0)
    assert report.cost["prompt_tokens"] > 20
    assert report.cost["completion_tokens"] == 2 * len("[[ ## answer ## ]] 1".split())
    assert "retrievals" not in report.cost, "nobody tells what it searches for"
