"""If these failed, a module's own judges, typed outputs and locks could be lost as it is compiled."""

import threading
from typing import Any, Literal

import dspy
import pydantic
import pytest

import raisf
from raisf.lm.scripted import ScriptedLM
from raisf.optimize.copying import copy_of
from raisf.utils.files import read_json

QUIET: dict[str, Any] = {"progress": False}


class Moderation(dspy.Signature):
    """Decide whether the question may be answered under the house rules."""

    question: str = dspy.InputField()
    verdict: Literal["allowed", "forbidden"] = dspy.OutputField()


class Found(pydantic.BaseModel):
    """A pydantic model."""

    name: str


class Extracting(dspy.Module):
    """A judge of its own, an input called `base`, a typed output, one program on two paths, and a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = dspy.Predict(Moderation)
        self.find = dspy.Predict(dspy.Signature("question, base -> found: list[Found]", custom_types={"Found": Found}))
        self.rag = self.also = raisf.Direct()
        self.lock = threading.Lock()

    def forward(self, question: str) -> dspy.Prediction:
        self.gate(question=question)
        found = self.find(question=question, base="the base").found
        return dspy.Prediction(answer=self.rag(question=question).answer if found[0].name else "unknown")


SAID = {"verdict": "allowed", "found": [{"name": "x"}], "answer": "right"}


def extracting() -> Extracting:
    made = Extracting()
    made.set_lm(ScriptedLM(lambda fields: SAID))
    return made


def asked(name: str) -> list[dspy.Example]:
    return [dspy.Example(question=f"{name} {n}?", answer="right").with_inputs("question") for n in range(4)]


def test_a_module_shows_its_own_right_runs_with_all_of_their_fields() -> None:
    """A judge of a user's own was given the verdicts of ours; a field called base was lost; a typed output failed."""
    made = raisf.BootstrapJudges(**QUIET).compile(extracting(), trainset=asked("train"))
    assert {demo.verdict for demo in made.gate.demos} == {"allowed"}
    assert {(demo["base"], repr(demo.found)) for demo in made.find.demos} == {("the base", "[{'name': 'x'}]")}
    assert made.rag.answer_directly.demos


@pytest.mark.parametrize("kind", [raisf.BootstrapJudges, raisf.RandomSearch, raisf.MIPRO])
def test_demonstrations_with_typed_values_are_compiled_further(kind: Any) -> None:
    student = extracting()
    student.find.demos = [dspy.Example(question="q", base="b", found=[Found(name="z")])]
    options: dict[str, Any] = {"candidates": 2} if kind is not raisf.BootstrapJudges else {}
    options |= {"trials": 1} if kind is raisf.MIPRO else {}
    made = kind(**options, **QUIET).compile(student, trainset=asked("train"), valset=asked("other"))
    assert made.find.demos


def test_a_copy_keeps_what_is_on_two_paths_one_and_shares_what_cannot_be_copied() -> None:
    student = extracting()
    made: Any = copy_of(student)
    assert made.rag is made.also is not student.rag and made.lock is student.lock
    assert made.rag.answer_directly.lm is student.rag.answer_directly.lm


class HeavyLM(ScriptedLM):
    """An LM that would hold its weights once more in a copy."""

    copied = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        HeavyLM.copied += 1
        return self


@pytest.mark.parametrize("locked", [False, True])
def test_no_lm_is_copied_not_even_one_that_a_module_asks_by_itself(locked: bool) -> None:
    """Each candidate had another copy of its weights; a lock as a key was the end of the compilation."""
    student: Any = raisf.Direct()
    student.set_lm(HeavyLM(lambda fields: SAID))
    student.writer, student.readers = HeavyLM(lambda fields: SAID), {"one": HeavyLM(lambda fields: SAID)}
    if locked:
        student.locks = {threading.Lock(): 1}
    made: Any = copy_of(student)
    assert made is not student and made.writer is student.writer and HeavyLM.copied == 0


@pytest.mark.parametrize(
    "said, told", [("right", "a str"), (dspy.Prediction(reply="right"), "a prediction with reply")]
)
def test_a_module_that_gives_no_answer_is_told_what_to_give(said: Any, told: str) -> None:
    """A text ended compiling with Python's own words, and a prediction without an answer was wrong in silence."""
    for metric in (raisf.answer_exact_match, raisf.answer_accuracy):
        with pytest.raises(raisf.InputError, match=rf"gave {told}: let its forward return dspy.Prediction\(answer"):
            metric(asked("What")[0], said)


class Styled(dspy.Module):
    """What it was made with it keeps under other names, or as lists."""

    def __init__(self, styles: tuple[str, ...] = ("short",), k: int = 3, parts: Any = ()) -> None:
        super().__init__()
        self.styles, self._k, self.parts = list(styles), k, list(parts)
        self.answer = dspy.Predict("question -> answer")


def test_a_module_that_was_made_with_other_lists_is_not_taken_for_the_one_that_was_saved(tmp_path: Any) -> None:
    """It was loaded as its class is by default, and answered as that does, without a word."""
    made = Styled(["long", "formal"], k=9, parts=[dspy.Predict("a -> b")])
    made.set_lm(ScriptedLM(lambda _: {"answer": "x"}))
    raisf.save(made, tmp_path / "a")
    kept = read_json(tmp_path / "a" / "manifest.json")["options"]
    assert kept.keys() == {"styles", "k"} and kept["k"] == 9 and kept["styles"].startswith("sha256:")
    with pytest.raises(raisf.InputError, match="another styles of Styled"):
        raisf.load(tmp_path / "a", program=Styled(parts=[dspy.Predict("a -> b")]))
    loaded = raisf.load(tmp_path / "a", program=Styled(["long", "formal"], parts=[dspy.Predict("a -> b")]))
    assert loaded._k == 9
