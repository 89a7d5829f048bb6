"""Every way of compiling is a DSPy teleprompter: alone, in BetterTogether, after another, and on modules of one's own.

The list of what a DSPy user may do; if one failed, our optimizers and hers would not go together.
"""

import dataclasses
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt import Teleprompter

import raisf
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.compile import OTHERS, PROMPTS
from raisf.optimize.prompts import prompts_of
from raisf.programs.baselines.skr import SKR
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

QUIET: dict[str, Any] = {"progress": False}
QUICK = Training(epochs=1, rank=2, batch_size=8)
ALL = {**PROMPTS, **OTHERS}


class Wrap(dspy.Module):
    """A module of a user's own that contains RA-ISF, and a predictor beside it."""

    def __init__(self, index: Any = None) -> None:
        super().__init__()
        self.rag = RAISF(index, k=5)
        self.polish = dspy.Predict("draft, tone -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.rag(question=question).answer)


def shows(example: Any, prediction: Any, trace: Any = None) -> float:
    return 1.0


@pytest.fixture
def wrap(world: Any, oracle: Any) -> Wrap:
    made = Wrap(BM25.load(world.index))
    made.set_lm(oracle())
    return made


def prefers_demonstrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has demonstrations wins, so that the test sees them."""
    from raisf.optimize.optimizers.selection import Selection

    def values(self: Any, program: Any, examples: Any, show: Any) -> list[float]:
        return [sum(len(p.demos) for _, p in program.named_predictors()) / 1000] * len(examples)

    monkeypatch.setattr(Selection, "values", values)


# What they are


@pytest.mark.parametrize("name", ALL)
def test_each_is_a_teleprompter_with_inspectable_options_and_dspys_compile(name: str) -> None:
    kind = ALL[name]
    assert issubclass(kind, Teleprompter)
    assert getattr(raisf, kind.__name__) is kind
    needed = {"checkpoint": "c", "index": "i"} if name == "retriever" else {}
    made: Any = kind(**needed)
    options = {field.name for field in dataclasses.fields(made)}
    assert made.get_params().keys() == options, "every option is a field, and every field an option"
    assert repr(made).startswith(f"{kind.__name__}(")
    import inspect

    assert {"student", "trainset", "teacher", "valset"} <= set(inspect.signature(made.compile).parameters)


def test_an_option_that_makes_no_sense_is_refused_where_it_is_given() -> None:
    for make, message in (
        (lambda: raisf.LabeledJudges(demos=1), "demos is 1: give a whole number, 2 or more"),
        (lambda: raisf.LabeledJudges(threads="4"), "threads is '4': give a whole number, 1 or more"),  # type: ignore[arg-type]
        (lambda: raisf.MIPRO(demos=2.5), r"demos is 2\.5: give a whole number"),  # type: ignore[arg-type]
        (lambda: raisf.GEPA(work=None), "work is None: give a folder"),  # type: ignore[arg-type]
        (lambda: raisf.MIPRO(judge_rows="rows"), "judge_rows is 'rows': give what"),  # type: ignore[arg-type]
        (lambda: raisf.FinetuneJudges(training={}), r"training is {}: give raisf.Training"),  # type: ignore[arg-type]
        (lambda: raisf.RandomSearch(seed=None), "seed is None: give a whole number"),  # type: ignore[arg-type]
        (lambda: raisf.RandomSearch(candidates=0), "candidates is 0: give a whole number, 1 or more"),
        (lambda: raisf.GEPA(trials=0), "trials is 0: give a whole number, 1 or more"),
        (lambda: raisf.FinetuneJudges(rows=1), "rows is 1: give a whole number, 2 or more"),
        (lambda: raisf.ProbeJudges(rows=1), "rows is 1: give a whole number, 2 or more"),
        (lambda: raisf.ProbeJudges(rows="all"), "rows is 'all': give a whole number"),  # type: ignore[arg-type]
        (lambda: raisf.Calibrate(threads=0.5), r"threads is 0\.5: give a whole number"),  # type: ignore[arg-type]
        (lambda: raisf.Calibrate(call_price=None), "call_price is None: give 0 or more"),  # type: ignore[arg-type]
        (lambda: raisf.OutcomeJudges(by="prompts", base="pocket"), "base is of no use by prompts"),
        (lambda: raisf.OutcomeJudges(search_price=-0.1), "search_price is -0.1: give 0 or more"),
        (lambda: raisf.Together(strategy="p w"), "unknown strategy 'p w': give steps"),
        (lambda: raisf.Calibrate(aim="best"), "unknown aim 'best'"),  # type: ignore[arg-type]
        (lambda: raisf.MIPRO(labels="x"), "unknown labels 'x'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_a_class_and_its_name_give_the_same_program(program: RAISF, world: Any) -> None:
    sets: Any = {"trainset": world.train[:20], "valset": world.dev[:4]}
    by_class = raisf.BootstrapJudges(seed=3, **QUIET).compile(program, **sets)
    by_name: Any = raisf.compile(program, strategy="bootstrap", seed=3, **QUIET, **sets)
    assert prompts_of(by_class) == prompts_of(by_name)


# Alone


@pytest.mark.parametrize("kind", [raisf.LabeledJudges, raisf.BootstrapJudges])
def test_demonstrations_need_no_validation_set(program: RAISF, world: Any, kind: Any) -> None:
    compiled = kind(**QUIET).compile(program, trainset=world.train[:30])
    assert compiled.know.demos and compiled.relevant.demos and not program.know.demos
    assert compiled.compile_report["candidates"] == []


COMPARE = [raisf.RandomSearch, raisf.MIPRO, raisf.GEPA, raisf.FinetuneJudges, raisf.Calibrate]
COMPARE += [raisf.ProbeJudges, raisf.OutcomeJudges, raisf.Together]


@pytest.mark.parametrize("kind", COMPARE)
def test_what_compares_says_that_it_needs_one(program: RAISF, world: Any, kind: Any) -> None:
    with pytest.raises(InputError, match="validation set is missing"):
        kind(**QUIET).compile(program, trainset=world.train[:30])


def test_a_teachers_right_runs_are_shown(world: Any, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefers_demonstrations(monkeypatch)
    student, teacher = RAISF(BM25.load(world.index)), RAISF(BM25.load(world.index))
    teacher.set_lm(oracle())
    clueless = oracle()._script.answer
    student.set_lm(ScriptedLM(lambda fields: {**clueless(fields), "answer": "no idea"}))
    student.know.lm = oracle()  # its judges can still be labelled
    sets: Any = {"trainset": world.train[:40], "valset": world.dev[:4]}
    options: Any = {"labels": "gold", **QUIET}
    taught = raisf.BootstrapJudges(**options).compile(student, teacher=[teacher], **sets)
    shown = [demo["answer"] for demo in taught.answer_from.demos]
    assert shown and "no idea" not in shown


# Together with DSPy's, and after each other


def test_inside_better_together_prompts_then_weights(program: RAISF, world: Any, llama: Path, tmp_path: Path) -> None:
    weights = raisf.FinetuneJudges(
        base=LocalLM(f"local/{llama}"), rows=8, training=QUICK, predictors=["relevant"], **QUIET
    )
    together = dspy.BetterTogether(
        metric=shows, p=raisf.LabeledJudges(demos=2, **QUIET), w=weights, f=dspy.LabeledFewShot(k=2)
    )
    sets: Any = {"trainset": world.train[:20], "valset": world.dev[:3]}
    best: Any = together.compile(program, strategy="p -> w", **sets)
    assert not best.flag_compilation_error_occurred
    made = {one["strategy"]: one["program"] for one in best.candidate_programs}
    assert made.keys() == {"", "p", "p -> w"}
    both = made["p -> w"]
    assert both.relevant.lm.lora is not None and both.know.lm is not None
    assert both.retriever is program.retriever
    assert [dict(demo) for demo in both.know.demos] == [dict(demo) for demo in made["p"].know.demos]


@pytest.mark.slow
def test_inside_better_together_a_probe_reads_the_prompts_that_were_chosen_before(
    program: RAISF, world: Any, llama: Path
) -> None:
    probe = raisf.ProbeJudges(base=LocalLM(f"local/{llama}"), rows=16, **QUIET)
    together = dspy.BetterTogether(metric=shows, p=raisf.LabeledJudges(demos=2, **QUIET), r=probe)
    sets: Any = {"trainset": world.train[:20], "valset": world.dev[:6]}
    best: Any = together.compile(program, strategy="p -> r -> p", **sets)
    assert not best.flag_compilation_error_occurred
    made = {one["strategy"]: one["program"] for one in best.candidate_programs}
    both = made["p -> r"]
    assert both.relevant.lm.probe is not None and both.know.lm.probe is not None and both.compose.lm is not None
    assert prompts_of(both) == prompts_of(made["p"]) and both.retriever is program.retriever
    assert made["p -> r -> p"].know.lm.probe == both.know.lm.probe


def test_inside_better_together_after_an_optimizer_of_dspys(program: RAISF, world: Any) -> None:
    together = dspy.BetterTogether(
        metric=shows, theirs=dspy.LabeledFewShot(k=2), ours=raisf.LabeledJudges(demos=2, **QUIET)
    )
    sets: Any = {"trainset": world.train[:20], "valset": world.dev[:3]}
    best: Any = together.compile(program, strategy="theirs -> ours -> theirs", **sets)
    assert not best.flag_compilation_error_occurred and len(best.candidate_programs) == 4


def test_each_keeps_what_the_one_before_has_gained(
    program: RAISF, world: Any, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefers_demonstrations(monkeypatch)
    sets: Any = {"trainset": world.train[:20], "valset": world.dev[:4]}
    prompted = raisf.LabeledJudges(demos=2, **QUIET).compile(program, **sets)
    options: Any = {"base": LocalLM(f"local/{llama}"), "rows": 8, "training": QUICK, "predictors": ["relevant"]}
    tuned = raisf.FinetuneJudges(**options, **QUIET).compile(prompted, **sets)
    assert prompts_of(tuned) == prompts_of(prompted) and tuned.relevant.lm.lora is not None
    tuned.know_threshold = 0.25
    again = raisf.LabeledJudges(demos=4, **QUIET).compile(tuned, **sets)
    assert again.relevant.lm.lora == tuned.relevant.lm.lora and again.know_threshold == 0.25
    assert len(again.know.demos) == 4
    assert [report["how"] for report in again.compile_report["earlier"]] == ["prompts", "weights"]


def test_an_skr_is_fitted_alone_or_before_anything_else(world: Any, oracle: Any) -> None:
    program = SKR(BM25.load(world.index), k=2, neighbours=3, labelled_by="answer")
    program.set_lm(oracle())
    fitted = raisf.FitSKR(**QUIET).compile(program, trainset=world.train[:16])
    assert program.cases is None and fitted.cases
    first = raisf.LabeledJudges(**QUIET).compile(program, trainset=world.train[:16])
    assert first.cases == fitted.cases
    with pytest.raises(InputError, match="has no gold answer"):  # and not that none was right
        raisf.FitSKR(**QUIET).compile(program, trainset=[dspy.Example(question="Who?").with_inputs("question")])
    other = RAISF(program.retriever)
    other.set_lm(program.answer_from.lm)
    with pytest.raises(InputError, match="RAISF holds no SKR-knn to fit"):
        raisf.FitSKR(**QUIET).compile(other, trainset=world.train[:16])


# A module that contains RA-ISF


@pytest.mark.parametrize("kind", [raisf.LabeledJudges, raisf.BootstrapJudges, raisf.RandomSearch])
def test_a_module_that_contains_ra_isf_is_compiled_to_prompts(
    wrap: Wrap, world: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefers_demonstrations(monkeypatch)
    compiled = kind(**QUIET).compile(wrap, trainset=world.train[:40], valset=world.dev[:4])
    for judge in (compiled.rag.know, compiled.rag.relevant):
        verdicts = [demo["verdict"] for demo in judge.demos]
        assert len(set(verdicts)) == 2 and abs(2 * verdicts.count(verdicts[0]) - len(verdicts)) <= 1
    given = {example.question: example.sub_questions for example in world.train}
    assert compiled.rag.decompose.demos
    assert all(given[demo["question"]] == demo["sub_questions"] for demo in compiled.rag.decompose.demos)
    assert not compiled.polish.demos and not wrap.rag.know.demos
    assert compiled(question=world.test[0].question).answer


def test_a_module_that_contains_ra_isf_is_compiled_to_weights_from_gold(
    wrap: Wrap, world: Any, llama: Path, tmp_path: Path
) -> None:
    options: Any = {"base": LocalLM(f"local/{llama}"), "rows": 12, "training": QUICK, **QUIET}
    compiled = raisf.FinetuneJudges(**options).compile(wrap, trainset=world.train[:30], valset=world.dev[:6])
    trained = compiled.compile_report["predictors"]
    assert {name: made["source"] for name, made in trained.items()} == dict.fromkeys(
        ("rag.know", "rag.relevant", "rag.decompose"), "gold"
    )
    assert compiled.rag.know.lm.lora is not None and compiled.polish.lm is wrap.polish.lm
    compiled.rag.k, compiled.rag.know_threshold = 3, 0.25
    raisf.save(compiled, tmp_path / "a")
    lm = wrap.polish.lm
    loaded: Any = raisf.load(tmp_path / "a", lm=lm, program=Wrap(wrap.rag.retriever))
    assert loaded.rag.know.lm.lora == tmp_path / "a" / "adapters" / "rag.know"
    assert (loaded.rag.k, loaded.rag.know_threshold) == (3, 0.25)
    assert loaded.rag.retriever is wrap.rag.retriever and loaded.compile_report == compiled.compile_report
    by_class: Any = raisf.load(tmp_path / "a", lm=lm, program=Wrap)
    assert by_class.rag.retriever.corpus_hash == wrap.rag.retriever.corpus_hash


def test_the_judges_of_a_module_that_contains_ra_isf_get_probes_from_gold(wrap: Wrap, world: Any, llama: Path) -> None:
    made = raisf.ProbeJudges(base=LocalLM(f"local/{llama}"), rows=16, **QUIET)
    compiled = made.compile(wrap, trainset=world.train[:30], valset=world.dev[:6])
    fitted = compiled.compile_report["predictors"]
    assert {name: one["source"] for name, one in fitted.items()} == {"rag.know": "gold", "rag.relevant": "gold"}
    assert compiled.rag.know.lm.probe and compiled.polish.lm is wrap.polish.lm and wrap.rag.know.lm is wrap.polish.lm


def test_a_module_that_contains_ra_isf_is_compiled_both_ways(
    wrap: Wrap, world: Any, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefers_demonstrations(monkeypatch)
    weights = raisf.FinetuneJudges(base=LocalLM(f"local/{llama}"), rows=8, training=QUICK, predictors=["rag.relevant"])
    both = raisf.Together(strategy="w -> p", p=raisf.LabeledJudges(demos=2), w=weights, **QUIET)
    compiled = both.compile(wrap, trainset=world.train[:20], valset=world.dev[:3])
    assert isinstance(compiled, Wrap) and compiled.compile_report["chosen"] == "w -> p"
    assert compiled.rag.relevant.lm.lora is not None and compiled.rag.know.demos and not wrap.rag.know.demos


def test_verdicts_are_tried_in_ra_isf_itself_only(wrap: Wrap, world: Any) -> None:
    with pytest.raises(InputError, match="this is a Wrap: compile the RA-ISF within by itself"):
        raisf.OutcomeJudges(by="prompts", **QUIET).compile(wrap, trainset=world.train[:20], valset=world.dev[:3])


@pytest.mark.slow
def test_judges_learn_by_outcome_inside_better_together(program: RAISF, world: Any) -> None:
    right = program.know.lm._script.answer

    def reads(fields: dict[str, Any]) -> dict[str, Any]:  # and is wrong where no passage says it
        said = right(fields)
        return {**said, "answer": "x"} if said.get("evidence", "") not in str(fields.get("passages", "")) else said

    program.set_lm(ScriptedLM(reads))
    outcome = raisf.OutcomeJudges(by="prompts", rows=12, demos=2, **QUIET)
    together = dspy.BetterTogether(metric=shows, ours=outcome, theirs=dspy.LabeledFewShot(k=2))
    sets: Any = {"trainset": world.train[:8], "valset": world.dev[:3]}
    best: Any = together.compile(program, strategy="ours -> theirs", **sets)
    assert not best.flag_compilation_error_occurred and len(best.candidate_programs) == 3


def test_a_module_that_contains_ra_isf_is_calibrated_by_its_judges(wrap: Wrap, world: Any) -> None:
    compiled = raisf.Calibrate(**QUIET).compile(wrap, valset=world.dev)
    assert isinstance(compiled, Wrap) and compiled.compile_report["calibration"]["judges"]["know"]["skipped"]


def test_a_program_of_the_registry_needs_no_class(program: RAISF, tmp_path: Path) -> None:
    raisf.save(program, tmp_path / "a")
    with pytest.raises(InputError, match="holds ra-isf, which needs no program="):
        raisf.load(tmp_path / "a", program=RAISF)


def test_dspys_rm_is_searched_for_demonstrations_as_it_is_for_answers(program: RAISF, world: Any) -> None:
    """The judge of relevance was left without any, and calibrating passed over it."""
    sets: Any = {"trainset": world.train[:20], "valset": world.dev[:4]}
    own = raisf.LabeledJudges(**QUIET).compile(program, **sets)
    rm, program.retriever = program.retriever, None
    with dspy.context(rm=rm):
        ours = raisf.LabeledJudges(**QUIET).compile(program, **sets)
    assert prompts_of(ours) == prompts_of(own)


def test_a_metric_refuses_examples_whose_gold_has_another_name() -> None:
    """Every score was 0, and an optimizer chose by nothing."""
    for metric in (raisf.answer_exact_match, raisf.answer_accuracy):
        with pytest.raises(InputError, match="no gold answer, but question, target"):
            metric(dspy.Example(question="q", target="a"), dspy.Prediction(answer="a"))


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (lambda example, prediction: 1.0, "too many positional arguments"),
        (lambda example, prediction, trace, more: 1.0, "missing a required argument: 'more'"),
        (lambda example, prediction, trace=None: float("nan"), "gave nan"),
        (lambda example, prediction, trace=None: None, "gave None: let it give a number from 0 to 1"),
    ],
)
def test_a_metric_that_cannot_be_used_is_told(program, world, metric, says):
    with pytest.raises(InputError, match=says):
        raisf.BootstrapJudges(metric=metric, progress=False).compile(program, trainset=world.train, valset=world.dev)


def test_gepa_takes_our_metrics():
    dspy.GEPA(metric=raisf.answer_exact_match, max_metric_calls=10, reflection_lm=ScriptedLM(lambda fields: {}))
