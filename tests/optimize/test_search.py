"""If these failed, MIPROv2 and GEPA could mend the wrong judge, lose what they found, or not notice a dead LM."""

import dataclasses
import importlib.util
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.evaluation.identity import describe
from raisf.lm import pocket
from raisf.lm.adapter import adapter_named
from raisf.lm.connect import connect
from raisf.optimize.artifact import load, save
from raisf.optimize.compile import PROMPTS, compile
from raisf.optimize.optimizers.selection import Selection, answer_exact_match
from raisf.optimize.prompts import prompts_of, with_instructions
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError, LMError
from raisf.utils.journal import Journal
from raisf.utils.progress import progress_bar
from tests.optimize.conftest import sets
from tests.scripted import ScriptedLM

DEV = 6
RULE = "Say relevant only if the passage names the answer."


class Telling(dspy.ChatAdapter):
    """Lets a scripted LM read its instructions as one more field."""

    def format(self, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        messages = super().format(signature, demos, inputs)
        messages[-1]["content"] = f"[[ ## instructions ## ]]\n{signature.instructions}\n\n{messages[-1]['content']}"
        return messages


@pytest.fixture
def loose(world, oracle: Callable[[], ScriptedLM]) -> Callable[..., RAISF]:
    """RA-ISF whose relevance judge takes every passage until it is told the rule, and whose reader is then confused."""
    right = oracle()._script.answer

    def answer(fields: dict[str, Any]) -> Any:
        found: Any = right(fields)
        if "passage" in fields and RULE not in fields["instructions"]:
            return {"verdict": "relevant"}
        if "passages" in fields and any(found["answer"] not in passage for passage in fields["passages"]):
            return {"evidence": "e", "answer": "confused"}
        return found

    def make(script: Callable[[dict[str, Any]], Any] = answer) -> RAISF:
        program = RAISF(BM25.load(world.index), k=2, max_depth=1)
        lm = ScriptedLM(script)
        lm.adapter = Telling(use_json_adapter_fallback=False)
        program.set_lm(lm)
        return program

    make.answer = answer  # type: ignore[attr-defined]
    return make


def reflecting(fields: dict[str, Any]) -> dict[str, str]:
    """Finds the rule if it is told that a passage does not suffice, and nothing of use otherwise."""
    told = str(fields.get("examples_with_feedback"))
    return {"new_instruction": RULE if "does not suffice to answer" in told else "Do better."}


def proposing(fields: dict[str, Any]) -> dict[str, str]:
    """What MIPROv2's proposer asks for; the rule for whoever judges passages."""
    texts = dict.fromkeys(("observations", "summary", "program_description", "module_description"), "t")
    return {**texts, "proposed_instruction": RULE if "passage" in fields.get("module", "") else "Be careful."}


def run(program: RAISF, world: Any, script: Callable[[dict[str, Any]], Any], **options: Any) -> Any:
    """Compiles with those of the options that the strategy has; it refuses the others."""
    given = {"trainset": world.train[:24], "valset": world.dev[:DEV], "reflection_lm": ScriptedLM(script)}
    given = {**given, "progress": False, **options}
    own = {field.name for field in dataclasses.fields(PROMPTS[given["strategy"]])} | {"trainset", "valset", "strategy"}
    return compile(program, **{name: value for name, value in given.items() if name in own})


WRITERS = {"gepa": reflecting, "mipro": proposing}


@pytest.mark.parametrize("strategy", WRITERS)
def test_the_judge_that_is_wrong_gets_the_rule_that_mends_it(
    loose: Callable[..., RAISF], world, strategy: str, tmp_path: Path
) -> None:
    program = loose()
    before, lm = describe(program), program.know.lm
    compiled = run(program, world, WRITERS[strategy], strategy=strategy, trials=6, candidates=3)
    report = compiled.compile_report
    assert compiled.relevant.signature.instructions == RULE
    assert report["instructions"]["relevant"] == RULE
    first, *others = report["candidates"]
    best = next(one for one in others if one["name"] == report["chosen"])
    assert best["score"]["value"] > first["score"]["value"] and best["difference"]["low"] > 0
    assert {one["score"]["n"] for one in report["candidates"]} == {DEV}
    assert describe(program) == before and compiled.retriever is program.retriever
    assert all(predictor.lm is lm for _, predictor in compiled.named_predictors())
    for judge in (compiled.know, compiled.relevant):
        counts = Counter(demo["verdict"] for demo in judge.demos)
        assert not counts or (len(counts) == 2 and max(counts.values()) - min(counts.values()) <= 1)
    save(compiled, tmp_path / "artifact")
    loaded = load(tmp_path / "artifact", lm=lm, retriever=program.retriever)
    assert prompts_of(loaded) == prompts_of(compiled)


def test_gepa_is_told_what_gold_says_about_the_very_call(loose: Callable[..., RAISF], world) -> None:
    told: list[dict[str, Any]] = []

    def listening(fields: dict[str, Any]) -> dict[str, str]:
        told.append(fields)
        return reflecting(fields)

    run(loose(), world, listening, strategy="gepa", trials=4)
    shown = [str(fields["examples_with_feedback"]) for fields in told]
    passages = [text for text in shown if "'passage'" in text or '"passage"' in text]
    assert passages and all("Wrong: judged relevant" in text for text in passages)
    for fields, text in zip(told, shown, strict=True):
        if "passage is relevant" in fields["current_instruction"]:
            assert text in passages, "the relevance judge was shown another predictor's calls"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WRITERS)
