"""If these failed, an evaluation that is resumed would give the answers of another program, and tell nobody."""

import copy
import dataclasses
import enum
import functools
import itertools
import re
import shutil
import threading
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import dspy
import numpy as np
import pytest

import raisf
from raisf.evaluation.examples import gold_answers
from raisf.evaluation.identity import describe
from raisf.evaluation.runner import evaluate
from raisf.lm import pocket
from raisf.lm.connect import connect
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


class Part(dspy.Module):
    """What RA-ISF is in a module of a user's own: options, an index, a predictor."""

    def __init__(self, k: int, corpus_hash: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self.k = k
        self.retriever = SimpleNamespace(corpus_hash=corpus_hash, path=None, name="here")
        self.reads = dspy.Predict("question -> answer", **settings)


class Whole(dspy.Module):
    def __init__(self, k: int = 5, corpus_hash: str = "c", **settings: Any) -> None:
        super().__init__()
        self.parts = [Part(k, corpus_hash, settings)]

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


@pytest.mark.parametrize("change", [{"k": 3}, {"corpus_hash": "d"}, {"temperature": 0.9}])
def test_records_of_a_module_are_not_taken_for_those_of_one_that_holds_another(tmp_path: Path, change: Any) -> None:
    questions = [dspy.Example(id="1", question="one", answer="one").with_inputs("question")]
    out = tmp_path / "r.jsonl"
    for _ in range(2):
        assert evaluate(Whole(), questions, out, progress=False).em.n == 1
    with pytest.raises(InputError, match=r"another program.*parts\[0\]"):
        evaluate(Whole(**change), questions, out, progress=False)


class Choosy(dspy.Module):
    def __init__(self, words: Any = (), **settings: Any) -> None:
        super().__init__()
        self.words = words
        self.answer = dspy.Predict("question -> answer")
        self.answer.lm = dspy.LM("openai/fake", api_key="secret", **settings)

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


OTHERS = [
    {"words": ["b"]},
    {"words": {"a": 1}},
    {"reasoning_effort": "high"},
    {"stop": ["."]},
    {"extra_body": {"k": 1}},
]


@pytest.mark.parametrize("change", OTHERS)
def test_any_setting_makes_another_program(change: Any) -> None:
    one, other = describe(Choosy(["a"])), describe(Choosy(**{"words": ["a"], **change}))
    assert one != other and "secret" not in str(other)


def test_no_key_is_written_down_under_whatever_name_it_stands() -> None:
    settings = {"extra_body": {"token": "hush-1"}, "client_secret": "hush-2", "stop": ["."]}
    assert "hush" not in str(describe(Choosy(["a"], **settings)))


def test_where_and_how_patiently_an_lm_is_asked_makes_no_other_program() -> None:
    told = {"api_base": "http://x/v1", "timeout": 3, "num_retries": 9, "cache": False}
    assert describe(Choosy(["a"])) == describe(Choosy(["a"], **told))


def test_records_go_on_wherever_the_weights_of_the_lm_lie(tmp_path: Path) -> None:
    questions = [dspy.Example(id="1", question="one", answer="one").with_inputs("question")]
    out = tmp_path / "r.jsonl"
    for place in ("here", "there"):
        folder = shutil.copytree(pocket.path("pocket-tiny"), tmp_path / place)
        program = Whole()
        program.set_lm(connect(f"local/{folder}"))
        assert evaluate(program, questions, out, progress=False).em.n == 1
    program.set_lm(connect("local/pocket-t5"))
    with pytest.raises(InputError, match="another program"):
        evaluate(program, questions, out, progress=False)


def test_every_answer_that_an_example_names_is_gold() -> None:
    assert gold_answers(dspy.Example(answer="Ulm", answers=["Ulm on the Danube", "Ulm"])) == [
        "Ulm",
        "Ulm on the Danube",
    ]
    assert gold_answers(dspy.Example(answer=False)) == ["no"] and gold_answers(dspy.Example(answers=[1879])) == ["1879"]
    assert gold_answers(dspy.Example(answer="", answers=[])) == []
    assert gold_answers(dspy.Example(answers=np.array(["a", "b"]))) == gold_answers(dspy.Example(answers={"b", "a"}))
    assert gold_answers(dspy.Example(answers={"text": ["a"], "answer_start": [3]})) == []  # which is told, not scored 0


class Searching(dspy.Module):
    """A module whose answers hang on something that is no plain option."""

    def __init__(self, search: Any) -> None:
        super().__init__()
        self.search = search

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.search(question))


