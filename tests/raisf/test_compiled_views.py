"""What `raisf compile` and `raisf calibrate` print: if these failed, a figure would stand under another's heading."""

import io
from typing import Any

import pytest
from rich.console import Console, Group, RenderableType
from rich.table import Table

from raisf.reports.compiled import (
    calibration_view,
    candidates_view,
    confidence_view,
    judge_rows_view,
    left_out_lines,
    outcomes_view,
    probe_table,
    teacher_section,
    training_table,
)
from raisf.reports.sections import shown


def printed(*views: RenderableType) -> str:
    file = io.StringIO()
    Console(width=200, file=file).print(*views)
    return " ".join(file.getvalue().split())


def rows_of(*views: RenderableType) -> dict[str, dict[str, str]]:
    """The rows of all tables by their first cell: what stands under each other heading."""
    found = {}
    for view in views:
        if isinstance(view, Group):
            found |= rows_of(*view.renderables)
        elif isinstance(view, Table):
            heads = [str(column.header) for column in view.columns]
            for cells in zip(*(map(str, column.cells) for column in view.columns), strict=True):
                found[cells[0]] = dict(zip(heads[1:], cells[1:], strict=True))
    return found


def score(value: float, low: float = 0.1, high: float = 0.9, n: int = 20) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": n}


def test_the_weights_that_were_kept_are_those_of_the_best_epoch() -> None:
    losses = ((0.9, 0.1), (0.2, 0.8), (0.4, 0.7))
    curve = [{"loss": loss, "exact": exact} for loss, exact in losses]
    made = {"rows": {"train": {"know": 9, "unknown": 4}}, "curve": curve, "best_epoch": 1, "tokens_per_second": 1234}
    report = {"trained": "LoRA", "predictors": {"know": {**made, "too_long": 3, "dropped": 0}}, "missing": {"x": "why"}}
    table = training_table(report)
    found = rows_of(table)
    assert found["know"] == {
        "rows": "9 know, 4 unknown",
        "loss": "0.900 → 0.200",
        "exact": "10.0% → 80.0%",
        "epoch": "1/2",
        "tokens/s": "1,234",
    }
    assert found["x"]["rows"] == "left to the base: why" and "on the dev split, before → after" in printed(table)
    (line,) = left_out_lines(report)
    assert str(line).startswith("know: ") and str(line).endswith("longer than the base's context, and left out: 3")


@pytest.mark.parametrize(
    ("held_out", "told"),
    [
        ([], "log loss on the dev split, by which"),
        (["know"], "log loss on the dev split (of know on "),
        (["know", "relevant"], "% of the training questions, as no collected row is of a dev question, by which"),
    ],
)
def test_a_probe_is_told_with_its_interval_and_with_what_it_was_validated_on(held_out: list[str], told: str) -> None:
    measured = {"auroc": 0.81, "log_loss": 0.4567, "n": 20}
    made = {"base": "pocket", "rows": {"train": {"know": 9}}, "layer": 6, "C": 0.01, "seconds": 1.26}
    report = {
        "predictors": {
            "know": {**made, "validation": {**measured, "low": 0.7, "high": 0.9}},
            "relevant": {**made, "validation": measured},
        },
        "missing": {"decompose": "it gives no label"},
        "judge_rows": {"held_out": held_out},
    }
    table = probe_table(report)
    found = rows_of(table)
    chosen = {"layer": "6", "C": "0.01", "AUROC": "81.0", "log loss": "0.457", "n": "20", "seconds": "1.3"}
    assert found["relevant"] == {"rows": "9 know", **chosen}
    assert found["know"] == {"rows": "9 know", **chosen, "AUROC": "81.0 [70.0, 90.0]"}
    assert found["decompose"]["rows"] == "keeps its LM: it gives no label" and told in printed(table)


def test_candidates_are_held_against_the_first_and_what_failed_is_told() -> None:
    candidates = [
        {"name": "bare", "score": score(0.4), "difference": score(0.0, 0.0, 0.0)},
        {"name": "random 1", "score": score(0.5), "difference": score(0.1, -0.05, 0.25)},
    ]
    report = {"candidates": candidates, "chosen": "random 1", "metric": "exact match", "instructions": {"know": "Say."}}
    report |= {"strategy": "random", "failed": 2, "valset": 20, "failed_runs": 3}
    view = candidates_view(report)
    measure, against = "exact match on the dev split", "against bare"
    assert rows_of(view) == {
        "bare": {measure: "40.0 [10.0, 90.0] n=20", against: ""},
        "random 1": {measure: "50.0 [10.0, 90.0] n=20", against: "+10.0 [-5.0, +25.0]"},
    }
    told = printed(view)
    assert "selected: random 1" in told and "know: Say." in told
    assert "2 of 20 dev questions failed" in told and "3 runs of training questions failed" in told