def test_demonstrations_and_instructions_are_chosen_on_the_validation_set_alone(
    loose: Callable[..., RAISF], world, strategy: str
) -> None:
    seen: list[str] = []

    def listening(fields: dict[str, Any]) -> dict[str, str]:
        seen.append(str(fields))
        return WRITERS[strategy](fields)

    compiled = run(loose(), world, listening, strategy=strategy, trials=3, candidates=2)
    asked = {example.question for example in world.dev[:DEV]}
    assert seen and not any(question in text for question in asked for text in seen)
    demos = [demo for _, predictor in compiled.named_predictors() for demo in predictor.demos]
    assert not asked & {demo["question"] for demo in demos}


def dying(answer: Callable[[dict[str, Any]], Any], after: int) -> Callable[[dict[str, Any]], Any]:
    """An LM whose endpoint goes down after so many calls."""
    calls = itertools.count(1)

    def answer_or_fail(fields: dict[str, Any]) -> Any:
        if next(calls) > after:
            raise LMError("cannot be reached")
        return answer(fields)

    return answer_or_fail


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WRITERS)
def test_an_endpoint_that_dies_ends_the_search_and_is_no_bad_candidate(
    loose: Callable[..., RAISF], world, strategy: str
) -> None:
    program = loose(dying(loose.answer, 250))  # type: ignore[attr-defined]
    with pytest.raises(LMError, match=r"10 questions in a row.*cannot be reached"):
        run(program, world, WRITERS[strategy], strategy=strategy, trials=30, candidates=3)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", WRITERS)
def test_a_reflection_lm_that_fails_ends_the_search(loose: Callable[..., RAISF], world, strategy: str) -> None:
    def down(fields: dict[str, Any]) -> str:
        raise LMError("no credentials")

    with pytest.raises(LMError, match="no credentials"):
        run(loose(), world, down, strategy=strategy, trials=3, candidates=2)


@pytest.mark.slow
def test_a_reflection_lm_that_writes_rubbish_is_told_for_gepa_and_done_without_for_mipro(
    loose: Callable[..., RAISF], world
) -> None:
    with pytest.raises(LMError, match=r"no instruction that can be read, 10 times in a row.*--reflection-lm"):
        run(loose(), world, lambda fields: "mumble", strategy="gepa", trials=8)
    report = run(loose(), world, lambda fields: "mumble", strategy="mipro", trials=2, candidates=3).compile_report
    assert set(report["proposed"].values()) == {0}
    assert report["instructions"] == {}


