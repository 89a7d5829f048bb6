"""A scripted LM that solves questions by a plan, and a retriever that finds the same passages for everything."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.programs.concurrency import set_concurrency
from raisf.programs.trace import Trace
from raisf.retrieval.passage import Passage
from tests.scripted import ScriptedLM


@dataclass
class Plan:
    """How the scripted LM treats a question, and all that begin with the same word."""

    know: bool = False
    relevant: int = 0
    subs: Sequence[str] = ()
    answer: str | None = None


def read_plan(plans: dict[str, Plan], fields: dict[str, Any]) -> dict[str, Any]:
    """The answer to any call of any program; facts and passages are echoed, so that a test sees what was passed on."""
    question = fields["question"]
    plan = plans.get(re.split(r"\W", question)[0].casefold(), Plan())
    answer = plan.answer or f"A({question})"
    if "passage" in fields:
        return {"verdict": "relevant" if int(fields["passage"].split()[-1]) <= plan.relevant else "irrelevant"}
    if "facts" in fields:
        facts = str(fields["facts"])
        known = facts.count("= ") > facts.count("= unknown")
        return {"answer": answer if known else "unknown"}
    if "passages" in fields:
        return {"relevant_ids": list(range(1, plan.relevant + 1)), "evidence": "passage 1", "answer": answer}
    return {"verdict": "know" if plan.know else "unknown", "sub_questions": list(plan.subs), "answer": answer}


@dataclass
class Shelf:
    """A retriever over passages "p1", "p2", ... that counts its searches."""

    size: int = 5
    queries: list[str] = field(default_factory=list)
    path: Path | None = None
    corpus_hash: str = "shelf"

    def __call__(self, query: str, k: int) -> list[Passage]:
        self.queries.append(query)
        return [
            Passage(pid=f"p{n}", title=f"Title {n}", text=f"passage {n}", score=1 / n)
            for n in range(1, min(k, self.size) + 1)
        ]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self(query, k) for query in queries]

    def __deepcopy__(self, memo: dict) -> "Shelf":
        raise AssertionError("an index must not be copied")


class Library(Shelf):
    """A retriever that finds for each query the passages that a test says, and for any other nothing."""

    def __init__(self, found: dict[str, str]):
        super().__init__()
        self.found = found

    def __call__(self, query: str, k: int) -> list[Passage]:
        self.queries.append(query)
        return [Passage(pid=pid, title=pid.upper(), text=f"text {pid}") for pid in self.found.get(query, "").split()][
            :k
        ]


@pytest.fixture
def library() -> Callable[[dict[str, str]], Library]:
    """Makes one: `library({"who?": "a b", "where?": "b c"})`."""
    return Library


@pytest.fixture
def plan() -> type[Plan]:
    return Plan


@pytest.fixture
def read() -> Callable[[dict[str, Plan], dict[str, Any]], dict[str, Any]]:
    return read_plan


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def scripted() -> Callable[..., ScriptedLM]:
    """Makes the LM: `scripted(city=Plan(know=True), ...)`."""
    return lambda sleep=0.0, **plans: ScriptedLM(lambda fields: read_plan(plans, fields), sleep=sleep)


@pytest.fixture
def ask() -> Callable[..., Trace]:
    """Runs a program with an LM and gives the trace, after checking that it survives JSON."""

    def run(program: dspy.Module, lm: dspy.LM, question: str = "root") -> Trace:
        with dspy.context(lm=lm):
            prediction = program(question=question)
        assert prediction.answer == prediction.trace.root.answer
        assert Trace.model_validate_json(prediction.trace.model_dump_json()) == prediction.trace
        return prediction.trace

    return run


@pytest.fixture
def one_at_a_time():
    before = set_concurrency(1)
    yield
    set_concurrency(before)
