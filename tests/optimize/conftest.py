"""A small closed world with a real BM25 index, and a scripted LM that knows half of it by heart and reads the rest."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.data.questions import load_questions
from raisf.data.world.files import write_world
from raisf.optimize.judges.judge_data import steps
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.engines.bm25 import BM25
from raisf.signatures.judges import PassageRelevance, SelfKnowledge
from tests.scripted import ScriptedLM


@dataclass(frozen=True)
class World:
    """A closed world's splits, its index, and where both lie."""

    folder: Path
    index: Path
    train: list[dspy.Example]
    dev: list[dspy.Example]
    test: list[dspy.Example]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling keeps what it has found so far below the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world") / "w"
    write_world(folder, entities=300, counts={"train": 60, "dev": 20, "test": 20})
    index = folder.parent / "index"
    BM25.build(read_documents(folder / "corpus.jsonl"), index)
    return World(folder, index, *(load_questions(folder / f"{split}.jsonl") for split in ("train", "dev", "test")))


@pytest.fixture(scope="module")
def llama(makers: Any, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with room for DSPy's chat format, which has words for what it reads: letters take far longer."""
    asked = [dspy.ChatAdapter().format_system_message(one) for one in (SelfKnowledge, PassageRelevance)]
    text = "\n".join([*asked * 9, (world.folder / "corpus.jsonl").read_text()])
    return makers.make_llama(tmp_path_factory.mktemp("llama"), text=text, size=1600, context=4096)


def knows(question: str) -> bool:
    """Which half of the questions the scripted LM knows by heart."""
    return zlib.crc32(question.encode()) % 2 == 0


@pytest.fixture(scope="session")
def oracle(world: World) -> Callable[..., ScriptedLM]:
    """Makes an LM that judges, reads and composes rightly, and from memory answers half of the questions rightly.

    What it is made with, such as a reasoning, it says each time as well.
    """
    answers: dict[str, str] = {}
    subs: dict[str, list[str]] = {}
    for example in [*world.train, *world.dev, *world.test]:
        subs[example.question] = example.sub_questions
        for step in steps(example):
            answers[step.question] = step.answers[0]

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        question = fields["question"]
        gold = answers.get(question, "nothing")
        if "passage" in fields:
            return {"verdict": "relevant" if gold in fields["passage"] else "irrelevant"}
        if "passages" in fields:
            return {"evidence": gold, "answer": gold, "relevant_ids": []}
        if "facts" in fields:
            return {"answer": gold}
        known = knows(question)
        return {
            "verdict": "know" if known else "unknown",
            "sub_questions": subs.get(question, []),
            "answer": gold if known else "a guess",
        }

    return lambda **also: ScriptedLM(lambda fields: answer(fields) | also)


@pytest.fixture
def program(world: World, oracle: Callable[..., ScriptedLM]) -> RAISF:
    """RA-ISF over the world's index with the scripted LM."""
    made = RAISF(BM25.load(world.index), k=5)
    made.set_lm(oracle())
    return made


class Learner(Direct):
    """Answers rightly as soon as it has demonstrations: what a real LM does in the good case."""

    good = True

    def forward(self, question: str) -> dspy.Prediction:
        shown = bool(self.answer_directly.demos)
        prediction = super().forward(question=question)
        prediction.answer = "right" if shown == self.good else "wrong"
        return prediction


def sets(n: int = 6) -> dict[str, list[dspy.Example]]:
    return {
        name: [dspy.Example(question=f"{name} {i}?", answer="right").with_inputs("question") for i in range(n)]
        for name in ("trainset", "valset")
    }


@pytest.fixture
def learner() -> Learner:
    made = Learner()
    made.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    return made
