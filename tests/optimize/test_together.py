"""If these failed, two ways of compiling would not add up, or a worse program would be kept than the one before."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.artifact import load, save
from raisf.optimize.compile import optimizer_named
from raisf.optimize.optimizers.few_shot import Prompting
from raisf.optimize.optimizers.selection import Selection
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, LMError
from tests.scripted import ScriptedLM
from tests.shelf import Shelf

QUICK = Training(epochs=1, rank=2, batch_size=8)


@pytest.fixture
def both(program: RAISF, world: Any, llama: Path, tmp_path: Path) -> Any:
    def make(strategy: str, **options: Any) -> Any:
        given: dict[str, Any] = {"base": LocalLM(f"local/{llama}"), "predictors": ["relevant"], "training": QUICK}
        given |= {"rows": 8, "demos": 2, "work": tmp_path / "work", "progress": False, **options}
        sets: Any = {"trainset": world.train[:20], "valset": world.dev[:4]}
        return raisf.compile(program, how="both", strategy=strategy, **sets, **given)

    return make


def prefers(monkeypatch: pytest.MonkeyPatch, demos: float, weights: float) -> None:
    """Scores a program by whether it has demonstrations, and weights of its own."""

    def values(self: Any, program: Any, examples: Any, show: Any) -> list[float]:
        shown = any(p.demos for p in program.predictors())
        trained = any(getattr(p.lm, "lora", None) for p in program.predictors())
        return [0.5 + demos * shown + weights * trained] * len(examples)

    monkeypatch.setattr(Selection, "values", values)


def test_each_step_goes_on_from_the_one_before_and_the_best_is_kept(
    both: Any, program: RAISF, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefers(monkeypatch, demos=0.1, weights=0.2)
    made = both("p -> w")
    report = made.compile_report
    assert (report["how"], report["strategy"], report["chosen"]) == ("both", "p -> w", "p -> w")
    assert [one["name"] for one in report["candidates"]] == ["as given", "p", "p -> w"]
    assert {one["name"]: one["score"] for one in report["steps"]} == {"p": pytest.approx(0.6), "p -> w": 0.8}
    assert [one["report"]["how"] for one in report["steps"]] == ["prompts", "weights"]
    assert report["lm_calls"] > 0
    assert made.know.demos and made.relevant.lm.lora is not None and made.know.lm is program.know.lm
    assert not program.know.demos and made.retriever is program.retriever
    save(made, tmp_path / "a")
    loaded: Any = load(tmp_path / "a", lm=program.know.lm)
    assert loaded.compile_report == json.loads(json.dumps(report))
    assert loaded.relevant.lm.lora is not None and len(loaded.know.demos) == len(made.know.demos)


def test_a_step_that_makes_it_worse_is_not_kept(both: Any, program: RAISF, monkeypatch: pytest.MonkeyPatch) -> None:
    prefers(monkeypatch, demos=0.1, weights=-0.3)
    made = both("p -> w")
    assert made.compile_report["chosen"] == "p" and made.know.demos and made.relevant.lm is program.relevant.lm
    prefers(monkeypatch, demos=-0.1, weights=-0.3)
    kept = both("w -> p", seed=1)
    assert kept.compile_report["chosen"] == "as given" and not kept.know.demos


def test_weights_then_prompts_then_weights_again(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prefers(monkeypatch, demos=0.1, weights=0.2)
    made = both("w->p->w")
    assert [one["name"] for one in made.compile_report["steps"]] == ["w", "w -> p", "w -> p -> w"]
    again = made.compile_report["steps"][2]["report"]["predictors"]["relevant"]
    first = made.compile_report["steps"][0]["report"]["predictors"]["relevant"]
    beside = made.compile_report["steps"][1]["report"]["candidates"][0]
    assert beside["name"] == "as given", "a program that has weights is no longer zero-shot"
    assert first["data_sha256"] != again["data_sha256"], "the second training sees the demonstrations"


def test_a_killed_compile_goes_on_without_asking_for_prompts_again(
    both: Any, program: RAISF, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(FinetuneRun, "epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            both("p -> w")
    asked = len(program.know.lm.calls)
    prompted: list[Any] = []
    compile = Prompting._compile
    with monkeypatch.context() as patched:
        patched.setattr(Prompting, "_compile", lambda self, task: prompted.append(task) or compile(self, task))
        made = both("p -> w")
    assert made.compile_report["resumed"] and not prompted
    assert made.compile_report["steps"][0]["report"]["strategy"] == "labeled"
    again = len(program.know.lm.calls) - asked
    fresh = both("p -> w", work=tmp_path / "elsewhere")
    assert again < len(program.know.lm.calls) - asked - again, "answers of the steps before are not asked for again"
    ours, theirs = (one.compile_report["candidates"] for one in (made, fresh))
    assert [one["score"] for one in ours] == [one["score"] for one in theirs]


def test_what_a_step_has_asked_for_is_not_asked_again_where_a_later_one_is_stopped(
    tmp_path: Path,
) -> None:
    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        """Knows the even ones, and finds the odd ones in their passages."""
        number = int("".join(filter(str.isdigit, fields["question"])))
        known = {"verdict": "unknown", "answer": f"a{number}" if number % 2 == 0 else "wrong", "sub_questions": []}
        found = number % 2 and "answer" in str(fields.get("passages"))
        read = {"evidence": "none", "answer": f"a{number}" if found else "wrong"}
        return read if "passages" in fields else {"verdict": "relevant"} if "passage" in fields else known

    def some(first: int, last: int, word: str) -> list[dspy.Example]:
        made = [(f"{word} number {n}?", f"a{n}") for n in range(first, last)]
        return [dspy.Example(question=q, answer=gold, gold_pids=[q]).with_inputs("question") for q, gold in made]

    shelf = Shelf(lambda query: [Passage(query, f"the answer to {query}"), Passage(f"{query} 2", "nothing here")])

    program, lm = RAISF(shelf, k=2, max_depth=1), ScriptedLM(answer)
    program.set_lm(lm)

    class Later(raisf.LabeledJudges):
        def _compile(self, task: Any) -> Any:
            if stopped:
                raise KeyboardInterrupt
            return super()._compile(task)

    def asked(work: str) -> int:
        before, outcomes = len(lm.calls), raisf.OutcomeJudges(by="prompts", rows=10)
        together = raisf.Together(strategy="w -> p", w=outcomes, p=Later(), work=tmp_path / work, progress=False)
        together.compile(program, trainset=some(0, 8, "first"), valset=some(20, 24, "second"))
        return len(lm.calls) - before

    stopped = True
    with pytest.raises(KeyboardInterrupt):
        asked("stopped")
    stopped = False
    assert asked("stopped") < asked("fresh") / 2


def test_an_error_in_a_step_is_raised_and_not_logged_away(
    both: Any, program: RAISF, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(self: Any, task: Any) -> Any:
        raise InputError("no demonstrations today")

    monkeypatch.setattr(Prompting, "_compile", breaks)
    with pytest.raises(InputError, match="no demonstrations today"):
        both("p -> w")


def test_an_error_while_what_a_step_made_is_scored_is_raised_too(
    program: RAISF, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Labeled(raisf.LabeledJudges):
        def _compile(self, task: Any) -> Any:
            made.append(super()._compile(task))
            return made[-1]

    def values(self: Any, program: Any, examples: Any, show: Any) -> list[float]:
        if made:
            raise LMError("the endpoint went down")
        return [float(any(one.demos for one in program.predictors()))] * len(examples)

    monkeypatch.setattr(Selection, "values", values)
    with pytest.raises(LMError, match="the endpoint went down"):
        together = raisf.Together(strategy="p", p=Labeled(), progress=False)
        together.compile(program, trainset=world.train[:20], valset=world.dev[:4])


def test_a_teacher_needs_none_but_the_predictors_that_it_teaches(
    program: RAISF, world: Any, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefers(monkeypatch, demos=0.1, weights=0.0)
    teacher = RAG(program.retriever, evidence=True)
    teacher.set_lm(oracle())
    together = raisf.Together(strategy="p", p=raisf.BootstrapJudges(), progress=False)
    made = together.compile(program, trainset=world.train[:20], valset=world.dev[:4], teacher=teacher)
    assert made.answer_from.demos and not made.compose.demos and teacher.answer_from.lm.calls


def test_options_find_their_part_and_what_cannot_be_used_is_told_first(both: Any, program: RAISF) -> None:
    made: Any = optimizer_named("both", "w -> p", prompts="random", candidates=3, rows=12, seed=5, progress=False)
    assert isinstance(made.p, raisf.RandomSearch) and (made.p.candidates, made.p.seed) == (3, 5)
    assert isinstance(made.w, raisf.FinetuneJudges) and (made.w.rows, made.w.seed) == (12, 5)
    mine = optimizer_named("both", w=raisf.OutcomeJudges(rows=10), demos=3)
    assert isinstance(mine.parts["w"], raisf.OutcomeJudges) and mine.parts["p"].demos == 3  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="scripted/lm is elsewhere: give a base"):
        both("p -> w", base=None)
    assert program.know.lm.calls == []


def test_lms_of_dspys_settings_will_do(world: Any, oracle: Any, llama: Path, tmp_path: Path) -> None:
    student = RAISF(raisf.as_retriever(lambda query, k: ["a passage"] * k, "shelf"), k=1)
    lm = oracle()
    with dspy.context(lm=lm):
        made = raisf.Together(
            strategy="p", p=raisf.BootstrapJudges(demos=2), work=tmp_path / "work", progress=False
        ).compile(student, trainset=world.train[:20], valset=world.dev[:3])
    assert made.know.lm is None and made.compile_report["how"] == "both"
