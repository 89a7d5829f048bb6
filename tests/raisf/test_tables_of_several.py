"""The papers' tables of several programs, kinds or passages: which are compared, and what counts for which."""

from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from raisf.experiments import blendfilter_tables, tables
from raisf.experiments import published_results as published
from raisf.utils.errors import InputError, RaisfError


def _workspace(**more: Any) -> Any:
    return SimpleNamespace(**{"name": "nq", "test": [None] * 40, "measure": "exact match", "left_out": {}, **more})


def _runs(records: Any, **right: int) -> dict[str, dict[str, Any]]:
    return {label: {f"q{n}": records.record(n, n < count) for n in range(40)} for label, count in right.items()}


def test_ra_isf_with_weights_is_tested_against_each_other_row_and_no_others_are(records: Any) -> None:
    """More pairs would make Holm's correction of these larger."""
    answers = _runs(records, **{"rag": 10, "ra-isf, prompts": 20, "ra-isf, weights": 30})
    _, tested, *_ = tables.main(_workspace(), answers)
    assert tested.title == "Differences in exact match"
    assert [row[0] for row in tested.rows] == ["ra-isf, weights - rag", "ra-isf, weights - ra-isf, prompts"]
    answers = _runs(records, **{"without know": 10, "without relevance": 20, "RA-ISF": 30})
    left_out = {label: "the endpoint is down" for label in published.TABLE_2 if label not in answers}
    assert left_out, "one row's failure costs no other row"
    _, tested = tables.ablations(_workspace(left_out=left_out), answers)
    assert tested.title == "Differences in exact match"
    assert [row[0] for row in tested.rows] == ["RA-ISF - without know", "RA-ISF - without relevance"]


def test_table4_means_over_the_answered_questions_of_each_kind(records: Any) -> None:
    kinds, searches = ("bridge", "yesno"), (1, 3)
    of = {f"q{n}": records.record(n, True, kind=kinds[n], cost={"retrievals": searches[n]}) for n in range(2)}
    of["q2"] = records.record(2, False, kind="bridge", trace=None, cost={}, error="LMError: down")
    (section,) = tables.effort(_workspace(), {"ours": of})
    means = {row[0]: (row[1], row[-1]) for row in section.rows}
    assert means["ours"] == (2, 2) and means["ours: bridge"] == (1, 1) and means["ours: yesno"] == (3, 1)
    (section,) = tables.effort(_workspace(), {"ours": {"q0": of["q0"]}})
    assert [row[0] for row in section.rows if "ours" in str(row[0])] == ["ours"], "its one kind is all of it"


def test_what_a_filter_threw_out_or_did_not_judge_was_not_read(records: Any) -> None:
    """Of some judged passages, those that are relevant; their precision would else be a third."""
    passages = [records.passage(number, verdict) for number, verdict in ((1, "relevant"), (2, "irrelevant"), (3, None))]
    root = records.node("Who?", "x", passages=passages)
    workspace = _workspace(test=[dspy.Example(id="q0", gold_pids=["p1"], gold_titles=[])])
    (section,) = blendfilter_tables.kept(workspace, {"kept": {"q0": records.record(0, True, trace={"root": root})}})
    row: list[Any] = section.rows[0]
    assert [score.value for score in row[1:4]] == [1.0, 1.0, 1.0]


def test_a_retriever_that_is_not_the_papers_is_named_and_the_papers_own_is_not(records: Any) -> None:
    made, answers = tables.table({"rag": {"nq": 41.2}}, whose="Llama", engine="colbert"), _runs(records, rag=10)
    told = {}
    for searched in ("colbert", "bm25", ""):
        (section,) = made(_workspace(indexes=SimpleNamespace(searched=searched)), answers)
        told[searched] = section.text
    assert "another retriever" not in told["colbert"]
    assert "Ours search with another retriever, bm25." in told["bm25"]
    assert "Ours search with another retriever." in told[""]


def test_a_curve_goes_up_its_numbers_in_whatever_order_they_were_asked(records: Any) -> None:
    answers = _runs(records, **{"rag, k 10": 30, "rag, k 3": 20, "rag, k 1": 10, "direct": 5})
    (section,) = tables.sweep("k")(_workspace(), answers)
    assert section.columns == ["exact match", "k 1", "k 3", "k 10"]
    rows: Any = section.rows
    assert [[row[0], *(cell.value for cell in row[1:])] for row in rows] == [
        ["rag", 0.25, 0.5, 0.75],
        ["direct", 0.125, 0.125, 0.125],
    ]


def test_ablations_of_which_none_of_ra_isf_could_be_run_say_why(records: Any) -> None:
    with pytest.raises(InputError, match="nothing of RA-ISF can be run: RA-ISF: the endpoint is down"):
        tables.ablations(_workspace(left_out={"RA-ISF": "the endpoint is down"}), _runs(records, rag=10))


def test_judges_that_cannot_be_asked_are_told_of_and_a_fault_that_nobody_told_is_raised() -> None:
    def judge(settings: Any) -> Any:
        if settings:
            workspace.left_out["rag"] = "the endpoint is down"
        raise RaisfError("no judge answered")

    workspace = _workspace(left_out={"direct": "refused"}, judge=judge)
    assert tables.judged_beside(workspace, {"rag": SimpleNamespace()}) == {}  # type: ignore[dict-item]
    assert workspace.left_out == {"direct": "refused", "rag: its judges alone": "the endpoint is down"}
    with pytest.raises(RaisfError, match="no judge answered"):
        tables.judged_beside(workspace, {})
