"""If these failed, a module's own judges, typed outputs and locks could be lost as it is compiled."""

import datetime
import enum
import gc
import sys
import threading
from typing import Any, Literal

import dspy
import numpy as np
import pydantic
import pytest

import raisf
from raisf.lm.adapter import CompactAdapter
from raisf.optimize.copying import copy_of
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from tests.scripted import ScriptedLM

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
    with pytest.raises(raisf.InputError, match=r"another k of Styled than .* has \(9, not 3\)"):
        raisf.load(tmp_path / "a", program=Styled(["long", "formal"], parts=[dspy.Predict("a -> b")]))
    loaded = raisf.load(tmp_path / "a", program=Styled(["long", "formal"], k=9, parts=[dspy.Predict("a -> b")]))
    assert loaded._k == 9


def test_an_index_of_embeddings_is_shared_and_no_copy_prints_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    program: Any = dspy.ChainOfThought("context, question -> answer")
    program.search = dspy.Embeddings(["a", "b"], dspy.Embedder(lambda texts: np.ones((len(texts), 2))), k=1)
    made: Any = copy_of(program)
    assert made.search is program.search and made.predict is not program.predict
    gc.collect()
    assert not raised


class Searching(dspy.Module):
    """Does not keep what it makes its parts with."""

    def __init__(self, passages: int = 3, manner: str = "short") -> None:
        super().__init__()
        self.retrieve: Any = dspy.Retrieve(k=passages)
        self.inner = Styled((manner,))


@pytest.mark.parametrize(
    ("made", "told"),
    [(Searching(9), "another k of Retrieve .*9, not 3"), (Searching(3, "long"), "another styles of Styled")],
)
def test_other_parts_than_were_saved_are_not_loaded(made: Any, told: str, tmp_path: Any) -> None:
    """It was loaded with those of its defaults, without a word."""
    raisf.save(made, tmp_path / "a")
    with pytest.raises(raisf.InputError, match=told):
        raisf.load(tmp_path / "a", program=Searching)
    loaded: Any = raisf.load(tmp_path / "a", program=made)
    assert loaded.retrieve.k == made.retrieve.k and loaded.inner.styles == made.inner.styles


def test_a_module_that_is_made_when_it_is_first_needed_need_not_be_there(tmp_path: Any) -> None:
    used: Any = Searching()
    used.later = dspy.Retrieve(k=5)
    raisf.save(used, tmp_path / "a")
    assert isinstance(raisf.load(tmp_path / "a", program=Searching), Searching)


class Panel(dspy.Module):
    """Its numbers shape what it is made of."""

    def __init__(self, k: int = 3, voters: int = 2, site: str = "mine", retriever: Any = None) -> None:
        super().__init__()
        self.k, self.voters, self.site = k, voters, site
        self.search, self.retriever = dspy.Retrieve(k=k), retriever
        self.vote = [dspy.Predict("question -> answer") for _ in range(voters)]


class Reviewed(raisf.RAISF):
    """The same of a subclass of ours."""

    def __init__(self, retriever: Any = None, voters: int = 2, **options: Any) -> None:
        super().__init__(retriever, **options)
        self.voters = voters
        self.vote = [dspy.Predict("question -> answer") for _ in range(voters)]


def voted(made: Any, lm: Any) -> Any:
    for place, predictor in enumerate(made.vote):
        predictor.demos = [dspy.Example(question="q", answer=str(place))]
    made.set_lm(lm)
    return made


@pytest.mark.parametrize("lm", [ScriptedLM(lambda _: SAID), raisf.connect("openai/small")], ids=["given again", "kept"])
def test_a_class_is_made_with_the_numbers_that_were_saved(lm: Any, tmp_path: Any) -> None:
    """It said k = 7 and searched 3, and what the third voter had learnt was gone without a word."""
    raisf.save(voted(Panel(k=7, voters=3), lm), tmp_path / "a")
    raisf.save(voted(Reviewed(voters=3, k=7), lm), tmp_path / "b")
    panel: Any = raisf.load(tmp_path / "a", program=Panel, lm=lm)
    assert (panel.k, panel.search.k, panel.voters) == (7, 7, 3)
    for made in (panel, *(raisf.load(tmp_path / "b", program=kind, lm=lm) for kind in (Reviewed, Reviewed()))):
        assert made.k == 7 and [one.demos[0]["answer"] for one in made.vote] == ["0", "1", "2"]


class Between(dspy.Module):
    """Takes no two numbers at once, and none below 0."""

    def __init__(self, low: int = 1, high: int = 9) -> None:
        super().__init__()
        if low < 0 or (low != 1 and high != 9):
            raise ValueError("low is less than 0" if low < 0 else "not both")
        self._low, self._high, self.predict = low, high, dspy.Predict("question -> answer")


def test_numbers_that_a_class_does_not_take_together_are_set_where_it_keeps_them(tmp_path: Any) -> None:
    """They were set beside the private ones, which kept their defaults without a word."""
    made: Any = Between()
    made._low, made._high = 3, 5
    raisf.save(made, tmp_path / "a")
    loaded: Any = raisf.load(tmp_path / "a", program=Between)
    assert (loaded._low, loaded._high) == (3, 5) and "low" not in vars(loaded)