def test_a_format_without_instructions_is_told_before_the_lm_is_asked(loose: Callable[..., RAISF], world) -> None:
    program = loose()
    lm: Any = program.know.lm
    lm.adapter = adapter_named("pocket")
    with pytest.raises(InputError, match=r"rewrites instructions.*--adapter compact or chat"):
        run(program, world, reflecting, strategy="gepa")
    assert lm.calls == []


@pytest.mark.parametrize(("strategy", "package"), [("mipro", "optuna"), ("gepa", "gepa")])
def test_a_missing_extra_is_told_before_the_lm_is_asked(
    loose: Callable[..., RAISF], world, strategy: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else find(name, *rest))
    program = loose()
    with pytest.raises(InputError, match=f"needs the package {package}.*extra 'optimizers'"):
        run(program, world, reflecting, strategy=strategy)
    assert program.know.lm.calls == []  # type: ignore[union-attr]


def test_two_predictors_of_one_signature_are_told_apart() -> None:
    """By their signatures, as DSPy's own adapter does it, each would be shown the other's calls."""

    class Twice(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = dspy.Predict("text -> out"), dspy.Predict("text -> out")

        def forward(self, text: str) -> dspy.Prediction:
            return dspy.Prediction(answer=self.second(text=f"second {self.first(text=f'first {text}').out}").out)

    program = with_instructions(Twice(), {"first": "I am first.", "second": "I am second."})
    program.set_lm(ScriptedLM(lambda fields: {"out": f"<{fields['text']}>"}))
    told: list[dict[str, Any]] = []

    def listening(fields: dict[str, Any]) -> dict[str, str]:
        told.append(fields)
        return {"new_instruction": f"{fields['current_instruction']} Really."}

    texts = [dspy.Example(text=f"t{n}", answer="x").with_inputs("text") for n in range(8)]
    parts = {"trainset": texts[:5], "valset": texts[5:], "reflection_lm": ScriptedLM(listening)}
    compile(program, **parts, strategy="gepa", trials=8, progress=False)
    asked = Counter[str]()
    for fields in told:
        name = "first" if "I am first" in fields["current_instruction"] else "second"
        asked[name] += 1
        inputs = [record["Inputs"]["text"] for record in fields["examples_with_feedback"]]
        assert inputs and all(text.startswith(name) for text in inputs)
    assert set(asked) == {"first", "second"} and max(asked.values()) - min(asked.values()) <= 1


def test_a_judge_that_reads_no_instructions_is_never_the_one_to_rewrite() -> None:
    """It was the one wrong most, there was nothing to rewrite, and the reflection LM was said to write rubbish."""
    writer = ScriptedLM(lambda fields: {"new_instruction": "Do better."})
    program = RAISF(use_relevance=False, use_decomposition=False)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "wrong"}))
    program.know.lm = connect("pocket-tiny")
    of = [dspy.Example(question=f"item {n} ?", answer="a", known=n % 2 == 0).with_inputs("question") for n in range(9)]
    parts = {"trainset": of[:6], "valset": of[6:], "reflection_lm": writer}
    report = compile(program, **parts, strategy="gepa", labels="gold", trials=12, progress=False).compile_report
    assert report["instructions"] == {} and not writer.calls


