"""The rows of the papers' tables whose programs show demonstrations."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from raisf.experiments import tables
from raisf.experiments.catalog import EXPERIMENTS, Experiment
from raisf.experiments.opening import LMChoice
from raisf.experiments.settings import Setting
from raisf.experiments.workspace import Workspace
from raisf.programs.registry import PROGRAMS
from raisf.reports.sections import Section
from raisf.utils.errors import InputError
from raisf.utils.progress import progress_bar

BORN = [{"question": "Where was Ada born?", "answer": "Ulm"}, {"question": "Where was Bo born?", "answer": ["Bonn"]}]


def test_a_few_shot_row_is_the_plain_one_with_demonstrations(data, tmp_path):
    """ReAct's read one passage a search beside the plain row's five."""
    for name in ("table1", "blendfilter-main"):
        rows = {"ra-isf": Setting("ra-isf"), **EXPERIMENTS[name].settings}
        shot = {label.removesuffix(", few-shot"): one for label, one in rows.items() if one.few_shot}
        assert shot and all(replace(rows[label], few_shot=True) == one for label, one in shot.items())
    setting = EXPERIMENTS["blendfilter-main"].settings["react, few-shot"]
    folder = data("nq", train=BORN[:1], test=BORN[1:])
    learnt: list[Any] = []
    workspace = Workspace(tmp_path / "out", folder, engine="bm25", lm=LMChoice("pocket"))
    workspace.learning._learnt = lambda program, _: learnt.append(program) or program
    with pytest.raises(InputError, match="no demonstrations"):
        workspace.open(setting)
    assert [program.k for program in learnt] == [5], "its demonstrations are of the runs that it is to have"


def test_every_system_has_a_few_shot_row_which_can_be_left_out():
    """RA-ISF's answers had no demonstrations in any row, while those of its baselines had."""
    table1 = EXPERIMENTS["table1"]
    shot = {label for label, setting in table1.settings.items() if setting.few_shot}
    assert shot == {f"{name}, few-shot" for name in PROGRAMS} and len(shot) == 14
    assert not shot & set(table1.rows(None, few_shot=False))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["direct", "rag"])
def test_a_few_shot_row_shows_as_many_demonstrations_as_ra_isfs_prompts_whatever_they_score(make_home, tmp_path, name):
    """Validated, zero-shot won every tie, and its answers were called few-shot."""
    home = make_home(train=30, dev=6, test=4)
    workspace = Workspace(tmp_path / "out", home / "world", index=str(home / "index"))
    program = workspace.open(Setting(name, few_shot=True))
    assert all(1 <= len(predictor.demos) <= 4 for _, predictor in program.named_predictors())
    assert program.compile_report["valset"] == 0


@pytest.mark.slow
def test_ra_isfs_few_shot_row_shows_demonstrations_to_its_judges_and_its_answerers(make_home, tmp_path):
    home = make_home(train=60, dev=6, test=4)
    workspace = Workspace(tmp_path / "out", home / "world", index=str(home / "index"))
    program = workspace.open(EXPERIMENTS["table1"].settings["ra-isf, few-shot"])
    shown = {name: len(predictor.demos) for name, predictor in program.named_predictors()}
    assert all(1 <= n <= 4 for n in shown.values()), shown
    assert program(question=workspace.test[0].question).trace.root


def test_a_few_shot_row_without_a_right_run_is_left_out_with_the_reason(data, tmp_path, monkeypatch):
    """The pocket Llama knows none of these people: there is nothing to show, and nothing is tried again."""
    folder, lm = data("nq", train=BORN[:1], test=BORN[1:]), LMChoice("pocket")
    workspace = Workspace(tmp_path / "out", folder, lm=lm, engine="bm25")
    rows = {"cot": Setting("cot"), "cot, few-shot": Setting("cot", few_shot=True)}
    with progress_bar(False) as bars:
        (section,) = Experiment("t", "s", rows, tables.table()).run(workspace, bars)
    assert [row[0] for row in section.rows] == ["cot"]
    assert "no demonstrations" in workspace.left_out["cot, few-shot"]
    monkeypatch.setattr("raisf.optimize.optimizers.few_shot.BootstrapJudges.compile", None)
    with pytest.raises(InputError, match="no demonstrations"):
        workspace.open(rows["cot, few-shot"])


def test_yes_no_questions_are_learnt_by_what_their_table_counts(data, faulty, monkeypatch, tmp_path):
    """An LM that answers in sentences had no right run by exact match, and no few-shot row in StrategyQA's table."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    train = [{"question": f"Is {n} a number?", "answer": "yes"} for n in range(4)]
    folders = [data(name, train=train, test=BORN[1:]) for name in ("strategyqa", "nq")]
    row = Setting("cot", few_shot=True)
    with faulty.serve(answer=lambda fields: {"reasoning": "One counts.", "answer": "Yes, it is."}) as served:
        lm = LMChoice("openai/x", api_base=served.url)
        counted, matched = (Workspace(tmp_path / f"out-{f.name}", f, engine="bm25", lm=lm) for f in folders)
        assert counted.open(row).reason.demos
        with pytest.raises(InputError, match="no demonstrations"):
            matched.open(row)
    paths = [workspace.learning.path_of(row).name for workspace in (counted, matched)]
    assert paths[0] != paths[1], "what was learnt by exact match before is not taken for it"


@pytest.mark.parametrize("chosen", ["zero-shot", "as given"])
def test_a_row_whose_compiling_found_nothing_better_says_so(data, tmp_path, monkeypatch, chosen):
    """The row "ra-isf, prompts" was the zero-shot program, below a caption that spoke of demonstrations."""
    folder, lm = data("nq", train=BORN[:1], test=BORN[1:]), LMChoice("pocket")
    workspace = Workspace(tmp_path / "out", folder, lm=lm, engine="bm25")
    monkeypatch.setattr(workspace.learning, "artifact", lambda _: tmp_path)
    program = SimpleNamespace(compile_report={"chosen": chosen}, named_predictors=list)
    monkeypatch.setattr("raisf.experiments.workspace.open_program", lambda *_, **__: program)
    prompts, direct = Setting("prompts"), Setting("direct")
    assert workspace.open(prompts) is program
    monkeypatch.setattr(workspace, "answer", lambda rows, _: {label: {} for label in rows})
    told = Experiment(
        "t", "s", {"ra-isf, prompts": prompts, "direct": direct}, lambda *_: [Section("", ["program"], [])]
    )
    (section,) = told.run(workspace, None)
    assert "On the dev split compiling made ra-isf, prompts no better: they are as before." in section.text