def test_an_instance_with_other_numbers_is_not_taken_for_the_one_that_was_saved(tmp_path: Any) -> None:
    raisf.save(voted(Panel(k=7, voters=3), ScriptedLM(lambda _: SAID)), tmp_path / "a")
    with pytest.raises(raisf.InputError, match=r"another k of Panel than .* has \(7, not 3\): give an instance"):
        raisf.load(tmp_path / "a", program=Panel(voters=3))

    def best(of: int, threshold: float) -> dspy.Module:
        return dspy.BestOfN(dspy.Predict("question -> answer"), of, lambda *_: 1.0, threshold)

    raisf.save(best(3, 0.5), tmp_path / "best")
    with pytest.raises(raisf.InputError, match=r"another N of BestOfN than .* has \(3, not 5\)"):
        raisf.load(tmp_path / "best", program=best(5, 0.5))
    assert raisf.load(tmp_path / "best", program=best(3, 0.5)).N == 3


def test_predictors_that_a_module_lacks_are_not_lost_without_a_word(tmp_path: Any) -> None:
    """No option told of them; with an LM that the artifact kept, it was called damaged."""
    made = Panel()
    made.vote.append(dspy.Predict("question -> answer"))
    raisf.save(voted(made, raisf.connect("openai/small")), tmp_path / "a")
    with pytest.raises(raisf.InputError, match=r"has vote\[2\], and this .*:Panel has not: give an instance"):
        raisf.load(tmp_path / "a", program=Panel)


class Colour(enum.Enum):
    """What no JSON holds as it is."""

    RED = "red"


class Painted(dspy.Signature):
    """Say when which colour was seen."""

    question: str = dspy.InputField()
    colour: Colour = dspy.OutputField()
    days: list[datetime.date] = dspy.OutputField()


def test_demonstrations_with_dates_and_members_of_an_enum_are_kept_and_shown_alike(tmp_path: Any) -> None:
    """What dspy.BootstrapFewShot made of such outputs could not be saved."""
    program = dspy.Predict(Painted)
    program.set_lm(ScriptedLM(lambda _: {"colour": "red", "days": ["2020-01-31"]}))
    made = dspy.BootstrapFewShot(metric=lambda *_: True, max_labeled_demos=0).compile(program, trainset=asked("train"))
    assert made.demos[0].colour is Colour.RED and made.demos[0].days == [datetime.date(2020, 1, 31)]
    raisf.save(made, tmp_path / "a")
    loaded: Any = raisf.load(tmp_path / "a", program=dspy.Predict(Painted))
    for adapter in (dspy.ChatAdapter(), dspy.JSONAdapter(), dspy.XMLAdapter(), CompactAdapter()):
        shown = [adapter.format(one.signature, one.demos, {"question": "Now?"}) for one in (made, loaded)]
        assert shown[0] == shown[1] and "2020-01-31" in str(shown[0])


def test_numbers_of_half_the_digits_are_shown_alike_in_a_demonstration_that_was_kept(tmp_path: Any) -> None:
    """The reader had seen 0.1, and saw 0.10000000149011612 from the artifact."""
    program = dspy.Predict("share, shares: list[float] -> answer")
    tenth = np.float32(0.1)
    program.demos = [dspy.Example(share=tenth, shares=[tenth, np.array(tenth)], answer="x")]
    raisf.save(program, tmp_path / "a")
    loaded: Any = raisf.load(tmp_path / "a", program=dspy.Predict(program.signature))
    assert loaded.demos[0]["share"] == 0.1 and loaded.demos[0]["shares"] == [0.1, 0.1]
    program.demos = [dspy.Example(share=1, shares=np.array([[0.1, 3]], "float32"), answer="x")]
    raisf.save(program, tmp_path / "b")
    assert read_json(tmp_path / "b" / "program.json")["self"]["demos"][0]["shares"] == [[0.1, 3.0]]


class Answering(dspy.Module):
    """Says in a conversation whether a number is even."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.Predict("earlier: dspy.History, number: int -> even: bool")

    def forward(self, number: int) -> dspy.Prediction:
        return self.say(earlier=dspy.History(messages=[{"number": 7, "even": False}]), number=number)


def test_a_probe_learns_what_is_asked_in_a_conversation(llama: Any, tmp_path: Any) -> None:
    """A row has the earlier turns as plain data: compiling failed once all runs had been made."""
    student = Answering()
    student.set_lm(ScriptedLM(lambda fields: {"even": int(fields["number"]) % 2 == 0}))
    train, dev = ([dspy.Example(number=n).with_inputs("number") for n in range(*of)] for of in ((10, 16), (20, 24)))
    optimizer = raisf.ProbeJudges(base=f"local/{llama}", metric=lambda *_: 1.0, work=tmp_path, **QUIET)
    made = optimizer.compile(student, trainset=train, valset=dev)
    assert made.compile_report["predictors"]["say"]["source"] == "own right runs"
    assert made(number=4).even in (True, False)


def test_who_asks_copies_of_what_it_holds_is_told_why_nothing_is_learnt(llama: Any, caplog: Any) -> None:
    """More questions, which the error asked for, never help, and GEPA gave the student back without a word."""
    student: Any = dspy.BestOfN(extracting(), N=1, reward_fn=lambda given, made: 1.0, threshold=1.0)
    sets: Any = {"trainset": asked("train"), "valset": asked("other")}
    weights = raisf.FinetuneJudges(base=f"local/{llama}", predictors=["module.find"], **QUIET)
    with pytest.raises(InputError, match=r"none that ended asked it, or only a copy of it \(dspy.BestOfN"):
        weights.compile(student, **sets)
    made = raisf.GEPA(reflection_lm=ScriptedLM(lambda fields: {}), metric=lambda *_: 0.5, trials=3, **QUIET)
    assert made.compile(student, **sets).compile_report["chosen"] == "zero-shot"
    assert "no run asked a predictor of this program, or only copies" in caplog.text
    caplog.clear()
    made.compile(extracting(), **sets)
    assert "no run asked" not in caplog.text
