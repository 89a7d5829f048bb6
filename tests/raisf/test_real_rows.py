"""The rows of `raisf experiment real`: what is tested against what, what each borrows, and whose judges are asked."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import raisf
from raisf.experiments.learning import lend
from raisf.experiments.opening import LMChoice
from raisf.experiments.real import RealComparison, RealWorkspace
from raisf.experiments.real_rows import AGAINST, ANSWERERS, BUDGET, JUDGING, ROWS, RowChoice
from raisf.experiments.settings import THRESHOLDS

BORN = [{"question": "Where was Ada born?", "answer": "Ulm"}, {"question": "Where was Bo born?", "answer": "Bonn"}]
LEARNT = "the program was compiled on 3 of the 9 questions"


def _compiled(folder: Path, lm: str) -> Path:
    """What was compiled elsewhere, with thresholds of its own; its own LM stands for trained weights."""
    program = raisf.RAISF(relevance_threshold=0.25, know_threshold=0.8, decomposition="chains", max_depth=5)
    program.set_lm(raisf.connect(lm))
    raisf.save(program, folder)
    return folder


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return _compiled(tmp_path / "artifact", "pocket-tiny")


@pytest.fixture
def space(data: Callable[..., Path], tmp_path: Path, artifact: Path) -> RealWorkspace:
    folder = data("hotpotqa", test=BORN)
    given = {"weights-all": artifact, "mine": artifact}
    return RealWorkspace(tmp_path / "out", folder, given=given, lm=LMChoice("pocket"), engine="bm25")


def test_the_most_trained_row_that_is_there_is_what_the_others_are_tested_against(records: Any) -> None:
    assert AGAINST == ("weights-all", "weights-judges", "prompts-random", "prompts-labeled", "zero-shot")
    spaces: Any = {"hp": SimpleNamespace(measure="exact match", seen={repr(ROWS["rag"]): [LEARNT]})}
    labels = [label for label in ROWS if label in {"rag", *AGAINST}]
    answers = {
        label: {f"q{n}": records.record(n, n < of) for n in range(9)} for of, label in enumerate(labels, start=1)
    }
    for against in (*AGAINST, None):
        comparison = RealComparison(spaces, RowChoice())
        comparison._tell("hp", dict(answers), {})
        (overview, *_), tables = comparison.sections, {one.title: one for one in comparison.sections}
        assert f"Not held out: hp: rag ({LEARNT})." in overview.text
        pairs = [str(row[0]) for row in tables["hp: differences in exact match"].rows] if against else []
        assert pairs == [f"{against} - {label}" for label in answers if label != against]
        answers.pop(against or "rag")
        if set(answers) == {"rag"}:
            break


def test_a_row_with_another_judge_is_all_else_of_the_trained_one_and_its_thresholds_are_fitted_last() -> None:
    others = {label: row for label, row in ROWS.items() if row.then}
    left_out = {"know-truth": {"know"}, "prompts-judges": {*JUDGING}, "stepwise": {"decompose"}}
    for label, row in others.items():
        assert {*JUDGING, *ANSWERERS} - {*row.lent} == left_out.get(label, set()) and row.lender == "weights-all"
        assert row.then[-1] == THRESHOLDS and row.judged and row.options.items() >= BUDGET.items()
    assert len(others) == 9 and [how for how, _ in others["probes"].then] == ["probe", "thresholds"]
    assert ROWS["rag-reader"].learns, "its reader has learnt, and no test question may be among what it learnt from"


def test_judges_are_of_their_own_artifact_where_one_is_given_and_else_of_the_whole(
    space: RealWorkspace, data: Callable[..., Path], tmp_path: Path, artifact: Path
) -> None:
    assert space.learning.given["weights"] == artifact
    given = {"weights-all": artifact, "weights-judges": tmp_path}
    both = RealWorkspace(tmp_path / "other", data("nq", test=BORN), given=given, lm=LMChoice("pocket"))
    assert both.learning.given == {"weights": tmp_path, "weights-all": artifact}


def test_what_was_fitted_for_the_judge_that_is_replaced_is_not_kept_and_all_else_is(space: RealWorkspace) -> None:
    options = space.learning._compiled_with(ROWS["know-confidence"])
    assert options["relevance_threshold"] == 0.25 and "know_threshold" not in options
    assert options["know"] == "confidence" and options["decomposition"] == "chains"
    assert options["max_depth"] == BUDGET["max_depth"], "the row's own"
    assert space.learning._compiled_with(ROWS["sufficiency"])["know_threshold"] == 0.8


def test_a_row_that_borrows_is_made_anew_where_the_lender_is_another(space: RealWorkspace, tmp_path: Path) -> None:
    before = space.learning.path_of(ROWS["outcome"])
    space.learning.given = {"weights-all": _compiled(tmp_path / "other", "pocket")}
    assert space.learning.path_of(ROWS["outcome"]) != before


def test_judges_alone_are_asked_of_rows_that_have_them_about_the_first_questions(
    space: RealWorkspace, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("raisf.experiments.real.JUDGED_QUESTIONS", 1)
    monkeypatch.setattr("raisf.experiments.real.judge_all", lambda *told, **_: asked.append(told) or {})
    rows = RowChoice(programs=(("weights-all", str(artifact)), ("mine", str(artifact)))).rows()
    rows = {label: rows[label] for label in ("rag", "zero-shot", "no-know", "mine")}
    assert rows["mine"].options == BUDGET
    space.judged(rows, only_before=False)
    space.judged(rows, only_before=True)
    assert [list(programs) for programs, *_ in asked] == [["zero-shot", "mine"], []]
    assert [[one.question for one in examples] for _, examples, _ in asked] == [[BORN[0]["question"]]] * 2


def test_a_reader_is_lent_with_its_form_and_with_what_it_has_learnt_from() -> None:
    lender, borrower, judged = raisf.RAISF(evidence=False), raisf.RAG(), raisf.RAISF()
    lender.learnt_from = ["a print"]
    lend(borrower, lender, ("answer_from",))
    assert borrower.answer_from is lender.answer_from and not borrower.evidence
    lend(judged, lender, ("know",))
    assert judged.know is lender.know and judged.evidence and judged.answer_from is not lender.answer_from
    assert borrower.learnt_from == judged.learnt_from == ["a print"]


def test_what_a_row_has_learnt_further_is_not_overwritten_by_what_it_began_with(space: RealWorkspace) -> None:
    made = raisf.RAISF(know_threshold=0.6, relevance_threshold=0.7)
    made.set_lm(raisf.connect("pocket"))
    raisf.save(made, space.learning.path_of(ROWS["outcome"]))
    program = space.open(ROWS["outcome"])
    assert (program.know_threshold, program.relevance_threshold, program.max_calls) == (0.6, 0.7, BUDGET["max_calls"])
    assert not any("pocket-tiny" in predictor.lm.model for _, predictor in program.named_predictors())
