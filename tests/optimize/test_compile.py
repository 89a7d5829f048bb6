"""If these failed, compiling could choose a worse program, change the user's, or learn from what it is scored on."""

from collections import Counter
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.evaluation.identity import describe
from raisf.optimize.artifact import load, save
from raisf.optimize.compile import compile
from raisf.optimize.optimizers.few_shot import REFLECTION_TOKENS, reflection_lm
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.programs.baselines.skr import SKR
from raisf.programs.ra_isf import RAISF
from raisf.reports.compiled import candidates_view
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError, LMError
from raisf.utils.files import check_replaceable
from tests.optimize.conftest import Learner, sets
from tests.scripted import ScriptedLM


def run(program: dspy.Module, world, **options: Any) -> Any:
    sets = {"trainset": world.train[:30], "valset": world.dev[:6]}
    return compile(program, **{**sets, **options}, progress=False)


def test_what_does_best_on_the_validation_set_is_chosen(learner: Learner) -> None:
    compiled = compile(learner, **sets(), progress=False)
    assert compiled.compile_report["chosen"] == "labeled"
    assert len(compiled.answer_directly.demos) == 4
    assert [c["score"]["value"] for c in compiled.compile_report["candidates"]] == [0.0, 1.0]
    assert compiled.compile_report["candidates"][0]["score"]["n"] == 6


def test_demonstrations_that_harm_are_not_taken(learner: Learner) -> None:
    learner.good = False
    compiled = compile(learner, **sets(), strategy="random", candidates=3, progress=False)
    assert compiled.compile_report["chosen"] == "zero-shot"
    assert compiled.answer_directly.demos == []
    assert len(compiled.compile_report["candidates"]) == 4


def test_a_dev_question_that_fails_with_each_candidate_counts_once_and_runs_that_demonstrate_apart(
    learner: Learner,
) -> None:
    """All were added up as questions that count as wrong."""

    def flaky(fields: dict[str, Any]) -> dict[str, Any]:
        if fields["question"] in ("valset 3?", "trainset 1?", "trainset 4?"):
            raise ConnectionError("down")
        return {"answer": "x"}

    learner.set_lm(ScriptedLM(flaky))
    report = compile(learner, **sets(), strategy="random", candidates=3, progress=False).compile_report
    assert len(report["candidates"]) > 1 and report["failed"] == 1
    drawn = compile(learner, **sets(), strategy="bootstrap", progress=False).compile_report
    assert (drawn["failed"], drawn["failed_runs"]) == (1, 2)
    shown: Any = candidates_view(drawn)
    told = "\n".join(map(str, shown.renderables))
    assert "1 of 6 dev questions failed" in told and "2 runs of training questions failed" in told


def test_demonstrations_come_from_the_training_set_alone(learner: Learner) -> None:
    compiled = compile(learner, **sets(), progress=False)
    assert all(demo.question.startswith("trainset") for demo in compiled.answer_directly.demos)


