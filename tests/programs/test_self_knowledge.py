"""If these failed, what counts as known would follow from something else than was chosen, or cost more than it says."""

import math
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.evaluation.identity import describe
from raisf.lm import pocket
from raisf.lm.likelihood import likelihood
from raisf.programs.calls import Run
from raisf.programs.ra_isf import RAISF
from raisf.programs.registry import build, defaults, options
from raisf.programs.trace import Trace
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

QUESTIONS = ["Who founded Velm?", "Who is the mayor of Belrin?", "In which country is Oss?"]


def from_memory(**given: Any) -> RAISF:
    """RA-ISF that answers from memory or not at all."""
    return RAISF(use_relevance=False, use_decomposition=False, **given)


def traced(program: RAISF, question: str, lm: Any) -> Trace:
    program.set_lm(lm)
    return program(question=question).trace


def samples(*answers: str, verdict: str = "know") -> ScriptedLM:
    """An LM that answers from memory with each of these in turn."""
    left = list(answers)
    return ScriptedLM(lambda fields: {"verdict": verdict} if "answer" in fields else {"answer": left.pop(0)})


@pytest.mark.parametrize(
    ("said", "probability"),
    [(["Rome", "rome.", "Bern", "the Rome", "Oslo"], 0.6), (["Rome"] * 5, 1.0), (["Rome", "a", "b", "c", "d"], 0.2)],
)
def test_consistency_is_the_share_of_samples_that_agree_and_each_is_a_call(said: list[str], probability: float) -> None:
    trace = traced(from_memory(know="consistency"), "capital of Italy?", lm := samples(*said))
    assert trace.root.know and trace.root.know.probability == pytest.approx(probability)
    assert (trace.root.answer, trace.root.route) == (
        ("Rome", "direct") if probability >= 0.5 else ("unknown", "no_passages")
    )
    assert len(lm.calls) == trace.cost.lm_calls == 5


def test_a_draft_that_says_unknown_needs_no_samples_and_a_sample_that_cannot_be_read_does_not_count() -> None:
    trace = traced(from_memory(know="consistency", know_threshold=0.0), "capital of Italy?", samples("Unknown."))
    assert trace.root.know and (trace.root.know.verdict, trace.root.know.probability) == ("unknown", 0.0)
    assert trace.cost.lm_calls == 1
    replies = iter(["Rome", "Rome", "mumble"])

    def answer(fields: dict[str, Any]) -> Any:
        said = next(replies)
        return said if said == "mumble" else {"answer": said}

    trace = traced(from_memory(know="consistency", samples=3), "capital of Italy?", ScriptedLM(answer))
    assert trace.root.know and trace.root.know.probability == 1.0 and trace.unreadable == 1


