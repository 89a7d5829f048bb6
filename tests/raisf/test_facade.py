"""`import raisf` as a Python user meets it."""

import dspy
import pytest

import raisf


@pytest.mark.parametrize("name", raisf.__all__)
def test_every_promised_name_is_there(name):
    assert callable(getattr(raisf, name))
    assert name in dir(raisf)


def test_a_misspelt_name_says_what_there_is():
    with pytest.raises(AttributeError, match="RAISF"):
        raisf.RAISV  # noqa: B018


def test_dspys_own_evaluator_takes_the_metric():
    class Says(dspy.Module):
        def forward(self, question):
            return dspy.Prediction(answer=question)

    rows = [("The Elm River.", ["elm river", "Elm"]), ("Ada", ["Bob"])]
    devset = [dspy.Example(question=said, answers=gold).with_inputs("question") for said, gold in rows]
    evaluate = dspy.Evaluate(devset=devset, metric=raisf.answer_exact_match, num_threads=1)
    assert evaluate(Says()).score == 50.0
