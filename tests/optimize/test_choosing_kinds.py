"""If these failed, calibrating would choose a judge that answers less, or give it another's threshold."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raisf.evaluation.identity import describe
from raisf.optimize.artifact import load, save
from raisf.optimize.judges.judgements import Judged
from raisf.optimize.optimizers.fold_choice import fit_cut
from raisf.optimize.optimizers.kinds_of_know import KINDS
from raisf.optimize.optimizers.threshold_search import Answers, Thresholds, best_answers
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from tests.optimize.test_calibrate import calibrated, of_its_own, scoring, shown, timid
from tests.shelf import Shelf


def drafting(fields: dict[str, Any]) -> dict[str, Any]:
    """Of the question it says nothing to go by, and shown its draft it knows whether that is true.

    What it knows it cannot read, and the other way round.
    """
    said = timid(fields)
    if "passages" in fields and int(fields["question"].split()[1]) % 2 == 0:
        return {"evidence": "e", "answer": "wrong"}
    if "answer" in fields:
        return {"verdict": "know", "probability": "0.9" if "right" in fields["answer"] else "0.2"}
    return said if "passage" in fields or "passages" in fields else {**said, "probability": "0.1"}


def test_the_kind_of_self_knowledge_that_answers_best_is_kept_with_its_thresholds(tmp_path: Path) -> None:
    program = RAISF(Shelf(of_its_own), k=2)
    program.set_lm(lm := scoring(drafting))
    made, report = calibrated(program, n=12, know=KINDS)
    found = report["know"]
    assert (found["before"], found["chosen"]) == ("verbal", "truth") and made.self_knowledge == "truth"
    assert list(found["left_out"]) == ["confidence"] and "log-probabilities" in found["left_out"]["confidence"]
    scores = {kind: one["score"]["value"] for kind, one in found["tried"].items()}
    assert scores["truth"] == max(scores.values()) > scores["verbal"]
    assert report["answer"]["after"]["value"] == scores["truth"]
    assert found["tried"]["truth"]["thresholds"]["know"] == made.know_threshold
    assert "truth is kept" in shown(report) and "left out" in shown(report)
    assert program.self_knowledge == "verbal" and "answer" not in program.know.signature.input_fields
    save(made, tmp_path / "a")
    loaded: Any = load(tmp_path / "a", lm=lm, retriever=Shelf(of_its_own))
    assert describe(loaded) | {"compile_report": None} == describe(made) | {"compile_report": None}
    for number in (50, 51):
        again, once = (one(question=f"question {number} ?").trace.root for one in (loaded, made))
        assert (again.answer, again.know) == (once.answer, once.know) and again.answer == f"right {number}"


def test_of_kinds_that_answer_alike_the_one_with_fewer_calls_is_kept() -> None:
    program = RAISF(Shelf(of_its_own), k=2, use_relevance=False, use_decomposition=False)
    program.set_lm(scoring(timid))  # its answers from memory are the same, whatever it is asked about them
    made, report = calibrated(program, n=16, know=("consistency", "verbal", "truth"))
    found = report["know"]["tried"]
    assert len({one["score"]["value"] for one in found.values()}) == 1
    assert made.self_knowledge == min(found, key=lambda kind: found[kind]["lm_calls"])


def test_kinds_come_to_the_same_in_whatever_order_they_are_tried() -> None:
    def compiled(fields: dict[str, Any]) -> dict[str, Any]:
        return {"verdict": "know", "probability": "0.1" if int(fields["question"].split()[1]) % 2 else "0.9"}

    program = RAISF(Shelf(of_its_own), k=2)
    program.set_lm(scoring(drafting))
    program.know.lm = scoring(compiled)  # which is still there after a kind that has a judge of its own
    orders: Any = ("verbal", "truth"), ("truth", "verbal")
    one, other = (calibrated(program, n=6, aim="accuracy", know=kinds)[1] for kinds in orders)
    assert one["know"]["tried"] == other["know"]["tried"]


def test_another_kind_is_not_tried_at_the_threshold_of_the_programs_own() -> None:
    program = RAISF(Shelf(of_its_own), k=2, know_threshold=0.9)
    program.set_lm(scoring(drafting))
    tried = calibrated(program, n=4, know=("verbal", "truth"))[1]["know"]["tried"]
    assert {kind: one["thresholds"]["know"] for kind, one in tried.items()} == {"verbal": 0.9, "truth": 0.5}


def test_the_answers_that_are_told_are_under_thresholds_chosen_without_them() -> None:
    class Luck:
        """Other thresholds are all as good, and on each question by chance."""

        def __init__(self) -> None:
            self.seen = {"know": {n / 100 for n in range(60, 100)}, "relevance": set(), "sufficiency": set()}

        def expect(self, combinations: int) -> None:
            pass

        def at(self, thresholds: Thresholds) -> Answers:
            right = np.random.default_rng(int(1000 * thresholds.know)).random(40) < 0.7
            return Answers(right * float(thresholds.know != 0.5), np.ones(40), np.ones(40))

    trial: Any = Luck()
    chosen, told = best_answers(trial, Thresholds(0.5, 0.5, 0.5), {}, (0.0, 0.0), range(40))
    assert 0 < told.right.mean() < trial.at(chosen).right.mean()


def test_balanced_both_classes_count_as_much_however_rare_one_is() -> None:
    rows = [Judged(f"{n}?", None, gold=n < 40, said=False, probability=0.3 if n < 99 else 0.1) for n in range(200)]
    assert 0.1 < fit_cut(rows, 0.5, balanced=True)[0] <= 0.3
    assert fit_cut(rows, 0.5, balanced=False)[0] == 0.5, "to say no to all is right four times in five"


@pytest.mark.slow
def test_before_is_the_program_that_was_given_also_where_its_own_kind_is_not_tried() -> None:
    program = RAISF(Shelf(of_its_own), k=2)
    program.set_lm(scoring(drafting))
    _, alone = calibrated(program, n=8, know=("truth",))
    _, beside = calibrated(program, n=8, know=("verbal", "truth"))
    assert alone["answer"]["before"] == beside["answer"]["before"]
    know = [one["judges"]["know"] for one in (alone, beside)]
    assert know[0]["before"] == know[1]["before"] != know[0]["after"], "of the kind that it had, not of the one chosen"


def test_kinds_that_cannot_be_tried_are_told_at_once() -> None:
    program = RAISF(Shelf(of_its_own), k=2)
    program.set_lm(lm := scoring(timid))
    with pytest.raises(InputError, match=r"unknown kind of self-knowledge 'luck': choose verbal, confidence"):
        calibrated(program, know=("luck",))
    with pytest.raises(InputError, match=r"no kind of self-knowledge can be tried: .*log-probabilities"):
        calibrated(program, know=("confidence",))
    program.use_know = False
    lm.calls.clear()
    with pytest.raises(InputError, match="--no-know"):
        calibrated(program, know=KINDS)
    assert lm.calls == []


def patchy(fields: dict[str, Any]) -> dict[str, Any]:
    """Finds all passages relevant; of those together it says a little more surely when the gold one is among them."""
    number = int(fields["question"].split()[1])
    if "passages" in fields:
        found = "gold" in str(fields["passages"])
        return {
            "verdict": "insufficient",
            "probability": str((0.3 if found else 0.1) + number % 10 / 100),
            "evidence": "e",
            "answer": f"right {number}" if found else "wrong",
        }
    return {"verdict": "relevant", "probability": "0.8", "answer": "wrong", "sub_questions": []}


@pytest.mark.slow
@pytest.mark.parametrize("aim", ["answer", "accuracy"])
def test_the_judge_of_sufficiency_has_a_threshold_of_its_own(tmp_path: Path, aim: str) -> None:
    program = RAISF(Shelf(of_its_own), k=2, use_know=False, sufficiency=True)
    program.set_lm(lm := scoring(patchy))
    made, report = calibrated(program, n=20, aim=aim)
    assert 0.1 < made.sufficiency_threshold < 0.31 and report["answer"]["after"]["value"] == 1
    found = report["judges"]["sufficiency"]
    assert found["threshold"] == {"before": 0.5, "after": made.sufficiency_threshold}
    assert found["before"]["scores"]["accuracy"]["n"] == 40, "with the gold passage, and with another"
    assert made(question="question 50 ?").answer == "right 50" != program(question="question 50 ?").answer
    save(made, tmp_path / "a")
    loaded: Any = load(tmp_path / "a", lm=lm, retriever=Shelf(of_its_own))
    assert loaded.sufficiency_threshold == made.sufficiency_threshold


class Scored(Shelf):
    """Its own passage has a score a little above the other's, and one below 0 is no better than none."""

    def __call__(self, query: str, k: int) -> list[Passage]:
        found = super().__call__(query, k)
        number = int(query.split()[1])
        return [replace(one, score=(3.0 if one.pid[0] == "g" else -1.0) + number % 10 / 100) for one in found]


def test_the_retrievers_score_tells_passages_apart_for_no_call() -> None:
    program = RAISF(Scored(of_its_own), k=2, use_know=False, relevance="score", relevance_threshold=0.9)
    program.set_lm(lm := scoring(timid))
    assert program(question="question 50 ?").answer == "unknown", "nothing scores so high"
    made, report = calibrated(program, n=20)
    assert 0 < made.relevance_threshold <= 0.75 and report["answer"]["after"]["value"] == 1
    assert "no judge is asked" in report["judges"]["relevance"]["skipped"]
    lm.calls.clear()
    root = made(question="question 50 ?").trace.root
    assert root.answer == "right 50" and len(lm.calls) == 1, "the reader alone is asked"
    assert [one.judgement.probability for one in root.passages] == [0.75, 0]