def test_verdicts_that_were_tried_are_told_with_how_many_were_taken() -> None:
    agreement = {"agree": 0.8, "low": 0.6, "high": 0.9, "n": 20, "kappa": None}
    know = {"rows": {"know": 5, "unknown": 7}, "taken": {"know": 3}, "advantage": 0.25, "decided": 8}
    report = {"questions": 20, "lm_calls": 1234, "judges": {"know": {**know, "agreement": agreement}}}
    view = outcomes_view({**report, "failed": 1, "unreadable": 2})
    assert rows_of(view)["know"] == {
        "better verdict": "5 know, 7 unknown",
        "taken": "3 know",
        "advantage": "0.25",
        "decided by the answer": "8",
        "agrees with gold": "80.0% [60.0, 90.0], n = 20",
        "kappa": "-",
    }
    told = printed(view)
    assert "1,234 LM calls" in told and "1 questions failed" in told and "2 tries ended without" in told


def test_a_calibration_says_what_was_moved_kept_refused_and_not_measured() -> None:
    scores = {
        when: {"scores": {"accuracy": score(accuracy), "ece": score(ece)}}
        for when, accuracy, ece in (("before", 0.5, 0.4), ("after", 0.6, 0.3))
    }
    judges = {
        "know": {
            "threshold": {"before": 0.5, "after": 0.25},
            **scores,
            "unreadable": 3,
            "unlabelled": "2 not labelled",
        },
        "relevance": {"threshold": {"before": 0.5, "after": 0.5}, **scores, "refused": 0.9},
        "sufficiency": {"skipped": "it was never asked"},
        "utility": {"skipped": "too few", "threshold": {"before": 0.5, "after": 0.125}},
    }
    answer = {"before": score(0.4), "after": score(0.45), "p": 0.031, "lm_calls": {"before": 5.0, "after": 4.0}}
    report = {"valset": 20, "judges": judges, "answer": answer, "metric": "exact match", "failed": 1}
    told = printed(calibration_view({**report, "aim": "answer"}))
    assert "of the answers, after is held out; of the verdicts, it is on the questions that chose" in told
    assert "threshold ┃ accuracy before ┃ after ┃ ECE before ┃ after" in told
    cells = "│ 50.0 [10.0, 90.0] n=20 │ 60.0 [10.0, 90.0] n=20 │ 40.0 [10.0, 90.0] n=20 │ 30.0 [10.0, 90.0] n=20"
    assert f"know │ 0.5 to 0.25 {cells}" in told and f"relevance │ 0.5, kept {cells}" in told
    assert "relevance: 0.9 fits the verdicts better and costs answers: not taken" in told
    assert "know: 3 unreadable verdicts are left out" in told and "know: 2 not labelled" in told
    assert "sufficiency was left alone: it was never asked" in told
    assert "utility has the threshold 0.125 instead of 0.5, and was not measured alone: too few" in told
    assert "answers 40.0 [10.0, 90.0] n=20, after 45.0 [10.0, 90.0] n=20, p=0.031" in told
    assert "LM calls per question 5.0, after 4.0" in told and "1 questions failed twice" in told
    assert "of the verdicts, after is held out; of the answers," in printed(calibration_view({**report, "aim": "f1"}))


def test_a_confidence_is_told_before_and_after_its_scaling() -> None:
    report = {"ece": {"before": score(0.3), "after": score(0.1)}, "answers": 18, "valset": 20}
    told = printed(confidence_view({**report, "slope": 0.5, "offset": 0.25}))
    assert "on 18 of 20 answers" in told and "slope 0.5, offset +0.25" in told
    assert "ECE 30.0 [10.0, 90.0] n=20, after (held out) 10.0 [10.0, 90.0] n=20" in told


def test_a_teacher_is_told_with_what_it_cost_and_how_far_it_agrees_with_gold() -> None:
    teacher = {"lm": "openai/x", "calls": 1200, "unmetered_calls": 7, "prompt_tokens": 5000, "completion_tokens": 60}
    agreement = {"know": {"agree": 0.8, "low": 0.6, "high": 0.9, "n": 20, "kappa": 0.5}}
    collected = {
        "teacher": {**teacher, "seconds": 9},
        "rows": {"know": {"know": 5, "unknown": 7}, "relevance": {"relevant": 4}},
        "agreement": agreement,
    }
    given = {"splits": {"train": collected}, "folders": ["a", "b"]}
    views = judge_rows_view({"judge_rows": given})
    told = printed(*views)
    assert "openai/x, 1,200 calls (7 told no tokens), 5,000 tokens read, 60 written, 9 s" in told
    assert "the judges' rows: a, b" in told
    agreed, unknown = (
        {"agrees with gold": "80.0% [60.0, 90.0], n = 20", "kappa": "0.50"},
        {"agrees with gold": "-", "kappa": "-"},
    )
    assert rows_of(*views) == {
        "know": {"rows": "12", "of them": "5 know, 7 unknown", **agreed},
        "relevance": {"rows": "4", "of them": "4 relevant", **unknown},
    }
    section = teacher_section({"ours": given})
    assert section.columns == ["rows", "collected", "agrees with gold", "kappa", "n"]
    assert [[shown(cell) for cell in row] for row in section.rows] == [
        ["ours, train: know", "12", "80.0 [60.0, 90.0]", "0.50", "20"],
        ["ours, train: relevance", "4", "-", "-", "-"],
    ]
