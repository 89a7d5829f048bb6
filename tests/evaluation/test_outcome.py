"""If these failed, a module of the user's own would look free beside ours."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import dspy
import pytest

from raisf.evaluation.outcome import ask_one
from raisf.evaluation.runner import evaluate
from raisf.lm.connect import connect
from raisf.optimize.optimizers.base import counting
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.files import read_jsonl
from raisf.utils.usage import count_tokens, telling, tokens_of
from tests.scripted import ScriptedLM

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


class Failing(Twice):
    """Asks once, and fails on one question."""

    def forward(self, question: str) -> dspy.Prediction:
        said = self.ask(question=question)
        if "0" in question:
            raise ValueError("no")
        return said


def test_what_a_failed_question_asked_is_in_no_mean(tmp_path: Path) -> None:
    program = Failing()
    program.set_lm(ScriptedLM(lambda fields: {"answer": "1"}))
    report = evaluate(program, ASKED, tmp_path / "r.jsonl", progress=False)
    costs = {row["id"]: row["cost"] for row in read_jsonl(tmp_path / "r.jsonl")}
    assert costs["q0"].keys() == {"seconds"} and costs["q1"]["lm_calls"] == report.cost["lm_calls"] == 1


class Polished(Twice):
    """Asks a program of ours, and hands on what it predicts with an answer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.draft = Direct()

    def forward(self, question: str) -> dspy.Prediction:
        prediction = self.draft(question=question)
        prediction.answer = self.ask(question=prediction.answer).answer
        return prediction


class Side(Twice):
    """Asks several things side by side."""

    def forward(self, question: str) -> dspy.Prediction:
        asked = [(self.ask, dspy.Example(question=f"{question} {n}").with_inputs("question")) for n in range(3)]
        return dspy.Parallel(num_threads=3, disable_progress_bar=True)(asked)[0]


class Threads(Twice):
    """Asks in threads of its own, which DSPy's context does not reach."""

    def forward(self, question: str) -> dspy.Prediction:
        with ThreadPoolExecutor() as pool:
            return pool.submit(self.ask, question=question).result()


def cost(program: dspy.Module) -> dict[str, float]:
    program.set_lm(ScriptedLM(lambda fields: {"answer": "1"}))
    return evaluate(program, ASKED, progress=False).cost


def test_what_is_asked_beside_a_program_of_ours_counts() -> None:
    """The module told the trace of the one that it contains, and so its calls alone."""
    told = cost(Polished())
    assert told["lm_calls"] == 2 and told["retrievals"] == 0 and told["completion_tokens"] == 12


class Best(dspy.Module):
    """Asks a program of ours three times, and hands on the best prediction as it is."""

    def __init__(self, program: dspy.Module) -> None:
        super().__init__()
        self.best = dspy.BestOfN(program, N=3, reward_fn=lambda given, prediction: 0.0, threshold=1.0)

    def forward(self, question: str) -> dspy.Prediction:
        return self.best(question=question)


def test_a_program_of_ours_that_a_module_asks_several_times_counts_each_time() -> None:
    """Beside the calls and tokens of all three stood the searches of one."""

    def reply(fields: dict[str, str]) -> dict[str, str]:
        return {"verdict": "relevant" if "passage" in fields else "perhaps", "answer": "1", "evidence": "1"}

    searched: list[str] = []
    ours = RAISF(lambda query, k: searched.append(query) or [Passage("1", "One is 1.")], max_depth=0)
    ours.set_lm(ScriptedLM(reply))
    one = evaluate(ours, ASKED, progress=False)
    assert len(searched) == len(ASKED) and (one.cost["retrievals"], one.outputs) == (1, 9) and one.unreadable == 3
    told = evaluate(Best(ours), ASKED, progress=False)
    assert len(searched) - len(ASKED) == 3 * len(ASKED)
    assert all(told.cost[name] == 3 * one.cost[name] for name in ("lm_calls", "retrievals", "prompt_tokens"))
    assert (told.unreadable, told.outputs) == (3 * one.unreadable, 3 * one.outputs)


