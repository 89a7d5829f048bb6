"""`raisf experiment data-efficiency`: how many rows each way of compiling needs, in a table, a figure and a page."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from raisf import cli
from raisf.data.questions import load_questions
from raisf.evaluation.intervals import proportion
from raisf.experiments import every_judge
from raisf.experiments.bars import WorkspaceBars
from raisf.experiments.comparing import judge_all
from raisf.experiments.data_efficiency import EM, NONE, SIZES, WAYS, _about, _learnt, _lines, settings, sizes_of_ways
from raisf.experiments.few_rows import questions_for
from raisf.experiments.opening import LMChoice
from raisf.experiments.settings import Setting
from raisf.experiments.workspace import Workspace
from raisf.reports.markdown import MARK
from raisf.utils.errors import InputError, LMError
from raisf.utils.files import read_json


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("data") / "world"
    argv = ["world", "--entities", "500", "--train", "40", "--dev", "8", "--test", "4", "--out", str(folder)]
    assert cli.main(argv) == 0
    return folder


def _run(world: Any, out: Any, *more: str) -> int:
    argv = ["experiment", "data-efficiency", "--data", str(world), "--engine", "bm25", "--n", "4", "--out", str(out)]
    return cli.main([*argv, *more])


def _rows(capsys: Any) -> dict[str, dict[str, Any]]:
    answers, judges = json.loads(capsys.readouterr().out)["experiments"]["data-efficiency"]
    assert judges["title"] == "Judges alone" and len(answers["rows"]) == len(judges["rows"])
    return {row["judges"]: {**row, **alone} for row, alone in zip(answers["rows"], judges["rows"], strict=True)}


@pytest.mark.slow
def test_each_way_learns_from_as_many_rows_as_the_table_says_and_once(
    world: Any, tmp_path: Any, capsys: Any, monkeypatch: Any
) -> None:
    out, page = tmp_path / "out", tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text(f"# By hand\n\n{MARK}\n\nold\n")
    asked = ("--sizes", "12,4", "--ways", "prompts,probe=4", "--page", str(page))
    assert _run(world, out, *asked, "--json") == 0
    rows = _rows(capsys)
    assert list(rows) == ["none", "prompts, 4 rows", "prompts, 12 rows", "probe, 4 rows"]
    for label, row in rows.items():
        n = int(label.split()[1]) if label != "none" else None
        assert row["know's rows"] == row["relevance's rows"] == n, label
        assert (row["seconds"] or 0) > 0 or n is None
        assert row["exact match"]["n"] == 4 and row["know AUROC"]["low"] <= row["know AUROC"]["high"]
        assert row["relevance accuracy"]["n"] > row["know accuracy"]["n"] >= 4
    # What decides them is in the artifact, and the questions are the first of one order.
    train = load_questions(world / "train.jsonl")
    assert questions_for(12, train, 0)[:8] == questions_for(4, train, 0) != train[:8]
    (made,) = (out / "made").glob("probe-*")
    assert read_json(made / "manifest.json")["compile"]["trainset"] == 8
    # The page keeps what stands above the mark; its figure lies beside it.
    text = page.read_text("utf-8")
    assert text.startswith("# By hand") and "\nold\n" not in text and "| probe, 4 rows |" in text
    figure = (page.parent / re.findall(r"!\[.*\]\((.*)\)", text)[0]).read_text("utf-8")
    assert figure.count("rows a judge") == 1 and "relevance accuracy" in figure and "background: white" in figure
    # Asked again nothing is compiled nor answered.
    monkeypatch.setattr("raisf.programs.calls.Run.ask", None)
    monkeypatch.setattr("raisf.optimize.optimizers.base.Optimizer.compile", None)
    assert _run(world, out, *asked, "--json") == 0
    assert _rows(capsys) == rows


@pytest.mark.slow
def test_trained_ways_stand_in_the_table_and_tries_are_paid_once(world: Any, tmp_path: Any, capsys: Any) -> None:
    assert _run(world, tmp_path / "out", "--sizes", "4,12", "--ways", "weights=4,outcome", "--json") == 0
    rows = _rows(capsys)
    assert list(rows) == ["none", "weights, 4 rows", "outcome, 4 rows", "outcome, 12 rows"]
    assert all(row["know's rows"] == int(label.split()[1]) for label, row in rows.items() if label != "none")
    reports = [read_json(path)["compile"] for path in (tmp_path / "out/made").glob("outcome-*/manifest.json")]
    small, large = sorted(reports, key=lambda report: report["trainset"])
    assert small["outcomes"]["seconds_before"] == 0 < large["outcomes"]["seconds_before"]
    assert large["outcomes"]["seconds_before"] == pytest.approx(small["outcomes"]["seconds"], abs=0.1)
    assert rows["outcome, 12 rows"]["seconds"] > large["seconds"], "the smaller size's tries are part of the price"


def test_mistakes_are_told_before_anything_is_made(world: Any, tmp_path: Any, capsys: Any) -> None:
    for told, complaint in (
        (("--sizes", "1"), "2 or more"),
        (("--sizes", "a,b"), "whole numbers"),
        (("--ways", "magic"), "no way 'magic'"),
        (("--ways", "probe=x"), "NAME=N"),
        (("--ways", "outcome=3"), "no size is so small"),
        (("--rows", "9"), "--sizes"),
        (("--only", "rag"), "--only is not for data-efficiency"),
    ):
        assert _run(world, tmp_path / "out", *told) == 2
        assert complaint in " ".join(capsys.readouterr().err.split())
    for told in (("--sizes", "5"), ("--ways", "probe"), ("--page", "p.md")):
        assert cli.main(["experiment", "table2", *told, "--out", str(tmp_path / "out")]) == 2
        assert "data-efficiency" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert sizes_of_ways() == dict.fromkeys(WAYS, SIZES)
    with pytest.raises(InputError, match="choose of prompts, probe"):
        sizes_of_ways(ways={"magic": None})


def test_each_size_of_a_way_is_a_setting_and_a_point_and_its_questions_are_the_first_of_the_seeds_order() -> None:
    sizes = sizes_of_ways((4, 12), {"prompts": None, "probe": 4})
    assert sizes == {"prompts": (4, 12), "probe": (4,)}
    workspace: Any = SimpleNamespace(sizes=sizes)
    compiled = {"prompts, 4 rows": ("prompts", 4), "prompts, 12 rows": ("prompts", 12), "probe, 4 rows": ("probe", 4)}
    rows = {label: Setting(way, rows=n) for label, (way, n) in compiled.items()}
    assert settings(workspace) == {NONE: Setting("ra-isf"), **rows}
    scores = {label: {EM: proportion(n, 20)} for n, label in enumerate([NONE, *rows])}
    score = {label: of[EM] for label, of in scores.items()}
    assert _lines(workspace, scores, EM) == {
        NONE: {4: score[NONE], 12: score[NONE]},
        "prompts": {4: score["prompts, 4 rows"], 12: score["prompts, 12 rows"]},
        "probe": {4: score["probe, 4 rows"]},
    }
    train: Any = list(range(40))
    assert len(questions_for(4, train, 1)) == 8 and questions_for(12, train, 1)[:8] == questions_for(4, train, 1)
    assert questions_for(4, train, 0) != questions_for(4, train, 1)


def test_the_seconds_of_compiling_are_with_labels_and_earlier_tries_and_rows_are_those_learnt_from() -> None:
    made = {
        name: {"rows": {"train": {"yes": n, "no": 3}, "dev": {"yes": 9}}} for n, name in enumerate(("know", "relevant"))
    }
    report = {"seconds": 3.0, "judge_rows": {"seconds": 2}, "outcomes": {"seconds_before": 5}, "predictors": made}
    assert _learnt(report) == [3, 4, 10.0]
    assert _learnt({"seconds": 3.0, "rows": {"know": 7, "relevant": 8}}) == [7, 8, 3.0] and _learnt({}) == [None] * 3


def test_the_judgements_that_rows_rest_on_are_told_as_they_are_where_some_could_not_be_read() -> None:
    """The first row's 40 stood for all, beside another's 25."""
    of = {NONE: (40, 200), "prompts, 50 rows": (25, 200)}
    scores = {
        label: {
            "exact match": proportion(5, 20),
            "know accuracy": proportion(20, know),
            "relevance accuracy": proportion(9, n),
        }
        for label, (know, n) in of.items()
    }
    workspace: Any = SimpleNamespace(sizes={"prompts": (50,)}, train=[0] * 200, dev=[0] * 20)
    told = _about(workspace, scores)
    assert "n = 20 questions;" in told and ": 25 to 40 judgements of know, 200 of relevance, those that could" in told


def test_judges_that_could_not_be_asked_are_told_and_cost_no_table(world: Any, tmp_path: Any, monkeypatch: Any) -> None:
    rows = {"a": Setting("ra-isf"), "b": Setting("ra-isf", {"k": 2})}
    monkeypatch.setattr(every_judge, "ROWS", rows)
    workspace = Workspace(tmp_path / "out", world, engine="bm25", n=2, lm=LMChoice("pocket"))
    with WorkspaceBars([rows], 2) as bars:
        answers = workspace.answer(rows, bars)
    failing: list[str] = []

    def asked(programs: Any, *args: Any, **options: Any) -> Any:
        if programs.keys() & set(failing):
            raise LMError("a hiccup")
        return judge_all(programs, *args, **options)

    monkeypatch.setattr("raisf.experiments.workspace.judge_all", asked)
    for label in ("b", "a"):
        failing.append(label)
        workspace.left_out = {"c": "k is 0"}
        answered, judges = every_judge.sections(workspace, answers)
        assert [row[0] for row in answered.rows] == ["a", "b"]
        assert {row[0] for row in judges.rows} == rows.keys() - set(failing)
        assert workspace.left_out == {"c": "k is 0", **{f"{one}: its judges alone": "a hiccup" for one in failing}}