@pytest.mark.parametrize("strategy", ["labeled", "bootstrap", "random"])
def test_every_strategy_balances_the_judges_keeps_the_lms_and_leaves_the_program_alone(
    program: RAISF, world, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever has demonstrations wins, so that the test sees them.
    metric = _prefers_demonstrations(monkeypatch)
    before, lm = describe(program), program.know.lm
    compiled = run(
        program, world, strategy=strategy, metric=metric, **({"candidates": 2} if strategy == "random" else {})
    )
    assert describe(program) == before
    assert compiled is not program and compiled.retriever is program.retriever
    assert all(predictor.lm is lm for _, predictor in compiled.named_predictors())
    assert compiled.compile_report["chosen"] != "zero-shot"
    for judge in (compiled.know, compiled.relevant):
        counts = Counter(demo["verdict"] for demo in judge.demos)
        assert len(counts) == 2 and max(counts.values()) - min(counts.values()) <= 1
    assert all(len(demo["sub_questions"]) > 1 for demo in compiled.decompose.demos)
    for _, predictor in compiled.named_predictors():
        fields = {*predictor.signature.input_fields, *predictor.signature.output_fields}
        assert all(set(dict(demo)) == fields for demo in predictor.demos)
    assert compiled(question=world.test[0].question).answer
    assert compiled.compile_report["lm_calls"] > 0


def _prefers_demonstrations(monkeypatch: pytest.MonkeyPatch):
    """The more demonstrations, the higher the score."""
    from raisf.optimize.optimizers.selection import Selection, answer_exact_match

    def values(self, program, *arguments):
        examples = arguments[0]
        Selection_values(self, program, *arguments)
        return [sum(len(p.demos) for _, p in program.named_predictors()) / 100] * len(examples)

    Selection_values = Selection.values
    monkeypatch.setattr(Selection, "values", values)
    return answer_exact_match


@pytest.mark.slow
def test_bootstrapping_shows_the_answerers_their_own_right_runs(
    program: RAISF, world, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = run(program, world, strategy="bootstrap", metric=_prefers_demonstrations(monkeypatch))
    shown = [*compiled.answer_directly.demos, *compiled.answer_from.demos, *compiled.compose.demos]
    assert shown
    assert all(demo["answer"] != "a guess" for demo in compiled.answer_directly.demos)


def test_equal_seeds_give_equal_programs(program: RAISF, world, monkeypatch: pytest.MonkeyPatch) -> None:
    metric = _prefers_demonstrations(monkeypatch)
    some = {"trainset": world.train[:20], "valset": world.dev[:4], "strategy": "random", "candidates": 2}
    first, second, other = (run(program, world, **some, seed=s, metric=metric) for s in (1, 1, 2))
    assert describe(first) == describe(second) != describe(other)


def test_a_judge_that_is_switched_off_needs_no_examples(world, oracle) -> None:
    program = RAISF(BM25.load(world.index), use_know=False)
    program.set_lm(oracle())
    assert "know" not in run(program, world).compile_report["rows"]


def test_listwise_relevance_is_compiled_too(world, oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    program = RAISF(BM25.load(world.index), relevance="listwise")
    program.set_lm(oracle())
    compiled = run(program, world, metric=_prefers_demonstrations(monkeypatch))
    assert {bool(demo["relevant_ids"]) for demo in compiled.relevant.demos} == {True, False}


def test_a_program_without_judges_says_which_strategy_it_can_have(world, oracle) -> None:
    program = RAG(BM25.load(world.index))
    program.set_lm(oracle())
    with pytest.raises(InputError, match="choose the strategy 'bootstrap' "):
        run(program, world)
    assert run(program, world, strategy="bootstrap").compile_report["chosen"]
    found = run(program, world, strategy="random", candidates=2).compile_report["candidates"]
    assert [one["name"].split()[0] for one in found] == ["zero-shot", "bootstrap", "bootstrap"]


def test_an_lm_that_knows_nothing_is_told_and_bootstrap_does_without(world) -> None:
    program = RAISF(BM25.load(world.index))
    program.set_lm(
        ScriptedLM(lambda fields: {"verdict": "unknown", "answer": "x", "evidence": "x", "sub_questions": []})
    )
    with pytest.raises(InputError, match=r"know judge.*0 'know'.*--no-know.*bootstrap"):
        run(program, world)
    report = run(program, world, strategy="bootstrap").compile_report
    assert "0 'know'" in report["missing"]["know"]


def test_compiling_twice_starts_from_what_was_given(learner: Learner) -> None:
    once = compile(learner, **sets(), progress=False)
    twice = compile(once, **sets(), strategy="bootstrap", progress=False)
    assert twice.compile_report["candidates"][0]["name"] == "as given"
    assert twice.compile_report["candidates"][0]["score"]["value"] == 1.0


def test_a_compiled_program_nested_in_another_keeps_its_state(learner: Learner) -> None:
    class Outer(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = compile(learner, **sets(), strategy="bootstrap", progress=False)

    assert [name for name, _ in Outer().named_predictors()] == ["inner.answer_directly"]


def test_skr_knn_is_fitted_on_the_training_set_before_it_is_compiled(world, oracle, tmp_path) -> None:
    program = SKR(BM25.load(world.index), k=2, neighbours=3, labelled_by="answer")
    program.set_lm(oracle())
    some = {"trainset": world.train[:16], "valset": world.dev[:4]}
    compiled = run(program, world, **some)
    assert program.cases is None, "the program given stays as it is"
    asked = {example.question for example in world.train}
    assert compiled.cases and {case["question"] for case in compiled.cases} <= asked
    assert compiled(question=world.test[0].question).trace.root.know is not None
    save(compiled, tmp_path / "skr")
    assert load(tmp_path / "skr", lm=program.answer_from.lm, retriever=program.retriever).cases == compiled.cases
    made = len(program.answer_from.lm.calls)
    again = run(compiled, world, **some)
    assert again.cases == compiled.cases, "what was fitted stays"
    assert len(program.answer_from.lm.calls) > made


def test_a_program_that_is_asked_no_questions_is_compiled_too() -> None:
    class Doubling(dspy.Module):
        """Right as soon as it has been shown how."""

        def __init__(self) -> None:
            super().__init__()
            self.double = dspy.Predict("number: int -> twice: int")

        def forward(self, number: int) -> dspy.Prediction:
            self.double(number=number)
            return dspy.Prediction(twice=2 * number if self.double.demos else 0)

    program = Doubling()
    program.set_lm(ScriptedLM(lambda fields: {"twice": 2 * int(fields["number"])}))
    given = [dspy.Example(number=n, twice=2 * n).with_inputs("number") for n in range(12)]
    parts = {"trainset": given[:8], "valset": given[8:]}

    def right(example: Any, prediction: Any, steps: Any = None) -> float:
        # A run counts as right by its steps: the answer itself is wrong until there is a demonstration.
        return float(prediction.twice == example.twice or bool(steps))

    compiled = compile(program, **parts, strategy="bootstrap", metric=right, progress=False)
    assert compiled.compile_report["chosen"] == "bootstrap"
    assert {demo["number"] for demo in compiled.double.demos} <= set(range(8))


WRONG = {
    "how": ({"how": "wights"}, "unknown how 'wights'.*prompts, weights"),
    "strategy": ({"strategy": "mpro"}, "unknown strategy 'mpro'.*labeled, bootstrap, random, mipro, gepa"),
    "no trainset": ({"trainset": []}, "training set is empty"),
    "no valset": ({"valset": [], "strategy": "random"}, "validation set is missing"),
    "valset None": ({"valset": None, "strategy": "random"}, "validation set is missing"),
    "too few demos": ({"demos": 1}, "demos is 1: give a whole number, 2 or more"),
    "no candidates": ({"strategy": "random", "candidates": 0}, "candidates is 0: give a whole number, 1 or more"),
    "no answers": ({"trainset": [dspy.Example(question="Q?")]}, "no gold answer"),
    "no question": ({"trainset": [dspy.Example(q="Q?").with_inputs("q")]}, "'with q' has no gold answer"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_users_mistake_is_told_before_the_lm_is_asked(program: RAISF, world, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(program, world, **options)
    assert program.know.lm.calls == []


def test_validation_questions_that_were_trained_on_are_refused(program: RAISF, world) -> None:
    question = world.train[0].question
    for same in (question.upper(), question.removesuffix("?"), f"{question} "):
        with pytest.raises(InputError, match=r"1 of the 30 training questions are in the validation split too.*take"):
            run(program, world, valset=[dspy.Example(question=same, answer="x")])
    reworded = [dspy.Example(id=world.train[0].id, question="in other words?", answer="x")]
    with pytest.raises(InputError, match=r"in the validation split too.*'in other words\?'"):
        run(program, world, valset=reworded)
    assert program.know.lm.calls == []


def test_the_near_duplicate_of_a_long_question_is_refused_and_one_about_another_name_is_not(learner: Learner) -> None:
    asked = "Which of all the rivers that flow through the {} of the old kingdom is by far the longest one?"
    given = sets()
    given["trainset"].append(dspy.Example(question=asked.format("North"), answer="x"))
    given["valset"].append(dspy.Example(question=asked.format("South"), answer="x"))
    compile(learner, **given, progress=False)
    given["valset"].append(dspy.Example(question=asked.format("North").replace("far ", ""), answer="x"))
    with pytest.raises(InputError, match="nearly the same words"):
        compile(learner, **given, progress=False)


def test_line_numbers_as_ids_are_no_overlap(learner: Learner) -> None:
    numbered = {name: [e.copy(id=str(i)) for i, e in enumerate(found)] for name, found in sets().items()}
    assert compile(learner, **numbered, progress=False).compile_report["chosen"] == "labeled"


def test_without_an_lm_it_says_so(world) -> None:
    with dspy.context(lm=None), pytest.raises(InputError, match="language model"):
        run(RAISF(BM25.load(world.index)), world)


def test_a_dead_endpoint_ends_compiling(world) -> None:
    def down(fields: dict[str, Any]) -> str:
        raise LMError("cannot be reached")

    program = Direct()
    program.set_lm(ScriptedLM(down))
    with pytest.raises(LMError, match=r"every validation question.*cannot be reached"):
        run(program, world)


UNUSED = {
    "prompts' for weights": (
        {"how": "weights", "demos": 3},
        r"demos \(--demos\) is for .* gepa and outcome, not for weights",
    ),
    "a strategy for weights": (
        {"how": "weights", "strategy": "random"},
        r"strategy \(--strategy\) is for how='prompts'",
    ),
    "weights' for prompts": ({"rows": 50}, r"rows \(--rows\) is for weights, outcome and probe, not for labeled"),
    "one strategy's": ({"candidates": 9}, r"candidates \(--candidates\) is for random and mipro, not for labeled"),
    "another's": ({"strategy": "random", "trials": 9}, "is for mipro and gepa, not for random"),
    "one of neither part": (
        {"how": "both", "candidates": 9},
        r"candidates \(--candidates\) is for random and mipro, not for both",
    ),
    "no such part": ({"how": "both", "prompts": "x"}, "unknown strategy 'x': choose labeled"),
    "no such steps": ({"how": "both", "strategy": "p -> x"}, "unknown strategy 'p -> x': give steps p"),
    "labels": ({"labels": "x"}, "unknown labels 'x': choose model, gold"),
    "threads": ({"threads": 0}, "threads is 0: give a whole number, 1 or more"),
    "no LM": ({"strategy": "gepa", "reflection_lm": 5}, "reflection_lm is 5: give an LM, or a spec"),
}


@pytest.mark.parametrize(("options", "message"), UNUSED.values(), ids=UNUSED.keys())
def test_what_nothing_would_read_is_refused_before_any_work(learner: Learner, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compile(learner, **sets(), **options, progress=False)
    assert learner.answer_directly.lm.calls == []


def test_a_reflection_lm_may_be_a_spec(learner: Learner) -> None:
    lm = reflection_lm("openai/x", learner)
    assert lm.model == "openai/x" and lm.kwargs["max_tokens"] == REFLECTION_TOKENS
    assert reflection_lm(None, learner) is learner.answer_directly.lm


def test_a_function_in_the_retrievers_place_is_a_retriever_and_what_finds_nothing_gives_no_examples(
    program: RAISF, world
) -> None:
    program.retriever = lambda query, k: []
    with pytest.raises(InputError, match="relevance judge needs examples of both verdicts, found 0 'relevant'"):
        run(program, world)


def test_a_place_that_cannot_be_written_is_told_before_any_work(learner: Learner, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(InputError, match=r"runs/compile cannot be written \(Not a directory\): .*work=DIR"):
        compile(learner, **sets(), progress=False)
    assert learner.answer_directly.lm.calls == []
    with pytest.raises(InputError, match="cannot be written"):
        check_replaceable(tmp_path / "runs" / "artifact", "manifest.json")


def test_two_of_the_same_at_once_are_refused_and_two_others_are_not(learner: Learner) -> None:
    """Both would write one journal, and the first to end would take it from the other."""
    started: list[int] = []

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        if not started:
            started.append(1)
            with pytest.raises(InputError, match="another command is doing the very same in runs/compile"):
                compile(learner, **sets(), metric=metric, progress=False)
            compile(learner, **sets(), metric=metric, seed=1, progress=False)
        return 1.0

    assert compile(learner, **sets(), metric=metric, progress=False).compile_report["chosen"] == "zero-shot"