def test_a_lost_call_is_an_error_of_its_question_whoever_counts_around_it() -> None:
    def reply(fields: dict[str, Any]) -> dict[str, str]:
        if fields["question"] == ASKED[1].question and fields.get("passage") == "Two":
            raise dspy.LMServerError("down", status=500)
        return {"verdict": "relevant" if "passage" in fields else "unknown", "answer": "1", "evidence": "1"}

    ours = RAISF(lambda query, k: [Passage("1", "One"), Passage("2", "Two")], max_depth=0)
    ours.set_lm(ScriptedLM(reply))
    with counting():
        outcomes = [ask_one(ours, example) for example in ASKED]
    assert [outcome.error is not None for outcome in outcomes] == [False, True, False]


def test_calls_side_by_side_tell_their_tokens() -> None:
    told = cost(Side())
    assert (told["lm_calls"], told["unmetered_calls"], told["completion_tokens"]) == (3, 0, 18)


class Aside(Twice):
    """Asks its LM for likelihoods, three calls a question, which do not go through DSPy."""

    def forward(self, question: str) -> dspy.Prediction:
        count_tokens(self.ask.lm, 90, 6, 3)
        return dspy.Prediction(answer="1")


def test_calls_past_dspy_count_each_and_their_tokens_once() -> None:
    with counting() as spent:
        told = cost(Aside())
    assert (told["lm_calls"], told["unmetered_calls"]) == (3, 0)
    assert (told["prompt_tokens"], told["completion_tokens"]) == (90, 6)
    assert spent.lm_calls == 3 * len(ASKED)


def test_a_call_that_tells_one_kind_of_tokens_or_their_sum_is_not_metered() -> None:
    told = [{"prompt_tokens": 5, "completion_tokens": None}, {"total_tokens": 9}, {"prompt_tokens": 5}]
    told.append({"prompt_tokens": 5, "completion_tokens": 0})
    assert telling(told) == 1 and tokens_of(told) == {"prompt_tokens": 15, "completion_tokens": 0}


def test_a_prediction_tells_its_usage_where_dspy_is_to_track_it_and_leaves_the_callers_trace_alone() -> None:
    program, trace = Twice(), list[Any]()
    program.set_lm(ScriptedLM(lambda fields: {"answer": "1"}))
    with dspy.context(track_usage=True, trace=trace):
        prediction = ask_one(program, ASKED[0]).prediction
    assert prediction is not None and not trace
    usage: Any = prediction.get_lm_usage()
    assert usage["scripted/lm"]["completion_tokens"] == 2 * len("[[ ## answer ## ]] 1".split())


def test_calls_that_cannot_be_seen_are_not_none() -> None:
    assert cost(Threads()).keys() == {"seconds"}


def test_who_counts_around_an_evaluation_counts_all_of_it() -> None:
    program = Twice()
    program.set_lm(ScriptedLM(lambda fields: {"answer": "1"}))
    with dspy.track_usage() as usage:
        evaluate(program, ASKED, progress=False)
    assert [len(entries) for entries in usage.usage_data.values()] == [6]


@pytest.mark.usefixtures("own_cache")
def test_verdicts_that_wait_for_whether_there_are_probabilities_cost_what_is_sent(faulty: Any) -> None:
    """Each question but the first was said to have made a call more, which told no tokens."""
    searched: list[str] = []
    together = Event()

    def search(query: str, k: int) -> list[Passage]:
        searched.append(query)
        if len(searched) == len(ASKED):
            together.set()
        return [Passage("1", "Bergen is a port.")]

    def answer(fields: dict[str, str]) -> dict[str, Any]:
        together.wait(10)  # no question knows yet what the endpoint can do
        return faulty.right(fields)

    with faulty.serve(answer=answer) as endpoint:
        program = RAISF(search, max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        with counting() as spent:  # as compiling counts
            told = evaluate(program, ASKED, progress=False).cost
        assert (told["lm_calls"], told["unmetered_calls"]) == (len(endpoint.seen) / len(ASKED), 0)
        assert spent.lm_calls == len(endpoint.seen)