def test_another_rollout_draws_other_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks an LM anew for another answer would get the same ones out of DSPy's cache."""
    drawn: list[set[int]] = []
    draft = Run.draft

    def noting(run: Run, predictor: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        if "config" in inputs:
            drawn[-1].add(inputs["config"]["rollout_id"])
        return draft(run, predictor, **inputs)

    monkeypatch.setattr(Run, "draft", noting)
    for rollout in (None, 7, 8):
        drawn.append(set())
        lm = samples(*["Rome"] * 5)
        lm.kwargs["rollout_id"] = rollout
        traced(from_memory(know="consistency"), "capital of Italy?", lm)
    assert len(set.union(*drawn)) == 3 * 4


def test_samples_stay_within_the_budget() -> None:
    trace = traced(from_memory(know="consistency", max_calls=3), "capital of Italy?", samples(*["Rome"] * 5))
    assert (trace.root.route, trace.cost.lm_calls) == ("budget", 3)


def test_truth_is_asked_of_the_draft_which_then_is_the_answer() -> None:
    trace = traced(from_memory(know="truth"), "capital of Italy?", lm := samples("Rome"))
    assert (trace.root.answer, trace.root.route) == ("Rome", "direct")
    assert lm.calls == [{"question": "capital of Italy?"}, {"question": "capital of Italy?", "answer": "Rome"}]
    trace = traced(from_memory(know="truth"), "capital of Italy?", samples("Rome", verdict="unknown"))
    assert trace.root.answer == "unknown" and trace.cost.lm_calls == 2


@pytest.mark.parametrize("known", [True, False])
def test_a_draft_that_was_not_the_answer_is_no_step_to_learn_from(known: bool) -> None:
    program = from_memory(know="truth")
    program.set_lm(samples("Rome", verdict="know" if known else "unknown"))
    with dspy.context(trace=[]):
        program(question="capital of Italy?")
        steps = [predictor for predictor, _, _ in dspy.settings.trace or []]
    assert (program.answer_directly in steps) is known and program.know in steps


def test_confidence_is_the_probability_of_the_draft_and_the_draft_costs_one_call() -> None:
    lm: Any = raisf.connect("pocket")
    for question in QUESTIONS:
        trace = traced(from_memory(know="confidence", know_threshold=0.0), question, lm)
        assert trace.root.know and trace.root.route == "direct" and trace.cost.lm_calls == 1
        prompt = lm.adapter.prompt(raisf.RAISF().answer_directly.signature, {"question": question})
        total, _ = lm.logprob(prompt, f" {trace.root.answer}<|end|>")
        assert trace.root.know.probability == pytest.approx(math.exp(total), abs=1e-3)


def test_confidence_decides_by_its_threshold() -> None:
    lm = raisf.connect("pocket")
    found = traced(from_memory(know="confidence"), QUESTIONS[0], lm).root.know
    assert found and found.probability
    above, below = (from_memory(know="confidence", know_threshold=found.probability + by) for by in (1e-4, -1e-4))
    assert traced(above, QUESTIONS[0], lm).root.route == "no_passages"
    assert traced(below, QUESTIONS[0], lm).root.route == "direct"


def test_a_t5_s_confidence_is_its_own_too() -> None:
    found = traced(from_memory(know="confidence"), QUESTIONS[0], raisf.connect("local/pocket-t5")).root.know
    assert found and found.probability is not None and 0 <= found.probability <= 1


def test_an_lm_without_log_probabilities_is_refused_with_what_to_take_instead() -> None:
    with pytest.raises(InputError, match="--know consistency"):
        traced(from_memory(know="confidence"), QUESTIONS[0], samples("Rome"))


@pytest.mark.parametrize("completions", [False, True])
def test_a_served_model_has_the_confidence_that_it_has_in_the_process(llamas: Any, completions: bool) -> None:
    local = raisf.connect("pocket")
    with llamas.serve({"pocket": pocket.path()}) as served:
        options: dict[str, Any] = {"api_base": served.url, "adapter": "pocket", "completions": completions}
        remote = raisf.connect("openai/pocket", **options)
        for question in QUESTIONS:
            here, there = (traced(from_memory(know="confidence"), question, lm).root for lm in (local, remote))
            assert here.know and there.know and here.answer == there.answer
            assert there.know.probability == pytest.approx(here.know.probability, abs=1e-3)
    with llamas.serve({"pocket": pocket.path()}, logprobs=False) as served:  # it ignores the wish
        remote = raisf.connect("openai/pocket", **{**options, "api_base": served.url})
        with pytest.raises(InputError, match="gives no log-probabilities"):
            traced(from_memory(know="confidence"), "Who founded Oss?", remote)


def test_the_format_around_an_answer_does_not_count() -> None:
    def told(*pairs: tuple[str, float]) -> dspy.Prediction:
        content = [{"token": token, "logprob": math.log(probability)} for token, probability in pairs]
        return dspy.Prediction(logprobs={"content": content})

    chat = told(
        ("[[ ## answer", 1), (" ## ]]\n", 1), ("New", 0.5), (" York", 0.5), ("\n\n", 0.5), ("[[ ## completed", 1)
    )
    assert likelihood(chat, "New York") == pytest.approx(0.125)
    assert likelihood(told(('{"answer": "', 0.9), ("Rome", 0.25), ('"}', 1)), "Rome") == pytest.approx(0.25)
    assert likelihood(told(("Ro", 0.25), ("me", 0.25)), "something else") == pytest.approx(0.0625)
    assert likelihood(told(), "Rome") is None and likelihood(dspy.Prediction(answer="Rome"), "Rome") is None
    assert likelihood(told(("Rome", 1.0001)), "Rome") == 1.0  # a server's rounding
    for impossible in (2.5, float("nan"), None, True, "-0.1"):
        given = dspy.Prediction(logprobs={"content": [{"token": "Rome", "logprob": impossible}]})
        assert likelihood(given, "Rome") is None


def test_programs_without_the_new_options_are_those_that_they_were() -> None:
    plain = RAISF()
    assert not {"self_knowledge", "samples"} & describe(plain).keys()
    assert not {"know", "samples"} & options(plain).keys()
    assert defaults(RAISF)["know"] == "verbal"


def test_the_kind_is_kept_in_artifacts_and_in_dspy_s_files(tmp_path: Path) -> None:
    made = from_memory(know="truth", samples=7)
    made.set_lm(raisf.connect("pocket"))
    raisf.save(made, tmp_path / "a")
    opened: Any = raisf.load(tmp_path / "a")
    assert (opened.self_knowledge, opened.samples, opened.option("know")) == ("truth", 7, "truth")
    made.compile_report = None  # type: ignore[attr-defined]  # whoever opens an artifact sees how it was compiled
    assert describe(opened) == describe(made) != describe(from_memory())
    assert opened(question=QUESTIONS[0]).trace.root.know == made(question=QUESTIONS[0]).trace.root.know
    plain: Any = RAISF()
    plain.load_state(from_memory(know="truth").dump_state())
    assert plain.self_knowledge == "truth" and "answer" in plain.know.signature.input_fields
    assert build("ra-isf", None, **options(made)).option("know") == "truth"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("option", "value"), [("know", "sure"), ("samples", 1), ("samples", 51)])
def test_an_option_that_cannot_be_used_is_named(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        RAISF(**{option: value})
