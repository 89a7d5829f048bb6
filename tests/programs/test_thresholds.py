"""If these failed, a calibrated threshold would be stored and shown, and the program would do as before."""

from typing import Any, get_args

import dspy
import pytest

from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


class Scoring(dspy.ChatAdapter):
    """Adds to every verdict the probability that the test says; without any, it adds none."""

    def __init__(self, **probability: float):
        super().__init__(use_json_adapter_fallback=False)
        self.probability = probability

    def _call_postprocess(self, processed_signature: Any, original_signature: Any, *rest: Any) -> list[dict[str, Any]]:
        values = super()._call_postprocess(processed_signature, original_signature, *rest)
        if "verdict" in original_signature.output_fields:
            yes, no = get_args(original_signature.output_fields["verdict"].annotation)
            if yes in self.probability:
                labels = {yes: self.probability[yes], no: 1 - self.probability[yes]}
                return [{**value, "probabilities": labels} for value in values]
        return values


@pytest.fixture
def lm(scripted, plan) -> ScriptedLM:
    """Says "unknown" and "relevant" in words; what the probabilities say counts more."""
    made = scripted(root=plan(relevant=5))
    made.adapter = Scoring(know=0.3, relevant=0.8)
    return made


@pytest.mark.parametrize(("threshold", "route"), [(0.31, "passages"), (0.3, "direct"), (0.0, "direct")])
def test_a_question_is_known_from_the_threshold_on(ask, shelf, lm, threshold, route):
    root = ask(RAISF(shelf, know_threshold=threshold), lm).root
    assert root.route == route
    assert (root.know.verdict, root.know.probability) == ("know" if route == "direct" else "unknown", 0.3)


@pytest.mark.parametrize(("threshold", "kept"), [(0.8, 5), (0.81, 0), (1.0, 0)])
def test_a_passage_is_relevant_from_the_threshold_on(ask, shelf, lm, threshold, kept):
    root = ask(RAISF(shelf, relevance_threshold=threshold), lm).root
    assert sum(passage.relevant for passage in root.passages) == kept
    assert {passage.judgement.probability for passage in root.passages} == {0.8}
    assert root.route == ("passages" if kept else "no_sub_questions")


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
def test_a_judge_without_probabilities_is_believed_whatever_the_threshold(ask, scripted, plan, shelf, threshold):
    program = RAISF(shelf, know_threshold=threshold, relevance_threshold=threshold)
    root = ask(program, scripted(root=plan(relevant=2))).root
    assert (root.know.verdict, root.know.probability) == ("unknown", None)
    assert [passage.relevant for passage in root.passages] == [True, True, False, False, False]


def test_listwise_verdicts_know_no_threshold(ask, shelf, lm):
    root = ask(RAISF(shelf, relevance="listwise", relevance_threshold=1.0), lm).root
    assert all(passage.relevant for passage in root.passages)


def test_thresholds_are_options_like_any_other(shelf):
    from raisf.programs.registry import build, options

    kept = options(RAISF(shelf, know_threshold=0.25, relevance_threshold=0.75))
    made: Any = build("ra-isf", shelf, **kept)
    assert (made.know_threshold, made.relevance_threshold) == (0.25, 0.75)
    for name in ("know_threshold", "relevance_threshold"):
        with pytest.raises(InputError, match=f"{name} is 1.5: give 0 to 1"):
            RAISF(shelf, **{name: 1.5})
        with pytest.raises(InputError, match=f"{name} is 'a': give 0 to 1"):
            RAISF(shelf, **{name: "a"})