# After a kill


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["bootstrap", "random", "mipro", "gepa"])
def test_a_stopped_compilation_goes_on_to_the_same_result(loose: Callable[..., RAISF], world, strategy: str) -> None:
    options = {"strategy": strategy, "trials": 8, "candidates": 3, "work": "work"}
    write, program = WRITERS.get(strategy, proposing), loose()
    whole = run(program, world, write, **{**options, "work": "other"})
    after = len(program.know.lm.calls) // 2  # type: ignore[union-attr]
    with pytest.raises(LMError):
        run(loose(dying(loose.answer, after)), world, write, **options)  # type: ignore[attr-defined]
    [journal] = Path("work").glob("*.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"key": "torn by the ki')
    again = run(loose(), world, write, **options)
    assert prompts_of(again) == prompts_of(whole)
    assert again.compile_report["resumed"] and not whole.compile_report["resumed"]
    for name in ("candidates", "chosen"):
        ours, theirs = (
            [{**one, "lm_calls": 0} if isinstance(one, dict) else one for one in made.compile_report[name]]
            for made in (again, whole)
        )
        assert ours == theirs
    assert again.compile_report["lm_calls"] < whole.compile_report["lm_calls"] and not again.compile_report["failed"]
    assert not list(Path("work").glob("*.jsonl")), "the next call begins anew"


def test_another_program_does_not_go_on_with_what_was_found(loose: Callable[..., RAISF], world) -> None:
    from raisf.optimize.identity import identity_of
    from raisf.utils.journal import Journal

    program = loose()
    other = with_instructions(program, {"know": "Say know."})
    assert identity_of(program) == identity_of(loose()) != identity_of(other)

    class Edited(RAISF):
        def _answer(self, run: Any, question: str) -> Any:
            return super()._answer(run, question.strip())

    first = identity_of(Edited(program.retriever))

    class Edited(RAISF):  # type: ignore[no-redef]
        def _answer(self, run: Any, question: str) -> Any:
            return super()._answer(run, question.upper())

    assert first != identity_of(Edited(program.retriever))
    with Journal.alone("work", "prompts", "this") as journal:
        journal.add("key", [1])
    with Journal.alone("work", "prompts", "this") as same, Journal.alone("work", "prompts", "that") as other:
        assert same.once("key", lambda: [2]) == [1]
        assert other.get("key") is None


@pytest.mark.parametrize("optimizer", [raisf.MIPRO, raisf.GEPA])
def test_instructions_of_another_reflection_lm_are_not_gone_on_with(
    loose: Callable[..., RAISF], world, optimizer: Any
) -> None:
    """Four of its settings told it from others: who raised its reasoning went on with the old one's instructions."""
    settings = [
        optimizer(reflection_lm=dspy.LM("openai/x", **more))._settings(loose(), world.train, world.dev)
        for more in ({}, {}, {"reasoning_effort": "high"})
    ]
    assert settings[0] == settings[1] != settings[2]


@pytest.mark.slow
@pytest.mark.skipif(not (pocket.path() / "model.safetensors").is_file(), reason="the pocket Llama is not trained yet")
@pytest.mark.parametrize(("strategy", "adapter"), [("mipro", "pocket"), ("gepa", "compact")])
def test_the_pocket_llamas_prompts_are_searched(world, strategy: str, adapter: str, tmp_path: Path) -> None:
    program = RAISF(BM25.load(world.index), k=3, max_depth=1)
    program.set_lm(connect("pocket", adapter=adapter))
    compiled = run(program, world, WRITERS[strategy], strategy=strategy, trials=3, candidates=2)
    report = compiled.compile_report
    scores = [one["score"]["value"] for one in report["candidates"]]
    assert len(scores) > 1 and max(scores) == scores[[c["name"] for c in report["candidates"]].index(report["chosen"])]
    if strategy == "mipro":
        assert set(report["proposed"].values()) == {0}, "its own format has no place for instructions"
    save(compiled, tmp_path / "artifact")
    assert prompts_of(load(tmp_path / "artifact")) == prompts_of(compiled)
    assert load(tmp_path / "artifact")(question=world.test[0].question).answer


def test_of_equal_candidates_the_earliest_is_chosen_and_all_are_held_against_the_first(learner, tmp_path) -> None:
    with progress_bar(False) as bar:
        selection = Selection(sets()["valset"], answer_exact_match, Journal(tmp_path / "j"), lambda: 0, 1, bar)
        for name in ("student", "rewritten", "one", "another"):
            shown = name in ("one", "another")
            learner.answer_directly.demos = [{"question": name, "answer": "x"}] if shown else []
            if name == "rewritten":
                learner.answer_directly.signature = learner.answer_directly.signature.with_instructions("Answer.")
            selection.score(name, learner.deepcopy())
            assert selection.chosen == ("one" if shown else "student")
    assert [one["difference"]["value"] for one in selection.tried] == [0, 0, 1, 1]
