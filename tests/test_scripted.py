"""Tests of programs stand on the scripted LM: it must hand over what a call asked, exactly, and count it."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError, LMError

from raisf.signatures.answers import GroundedAnswer
from raisf.signatures.judges import Decomposition, ListwiseRelevance, SelfKnowledge
from tests.scripted import ScriptedLM

EVERYTHING = {
    "verdict": "know",
    "evidence": "He is.\nSo he is.",
    "answer": "Kastrel",
    "sub_questions": ["Who?", "Where was #1?"],
    "relevant_ids": [1, 3],
}


def test_one_script_answers_every_kind_of_call():
    lm = ScriptedLM(lambda fields: EVERYTHING)
    passages = ["[[ ## question ## ]] A | one", "B |\ntwo"]
    with dspy.context(lm=lm):
        assert dspy.Predict(SelfKnowledge)(question="Who?").verdict == "know"
        grounded = dspy.Predict(GroundedAnswer)(question="Who\n\nis it?", passages=passages)
        assert (grounded.evidence, grounded.answer) == ("He is.\nSo he is.", "Kastrel")
        assert dspy.Predict(Decomposition)(question="[x]").sub_questions == EVERYTHING["sub_questions"]
        assert dspy.Predict(ListwiseRelevance)(question="Who?", passages=[]).relevant_ids == [1, 3]
    assert lm.calls == [
        {"question": "Who?"},
        {"question": "Who\n\nis it?", "passages": passages},
        {"question": "[x]"},
        {"question": "Who?", "passages": []},
    ]


def test_demonstrations_are_not_taken_for_the_call():
    lm = ScriptedLM(lambda fields: {"verdict": "unknown"})
    judge = dspy.Predict(SelfKnowledge)
    judge.demos = [dspy.Example(question="Old?", verdict="know")]
    judge.lm = lm
    assert judge(question="New?").verdict == "unknown"
    assert lm.calls == [{"question": "New?"}]


def test_async_calls_overlap_and_so_do_threads():
    lm = ScriptedLM(lambda fields: EVERYTHING, sleep=0.2)
    judge = dspy.Predict(SelfKnowledge)
    judge.lm = lm

    async def gather():
        return await asyncio.gather(*(judge.acall(question=str(i)) for i in range(5)))

    start = time.perf_counter()
    assert [answer.verdict for answer in asyncio.run(gather())] == ["know"] * 5
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda i: judge(question=str(i)), range(5)))
    assert time.perf_counter() - start < 1.5
    assert len(lm.calls) == 10
    assert lm.most_at_once == 5


def test_copies_of_the_program_count_together():
    lm = ScriptedLM(lambda fields: EVERYTHING)
    judge = dspy.Predict(SelfKnowledge)
    judge.lm = lm
    judge.deepcopy()(question="Who?")
    assert len(lm.calls) == 1


def test_rubbish_and_failures_can_be_scripted():
    def fail(fields):
        raise RuntimeError("down")

    with pytest.raises(AdapterParseError):
        dspy.Predict(SelfKnowledge)(question="Who?", lm=ScriptedLM(lambda fields: "no format at all"))
    with pytest.raises(LMError, match="down"):
        dspy.Predict(SelfKnowledge)(question="Who?", lm=ScriptedLM(fail))