class Table:
    def __init__(self, answer: str) -> None:
        self.answer = answer

    def __call__(self, question: str) -> str:
        return self.answer


def _says(answer: str) -> Any:
    asked: list[str] = []

    def say(question: str) -> str:
        asked.append(question)
        return answer

    return say


MAKES: list[Any] = [
    _says,
    Table,
    lambda answer: functools.partial(lambda question, said: said, said=answer),
    lambda answer: {"first": Table(answer)}["first"].__call__,
]


@pytest.mark.parametrize("make", MAKES)
def test_programs_that_differ_by_a_function_or_an_object_share_no_records(make: Any) -> None:
    """In one comparison the second was never asked: it got the first one's answers."""
    assert describe(Searching(make("a"))) == describe(Searching(make("a"))) != describe(Searching(make("b")))
    questions = [dspy.Example(question=name, answer="a").with_inputs("question") for name in ("one", "two")]
    programs = {answer: Searching(make(answer)) for answer in ("a", "b")}
    report = raisf.compare(programs, questions, progress=False, judges=False)
    assert {name: told["em"]["value"] for name, told in report.results["programs"].items()} == {"a": 1.0, "b": 0.0}
    # What it notes while it answers is no part of what it is: else nobody could go on.
    assert describe(programs["a"]) == describe(Searching(make("a")))


class Asking(dspy.Module):
    """With a judge of its own, and whatever it is given."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.judge = dspy.Predict("question -> fits: bool")
        vars(self).update(given)


def _compiled(module: dspy.Module, demos: int) -> dspy.Module:
    for predictor in module.predictors():
        predictor.demos = [dspy.Example(question="q", fits=True)] * demos
    module._compiled = True
    return module


class Suffixed(dspy.Module):
    """Keeps a setting under a private name, and counts."""

    def __init__(self, suffix: str, api_key: str = "k") -> None:
        super().__init__()
        self._suffix, self._api_key, self._asked = suffix, api_key, 0


class Shouting(dspy.Predict):
    """Answers in its own way."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(fits=str(super().forward(**inputs).fits).upper())


class OwnLM(dspy.BaseLM):
    """An LM of the user's own, with a setting of hers."""

    def __init__(self, tone: str, url: str = "") -> None:
        super().__init__(model="own/lm")
        self.tone, self.url, self.calls, self.client = tone, url, 0, MagicMock()


class OwnEngine:
    """What answers a `dspy.LM` in a user's own way, with a setting of hers."""

    def __init__(self, voice: str) -> None:
        self.voice, self.calls = voice, 0

    def complete(self, request: Any) -> Any:
        raise AssertionError("no LM is asked")


def _ensemble(choose: int) -> dspy.Module:
    return dspy.Ensemble(reduce_fn=lambda outputs: outputs[choose]).compile([Asking(), Asking()])


def _asked(lm: dspy.BaseLM) -> Asking:
    module = Asking()
    module.set_lm(lm)
    return module


def _deciding(threshold: float) -> Asking:
    module = Asking()
    module.judge.fields = {"fits": {"threshold": threshold}}
    return module


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Asking(part=_compiled(Asking(), 0)), Asking(part=_compiled(Asking(), 1))),
        (_deciding(0.5), _deciding(0.9)),
        (Asking(k=np.int64(3)), Asking(k=np.int64(5))),
        (Asking(), Asking(judge=dspy.Predict("question -> fits: str"))),
        (Asking(), Asking(judge=Shouting("question -> fits: bool"))),
        (Asking(part=Suffixed("a")), Asking(part=Suffixed("b"))),
        (_ensemble(0), _ensemble(1)),
        (_asked(OwnLM("kind")), _asked(OwnLM("rude"))),
        (_asked(dspy.LM("own/x", engine=OwnEngine("low"))), _asked(dspy.LM("own/x", engine=OwnEngine("high")))),
    ],
    ids=[
        "what a frozen part has learnt",
        "where a field is decided",
        "a number out of an array",
        "a field's type",
        "a predictor's class",
        "a setting under a private name",
        "how an ensemble chooses",
        "a setting of one's own LM",
        "a setting of one's own engine",
    ],
)
def test_programs_that_answer_differently_are_described_differently(one: Any, other: Any) -> None:
    """An evaluation of the second took the records of the first."""
    assert describe(one) != describe(other)


