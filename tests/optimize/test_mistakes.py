"""What one may get wrong in Python: told before it costs anything, and never answered by a worse program in silence."""

import asyncio
import math
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
import pytest
from dspy.teleprompt.bootstrap_trace import bootstrap_trace_data

import raisf
from raisf.optimize.judges.collect import collect
from raisf.optimize.optimizers.training_rows import Source
from raisf.optimize.runs import score_of
from raisf.programs.changing import given_forward
from raisf.programs.ra_isf import RAISF
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import InputError, RaisfError
from tests.scripted import ScriptedLM

QUIET: Any = {"progress": False}


class Wrap(dspy.Module):
    """A module of one's own around RA-ISF."""

    def __init__(self, retriever: Any = None) -> None:
        super().__init__()
        self.qa = RAISF(retriever, k=5)

    def forward(self, question: str) -> dspy.Prediction:
        return self.qa(question=question)


class Subclass(RAISF):
    """A class of one's own of RA-ISF."""


@pytest.mark.parametrize("kind", [Wrap, Subclass])
def test_a_judge_that_reasons_is_not_loaded_into_one_that_does_not(kind: Any, oracle: Any, tmp_path: Path) -> None:
    """Its prompt told the verdict by the reasoning's description."""

    def made(reasons: bool) -> Any:
        module = kind()
        inner = getattr(module, "qa", module)
        if reasons:
            inner.know = dspy.ChainOfThought(SelfKnowledge)
        module.set_lm(oracle())
        return module

    raisf.save(made(True), tmp_path / "a")
    with pytest.raises(InputError, match="know was saved with the fields Question, Reasoning, Verdict"):
        raisf.load(tmp_path / "a", program=made(False), retriever=lambda query, k: [], lm=oracle())
    loaded: Any = raisf.load(tmp_path / "a", program=made(True), retriever=lambda query, k: [], lm=oracle())
    assert list(getattr(loaded, "qa", loaded).know.signature.output_fields) == ["reasoning", "verdict"]


def test_neither_is_it_by_dspys_own_load(tmp_path: Path) -> None:
    program = RAISF()
    program.know = dspy.ChainOfThought(SelfKnowledge)
    program.save(tmp_path / "p.json")
    other = RAISF(k=7)
    with pytest.raises(InputError, match=r"give it the predictor that it had, such as a dspy\.ChainOfThought"):
        other.load(tmp_path / "p.json")
    assert other.k == 7 and other.know.signature.output_fields["verdict"].json_schema_extra["prefix"] == "Verdict:"


def test_a_teacher_must_be_able_to_answer(program: RAISF, world: Any) -> None:
    sets: Any = {"trainset": world.train, "valset": world.dev}
    with pytest.raises(InputError, match="needs a language model, there is none"):
        raisf.BootstrapJudges(**QUIET).compile(program, teacher=RAISF(program.retriever), **sets)
    lm: Any = ScriptedLM(lambda fields: {})
    told = "the teacher is a language model, and must be a program"
    for strange, why in ((lm, told), ([lm], told), (RAISF, "is <class .*: give a program whose right runs")):
        with pytest.raises(InputError, match=why):
            raisf.BootstrapJudges(**QUIET).compile(program, teacher=strange, **sets)


