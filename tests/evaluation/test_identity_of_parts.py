"""If these failed, a program would take the records of one that has another part: its answers, in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.predict.parameter import Parameter
from dspy.utils.callback import BaseCallback

import raisf
from raisf.evaluation.identity import describe
from raisf.evaluation.runner import evaluate
from raisf.utils.errors import InputError

QUESTIONS = [dspy.Example(question=name, answer="p0 p1 p2").with_inputs("question") for name in ("one", "two")]


class Passages:
    """What DSPy's Retrieve asks."""

    def __call__(self, query: str, k: int = 3, **options: Any) -> list[dspy.Prediction]:
        return [dspy.Prediction(long_text=f"p{number}") for number in range(k)]


class Reading(dspy.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.retrieve = dspy.Retrieve(k=k)

    def forward(self, question: str) -> dspy.Prediction:
        found: Any = self.retrieve(question)
        return dspy.Prediction(answer=" ".join(found.passages))


def test_how_many_passages_a_retrieve_finds_makes_another_program(tmp_path: Path) -> None:
    with dspy.context(rm=Passages()):
        report = raisf.compare({"3": Reading(3), "5": Reading(5)}, QUESTIONS, progress=False, judges=False)
        assert {name: told["em"]["value"] for name, told in report.results["programs"].items()} == {"3": 1.0, "5": 0.0}
        for _ in "ab":
            evaluate(Reading(3), QUESTIONS, tmp_path / "r.jsonl", progress=False)
        with pytest.raises(InputError, match=r"another program.*retrieve\.k: 3 there, 5 here"):
            evaluate(Reading(5), QUESTIONS, tmp_path / "r.jsonl", progress=False)


class Holding(dspy.Module):
    """Whatever it is given, and a predictor."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.answer = dspy.Predict("question -> answer")
        vars(self).update(given)


class Saying(dspy.Predict):
    def __init__(self, signature: Any, say: str, tone: str = "kind") -> None:
        super().__init__(signature)
        self.say, self._tone = say, tone


class Within(dspy.Predict):
    """Asks another predictor of its own."""

    def __init__(self, asked: str) -> None:
        super().__init__("question -> answer")
        self.drafts = dspy.ChainOfThought(asked)


class Weight(Parameter):
    """A parameter that is no module, and may hold one."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight


class Box:
    def __init__(self, held: Any) -> None:
        self.held = held


class Part(dspy.Module):
    def __init__(self, option: str) -> None:
        super().__init__()
        self.option = option


class Remembering(dspy.Module):
    def __init__(self, learnt_from: list[str]) -> None:
        super().__init__()
        self.learnt_from = learnt_from


def _demonstrated(demo: str) -> dspy.Module:
    module = Holding()
    module.answer.demos = [dspy.Example(question="q", answer=demo)]
    return module


PAIRS: dict[str, Any] = {
    "retrieves in a list": lambda one: Holding(held=[dspy.Retrieve(k=3 if one else 5)]),
    "a parameter's own": lambda one: Holding(held=Weight(1 if one else 2)),
    "a module in a parameter": lambda one: Holding(held=Weight(Part("a" if one else "b"))),
    "an option of a predictor": lambda one: Holding(held=Saying("question -> answer", "a" if one else "b")),
    "a private option of a predictor": lambda one: Holding(
        held=Saying("question -> answer", "a", "kind" if one else "rude")
    ),
    "a predictor in a predictor": lambda one: Holding(held=Within(f"question -> {'draft' if one else 'answer'}")),
    "predictors in a list of lists": lambda one: Holding(held=[[dspy.Predict(f"a -> {'b' if one else 'c'}")]]),
    "a module in an object": lambda one: Holding(held=Box(Part("a" if one else "b"))),
    "demonstrations in an object": lambda one: Holding(held=Box(_demonstrated("a" if one else "b"))),
    "a history of DSPy's": lambda one: Holding(history=dspy.History(messages=[{"question": "a" if one else "b"}])),
    "an option called as what optimizers hang on": lambda one: Remembering(["a" if one else "b"]),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_programs_with_different_parts_are_described_differently(make: Any) -> None:
    assert describe(make(True)) == describe(make(True)) != describe(make(False))


def test_what_contains_itself_is_described() -> None:
    """Modules in objects that hold one another."""
    one, other = Holding(), Holding()
    vars(one)["held"], vars(other)["held"] = Box(other), Box([one, Weight(other)])
    assert describe(one) == describe(one)


def test_what_dspy_notes_while_a_program_runs_makes_no_other_program() -> None:
    module = Holding()
    before = describe(module)
    module.history.append({"prompt": None, "messages": [], "uuid": "1", "timestamp": "now"})
    module.callbacks.append(BaseCallback())
    vars(module)["candidate_programs"] = [{"score": 1.0, "program": 1}]
    assert describe(module) == before


def test_how_an_lm_that_a_module_holds_is_asked_makes_another_program() -> None:
    """It was told by its model alone: a colder one took the records of a warmer one."""

    def told(way: Callable[[Any], dict[str, Any]], key: str = "k", **settings: Any) -> Any:
        return describe(Holding(**way(dspy.LM("openai/fake", api_key=key, **settings))))

    ways: list[Callable[[Any], dict[str, Any]]]
    ways = [lambda lm: {"writer": lm}, lambda lm: {"lms": [lm]}, lambda lm: {"part": Holding(writer=Box(lm))}]
    for way in ways:
        assert told(way, temperature=0.1) == told(way, key="other", temperature=0.1)
        assert len({str(told(way)), str(told(way, temperature=0.1)), str(told(way, max_tokens=7))}) == 3


def test_each_rollout_of_an_lm_that_draws_its_answers_is_another_program() -> None:
    """The second sample of a program took the first one's records."""

    def told(temperature: float, **settings: Any) -> str:
        program = dspy.Predict("question -> answer")
        program.lm = dspy.LM("openai/fake", temperature=temperature).copy(**settings)
        return str((describe(program), describe(Holding(writer=program.lm))))

    assert len({told(1.0), told(1.0, rollout_id=1), told(1.0, rollout_id=2)}) == 3
    assert told(0.0) == told(0.0, rollout_id=2)


def test_how_the_lm_is_asked_that_reads_what_another_wrote_makes_another_program() -> None:
    def told(**settings: Any) -> Any:
        reads = dspy.LM("openai/small", **settings)
        reads.adapter = dspy.TwoStepAdapter(reads)  # which holds the LM that it is told with
        with dspy.context(lm=dspy.LM("openai/fake"), adapter=dspy.TwoStepAdapter(reads)):
            return describe(Holding())

    assert told(temperature=0.1) == told(temperature=0.1) != told(temperature=0.9)


class Shots(dspy.ChatAdapter):
    def __init__(self, shots: int = 1, words: Any = (), key: str = "k") -> None:
        super().__init__()
        self.shots, self._words, self.words, self.key = shots, len(words), words, key


def test_any_option_of_an_adapter_of_one_s_own_makes_another_program() -> None:
    """Only texts and what is true or false were told."""

    def told(**options: Any) -> str:
        with dspy.context(adapter=Shots(**options), lm=dspy.LM("openai/fake", api_key="secret")):
            return str(describe(Holding())["LM of answer"])

    assert told() == told()
    assert len({told(), told(shots=8), told(words=["a"]), told(words=["b"]), told(key="hush")}) == 5
    assert "hush" not in told(key="hush")


class Mending(dspy.ChatAdapter):
    """Asks an LM itself where it cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self.mend = dspy.Predict("broken -> answer")


def test_an_adapter_that_holds_a_module_is_told_once() -> None:
    """The module is asked by that adapter, which was told again without end."""
    with dspy.context(adapter=Mending()):
        assert describe(Part("a")) == describe(Part("a"))


def test_modules_that_reach_each_other_are_each_told_once() -> None:
    """Nine agents that know a registry of all took minutes."""
    registry = Box({})
    agents = [Holding(registry=registry, name=f"agent {number}") for number in range(12)]
    registry.held.update({agent.name: agent for agent in agents})
    assert describe(Holding(registry=registry)) == describe(Holding(registry=registry))


def test_what_a_retriever_of_hers_has_found_makes_no_other_program() -> None:
    class Caching(dspy.Retrieve):
        def __init__(self, k: int = 3) -> None:
            super().__init__(k=k)
            self.cache: dict[str, str] = {}

    module = Holding(search=Caching())
    before = describe(module)
    module.search.cache["q"] = "found"
    module.history.append("a run")
    assert describe(module) == before != describe(Holding(search=Caching(5)))