def test_what_changes_no_answer_makes_no_other_program() -> None:
    """Counters, keys, addresses and clients: whoever counted her calls could not go on."""
    module, lm = Suffixed("a"), OwnLM("kind")
    before = describe(Asking(part=module)), describe(_asked(lm))
    module._asked, lm.calls = 3, 3
    assert (describe(Asking(part=module)), describe(_asked(lm))) == before
    others = Asking(part=Suffixed("a", api_key="other")), _asked(OwnLM("kind", url="http://elsewhere"))
    assert tuple(map(describe, others)) == before


def test_a_predictor_is_described_as_it_always_was() -> None:
    """Else nobody could go on with records in another process."""
    assert describe(Asking())["predictor judge"] == "4f7db2198c9a3551"


def test_records_of_a_bare_predictor_go_on(tmp_path: Path) -> None:
    """DSPy draws each Predict a name of its own: in the next process it was another program."""
    asked = [dspy.Example(question=f"q{n}", answer="a") for n in range(2)]
    for _ in "ab":
        program = dspy.Predict("question -> answer")
        program.lm = lm = ScriptedLM(lambda fields: {"answer": "a"})
        evaluate(program, asked, tmp_path / "r.jsonl", progress=False)
    assert lm.calls == []


def test_no_text_of_a_module_s_own_is_written_down(tmp_path: Path) -> None:
    """A key stood in the clear beside the records."""

    class Mine(raisf.RAISF):
        def __init__(self, key: str) -> None:
            super().__init__(know="consistency")
            self.key = key

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=question)

    questions = [dspy.Example(question="one", answer="one").with_inputs("question")]
    evaluate(Mine("hush"), questions, tmp_path / "r.jsonl", progress=False)
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    assert "hush" not in written and '"consistency"' in written, "an option of ours is told"
    assert describe(Mine("hush")) != describe(Mine("hash"))


class Colour(enum.Enum):
    RED, BLUE = 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    size: int


class Holder(dspy.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


VALUES: list[tuple[Any, Any]] = [
    (re.compile("a"), re.compile("b")),
    (Path("a"), Path("b")),
    (Colour.RED, Colour.BLUE),
    (Slotted(1), Slotted(2)),
    (b"a", b"b"),
    (np.array([1.0]), np.array([2.0])),
    (Decimal(1), Decimal(2)),
    (range(3), range(4)),
    ([dspy.Example(question="a")], [dspy.Example(question="b")]),
]


@pytest.mark.parametrize(("one", "other"), VALUES, ids=lambda value: type(value).__name__)
def test_values_without_a_dictionary_are_told_apart(one: Any, other: Any) -> None:
    assert describe(Holder(one)) == describe(Holder(copy.deepcopy(one))) != describe(Holder(other))


def test_what_cannot_be_pickled_is_told_by_its_class() -> None:
    assert describe(Holder(threading.Lock())) == describe(Holder(threading.Lock())) != describe(Holder(re.compile("a")))


def test_what_changes_while_a_program_runs_belongs_to_no_identity() -> None:
    held = [np.random.default_rng(), itertools.count(), re.compile("a" * 300)]
    before = [describe(Holder(one)) for one in held]
    held[0].random()
    next(held[1])
    assert [describe(Holder(one)) for one in held] == before
    assert before[2] != describe(Holder(re.compile("a" * 299 + "b"))), "a long pattern's own text is cut"