def test_runs_that_all_fail_are_told(program: RAISF, world: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(query: str, k: int) -> list[str]:
        raise RuntimeError("down")

    teacher = RAISF(broken, use_know=False)
    teacher.set_lm(ScriptedLM(lambda fields: {"verdict": "unknown", "answer": "x", "sub_questions": []}))
    made = raisf.BootstrapJudges(demos=2, **QUIET)
    made.compile(program, trainset=world.train[:8], valset=world.dev, teacher=teacher)
    assert "failed and none was right: they show nothing" in caplog.text


def test_what_dspy_froze_is_said_to_be(program: RAISF, world: Any) -> None:
    outer = Wrap(program.retriever)
    outer.set_lm(program.know.lm)
    outer.qa._compiled = True
    for begin in (
        lambda: raisf.Calibrate(**QUIET).compile(outer, valset=world.dev),
        lambda: raisf.fit_confidence(outer, valset=world.dev, progress=False),
    ):
        with pytest.raises(InputError, match=r"qa was compiled by DSPy.*set qa\._compiled = False"):
            begin()
    with pytest.raises(InputError, match=r"nothing in Wrap can be compiled: qa\.know, .*set its _compiled = False"):
        raisf.BootstrapJudges(**QUIET).compile(outer, trainset=world.train, valset=world.dev)


def test_questions_that_are_no_examples_are_told(program: RAISF, world: Any) -> None:
    rows: Any = [{"question": "q", "answer": "a"}]
    file: Any = "train.jsonl"
    for begin in (
        lambda: raisf.LabeledJudges(**QUIET).compile(program, trainset=rows, valset=world.dev),
        lambda: raisf.LabeledJudges(**QUIET).compile(program, trainset=world.train, valset=rows),
        lambda: raisf.LabeledJudges(**QUIET).compile(program, trainset=file, valset=world.dev),
        lambda: raisf.Calibrate(**QUIET).compile(program, valset=rows),
        lambda: raisf.Calibrate(**QUIET).compile(program, valset=[None]),
        lambda: raisf.fit_confidence(program, valset=file, progress=False),
    ):
        with pytest.raises(InputError, match=r"questions hold .*: give a list of dspy\.Example"):
            begin()


@pytest.mark.parametrize("metric", ["em", None, 3])
def test_what_is_no_metric_is_told(metric: Any, program: RAISF, world: Any) -> None:
    for begin in (
        lambda: raisf.LabeledJudges(metric=metric, **QUIET).compile(program, trainset=world.train, valset=world.dev),
        lambda: raisf.Calibrate(metric=metric),
        lambda: raisf.fit_confidence(program, valset=world.dev, metric=metric),
    ):
        with pytest.raises(InputError, match=r"the metric is .*: give a function of"):
            begin()


def test_one_kind_of_self_knowledge_needs_no_brackets() -> None:
    assert raisf.Calibrate(know="confidence").know == ("confidence",)  # type: ignore[arg-type]


def test_a_module_that_asks_for_something_else_is_calibrated_by_its_answers(program: RAISF, world: Any) -> None:
    class Searching(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qa = RAISF(program.retriever, k=5)

        def forward(self, query: str) -> dspy.Prediction:
            return self.qa(question=query)

    module = Searching()
    module.set_lm(program.know.lm)
    asked = [dspy.Example(query=one.question, answers=one.answers).with_inputs("query") for one in world.dev]
    report = raisf.Calibrate(**QUIET).compile(module, valset=asked).compile_report["calibration"]
    assert report["answer"]["after"] and all(one["skipped"] for one in report["judges"].values())


@pytest.mark.slow
def test_questions_of_two_files_with_the_same_ids_all_count(program: RAISF, world: Any, tmp_path: Path) -> None:
    twins = [one.copy(id=str(place % 10)) for place, one in enumerate(world.train)]
    with pytest.raises(InputError, match="two training questions share the id '0'"):
        collect(program, twins, tmp_path / "rows", progress=False)
    alone: Any = {"use_relevance": False, "use_decomposition": False}
    asked = RAISF(**alone, know_threshold=0.0)
    asked.set_lm(raisf.connect("pocket"))
    numbered = [one.copy(id=str(place % 30)) for place, one in enumerate([*world.train, *world.dev])]
    both = [
        raisf.fit_confidence(asked, valset=one, progress=False).compile_report["confidence"]
        for one in (numbered, [*world.train, *world.dev])
    ]
    assert both[0]["answers"] == both[1]["answers"] > 30 and both[0]["slope"] == pytest.approx(both[1]["slope"])


def test_nothing_is_validated_on_that_was_learnt_as_a_sub_question(caplog: pytest.LogCaptureFixture) -> None:
    def rows(*questions: str) -> Any:
        return type("Rows", (), {"of": {"know": [dspy.Example(question=one) for one in questions]}})()

    held = Source("validation", 9, rows("Who wrote Emma?", "Who wrote Hamlet?"))
    held.leave_out(Source("training", 9, rows("Where was its author born?", " who wrote  Emma?")))
    assert [row.question for row in held.gold.of["know"]] == ["Who wrote Hamlet?"] and not caplog.text
    held.leave_out(Source("training", 9, rows("Who wrote Hamlet?")))
    assert (
        len(held.gold.of["know"]) == 1
        and "know: all validation rows are about questions that are learnt" in caplog.text
    )


def test_an_adapter_of_dspys_settings_is_told_to_be_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = RAISF()
    program.set_lm(raisf.connect("openai/gpt-4o-mini"))
    with dspy.context(adapter=dspy.JSONAdapter()):
        raisf.save(program, tmp_path / "a")
    assert "does not keep DSPy's adapter, JSONAdapter, in which know" in caplog.text
    caplog.clear()
    raisf.save(program, tmp_path / "b")
    assert "adapter" not in caplog.text


def test_a_reflection_lm_at_another_temperature_is_another(program: RAISF, world: Any) -> None:
    asked = [
        raisf.MIPRO(reflection_lm=raisf.connect("pocket", temperature=heat))._settings(program, world.train, world.dev)
        for heat in (0.0, 1.0)
    ]
    assert asked[0] != asked[1]


class Loud(dspy.Predict):
    """Answers in its own way."""


def _typed(program: RAISF) -> None:
    program.answer_from = dspy.Predict(
        program.answer_from.signature.with_updated_fields("answer", type_=Literal["yes", "no"])
    )


def _loud(program: RAISF) -> None:
    program.answer_from = Loud(program.answer_from.signature)


def _forwarded(program: RAISF) -> None:
    program.forward = lambda question: dspy.Prediction(answer=question)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("change", "lost"),
    [(_typed, "the type of answer"), (_loud, "the class Loud"), (_forwarded, "another forward")],
)
def test_what_an_artifact_cannot_keep_of_a_program_is_refused(
    change: Any, lost: str, oracle: Any, tmp_path: Path
) -> None:
    """It came back as a plain one, without a word."""
    program = RAISF(lambda query, k: [])
    change(program)
    program.set_lm(oracle())
    with pytest.raises(InputError, match=f"{lost}.*would be lost"):
        raisf.save(program, tmp_path / "a")


def test_dspys_optimizers_keep_the_adapters_that_predictors_have_and_no_other_lm() -> None:
    """Weights that were trained were gone, and the report told of them. A teacher's LM takes the others' place."""
    program, learnt = RAISF(lambda query, k: []), ScriptedLM(lambda fields: {})
    program.set_lm(ScriptedLM(lambda fields: {}))
    program.know.lm, learnt.lora = learnt, Path("adapter")  # pyright: ignore[reportAttributeAccessIssue]
    examples = [dspy.Example(question="q", verdict="know").with_inputs("question")]
    compiled = dspy.LabeledFewShot(k=1).compile(program, trainset=examples)
    assert compiled.know.lm is learnt and compiled.relevant.lm is None


def test_what_syncify_puts_into_a_program_is_no_forward_that_would_be_lost(oracle: Any, tmp_path: Path) -> None:
    program = dspy.syncify(RAISF(lambda query, k: []))
    program.set_lm(oracle())
    raisf.save(program, tmp_path / "a")
    assert (tmp_path / "a" / "manifest.json").is_file()


def test_a_program_that_dspy_has_traced_is_still_the_one_that_it_was(
    oracle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own `forward`, which DSPy had put back, was taken for another one that would be lost."""
    program = RAISF(lambda query, k: [], use_decomposition=False)
    program.set_lm(oracle())
    examples = [dspy.Example(question="Who?", answer="x").with_inputs("question")]
    bootstrap_trace_data(program, examples, metric=raisf.answer_exact_match)
    assert "forward" in vars(program)
    raisf.save(program, tmp_path / "a")
    assert [event.type for event in program.stream("Who?")][-1] == "done"
    assert "forward" not in caplog.text


@pytest.mark.parametrize("part", [False, True])
def test_a_forward_that_an_artifact_does_not_keep_is_told(
    part: bool, oracle: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What KNNFewShot had made of a module came back without its neighbours, and without a word."""
    examples = [dspy.Example(question="Who?", answer="x").with_inputs("question")]
    knn = dspy.KNNFewShot(k=1, trainset=examples, vectorizer=dspy.Embedder(lambda texts: np.ones((len(texts), 2))))
    module: Any = Wrap(lambda query, k: [])
    if part:
        module.qa = knn.compile(module.qa)
    else:
        module = knn.compile(module)
    module.set_lm(oracle())
    raisf.save(module, tmp_path / "a")
    where = "qa" if part else "the module"
    assert f"does not keep the forward that {where} was given" in caplog.text
    loaded: Any = raisf.load(tmp_path / "a", program=module)
    assert given_forward(loaded.qa if part else loaded) is not None


def test_a_forward_of_ones_own_is_given_all_that_it_takes_by_coroutines_too() -> None:
    class Styled(RAISF):
        def forward(self, question: str, style: str = "plain") -> dspy.Prediction:
            return dspy.Prediction(answer=f"{question} {style}")

    styled: Any = Styled(lambda query, k: [])
    assert asyncio.run(styled.acall(question="a", style="bold")).answer == "a bold"
    plain: Any = RAISF(lambda query, k: [])
    with pytest.raises(TypeError, match="unexpected keyword argument 'style'"):
        asyncio.run(plain.acall(question="a", style="bold"))


class Wanting(Wrap):
    """Takes more than its examples mark."""

    def forward(self, question: str, context: str) -> dspy.Prediction:  # pyright: ignore
        return self.qa(question=f"{question} {context}")


@pytest.mark.parametrize("kind", [raisf.BootstrapJudges, raisf.LabeledJudges])
def test_a_module_that_fails_on_every_question_is_not_compiled(kind: Any, oracle: Any) -> None:
    """It was chosen with none of four right, and nothing told that it had never run."""
    module = Wanting(lambda query, k: [])
    module.qa.use_know, module.qa.use_relevance = False, False
    module.set_lm(oracle())
    subs = [f"Who is {n}?" for n in "ab"]
    train, dev = (
        [dspy.Example(question=f"{w} {n}?", answer="x", sub_questions=subs).with_inputs("question") for n in range(4)]
        for w in ("Who", "Where")
    )
    with pytest.raises(RaisfError, match=r"the program failed on every validation question.*argument: 'context'"):
        kind(labels="gold", **QUIET).compile(module, trainset=train, valset=dev)


def test_a_metric_of_shares_that_come_to_one_is_right_to_the_full() -> None:
    shares = {1.0: 0.8 + 0.05 + 0.05 + 0.1, 0.0: 0.3 - 0.1 - 0.2}
    assert all(share != exact for exact, share in shares.items())
    scored = [score_of(lambda *asked: share, dspy.Example(), dspy.Prediction()) for share in shares.values()]  # noqa: B023
    assert scored == [*shares]


@pytest.mark.parametrize("given", [30.0, -1.0, math.inf])
def test_a_metric_beyond_its_bounds_is_told(given: float) -> None:
    """30 counted as right to the full, and wrong runs were demonstrated."""
    with pytest.raises(InputError, match=rf"gave {given}: let it give a number from 0 to 1"):
        score_of(lambda example, prediction, trace: given, dspy.Example(), dspy.Prediction())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: raisf.Together(p=dspy.LabeledFewShot(k=1)), "a LabeledFewShot.*dspy.BetterTogether takes any"),
        (lambda: RAISF(use_know="no"), "use_know is 'no': give True or False"),
        (lambda: raisf.LabeledJudges().compile(ScriptedLM(lambda f: {}), trainset=[]), "a program is a dspy.Module"),
        (
            lambda: raisf.LabeledJudges().compile(RAISF(), trainset=(e for e in ())),
            "training questions hold <generator",
        ),
        (lambda: raisf.evaluate(RAISF(), [{"question": "q"}]), "test questions hold {'question'"),
        (lambda: raisf.load("smollm2", retriever=7), "the retriever is 7"),
        (lambda: raisf.load("smollm2", lm=5), "the LM is 5"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_told_as_such(call: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()
