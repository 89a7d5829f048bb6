"""`raisf experiment`: the papers' tables and figures, each by one command."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from raisf import cli
from raisf.commands.experiments import NAMES, OF_ONE, PAPERS, VARIANTS
from raisf.experiments import by_hand, every_judge
from raisf.experiments.bars import WorkspaceBars
from raisf.experiments.catalog import EXPERIMENTS, SYSTEMS
from raisf.experiments.data_efficiency import sizes_of_ways
from raisf.experiments.indexes import Indexes
from raisf.experiments.learning import Learning
from raisf.experiments.opening import LMChoice
from raisf.experiments.settings import COMPILED, SMALLER, Setting
from raisf.experiments.workspace import Workspace
from raisf.lm import pocket
from raisf.programs.registry import PROGRAMS
from raisf.retrieval.store.manifest import read_manifest
from raisf.utils.errors import LMError
from raisf.utils.files import read_json, read_jsonl


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small closed world."""
    folder = tmp_path_factory.mktemp("data") / "world"
    argv = ["world", "--entities", "500", "--train", "40", "--dev", "8", "--test", "8", "--out", str(folder)]
    assert cli.main(argv) == 0
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Where all experiments of this file go, so that they share what they have in common."""
    return tmp_path_factory.mktemp("reports") / "experiments"


def _settings(name):
    """A workspace's rows where the pocket Llama answers."""
    return EXPERIMENTS[name].rows(SimpleNamespace(base=None, bases=SMALLER, lm=LMChoice(), sizes=sizes_of_ways()))


def _run(name, world, out, *more):
    argv = ["experiment", name, "--data", str(world), "--engine", "bm25", "--n", "4", "--out", str(out), *more]
    return cli.main(argv)


def test_the_command_line_names_what_there_is():
    assert tuple(EXPERIMENTS) == NAMES
    assert set(SYSTEMS) | {"ra-isf"} == set(PROGRAMS)
    used = {setting.program for name in EXPERIMENTS for setting in _settings(name).values()}
    assert used <= {*PROGRAMS, *COMPILED}


def test_tables_of_one_ra_isf_can_be_of_another_than_the_one_with_trained_judges():
    """Where neither a local base nor labels are at hand, they had no row at all."""
    for name in set(OF_ONE) - {"all"}:
        rows = {how: EXPERIMENTS[name].rows(SimpleNamespace(), variant=how) for how in VARIANTS}
        for how, program in (("prompts", "prompts"), ("zero-shot", "ra-isf")):
            assert {one.program for one in rows[how].values()} <= {program, "rag", "direct", "least-to-most"}
            assert [one.options for one in rows[how].values()] == [one.options for one in rows["weights"].values()]
            assert not any("weights" in label for label in rows[how])
    assert {name for name, one in EXPERIMENTS.items() if one.one_variant} == set(OF_ONE) - {"all"}


def test_an_experiment_leaves_its_table_its_answers_and_a_page(world, out, capsys):
    assert _run("blendfilter-queries", world, out, "--json") == 0
    found = json.loads(capsys.readouterr().out)["experiments"]["blendfilter-queries"]
    rows = ["blendfilter", "without q", "without q_ex", "without q_in"]
    assert [row["program"] for row in found[0]["rows"]] == [*rows, *(f"{row}, BM25" for row in rows)]
    assert all(row["exact match"]["n"] == 4 for row in found[0]["rows"])
    # Leaving out a query that the LM writes saves calls: the options have reached the programs.
    calls = {row["program"]: row["LM calls"] for row in found[0]["rows"]}
    assert calls["without q_ex"] < calls["blendfilter"] and calls["without q_in"] < calls["blendfilter"]
    with next((out / "blendfilter-queries").glob("*.csv")).open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 8
    assert len(list((out / "records").glob("blendfilter-*.jsonl"))) == 4
    assert "without q_ex" in (out / "report.html").read_text("utf-8")


def test_rows_can_be_run_by_their_labels_commas_and_all(world, out, capsys):
    assert _run("table1", world, out, "--only", "direct,rag, few-shot", "--json") == 0
    first, *others = json.loads(capsys.readouterr().out)["experiments"]["table1"]
    assert [row["program"] for row in first["rows"]] == ["direct", "rag, few-shot"]
    assert not any("cot" in str(section["rows"]) for section in others)
    assert _run("table1", world, out, "--only", "direct,rga, few-shot") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "no row 'rga'; choose of direct; cot;" in told and told.endswith(
        "ra-isf, weights (with commas between them)"
    )
    assert _run("all", world, out, "--only", "direct") == 2
    assert "--only is not for all: leave it out" in " ".join(capsys.readouterr().err.split())


def test_a_second_command_is_kept_out_of_a_folder_while_the_first_writes_into_it(world, out, capsys, monkeypatch):
    """It left out the rows that the first was answering, and its table took the place of the whole one."""
    codes, answer = [], Workspace.answer

    def meanwhile(*asked):
        codes.append(_run("blendfilter-main", world, out, "--zero-shot", "--only", "direct"))
        return answer(*asked)

    monkeypatch.setattr(Workspace, "answer", meanwhile)
    assert _run("table1", world, out, "--only", "direct,rag", "--json") == 0 and codes == [2]
    shown = capsys.readouterr()
    assert f"another experiment is writing into {out}: wait for it" in " ".join(shown.err.split())
    (first, *_) = json.loads(shown.out)["experiments"]["table1"]
    assert [row["exact match"]["n"] for row in first["rows"]] == [4, 4]
    monkeypatch.setattr(Workspace, "answer", answer)
    assert _run("blendfilter-main", world, out, "--zero-shot", "--only", "direct") == 0


@pytest.mark.slow
def test_a_sweep_is_a_figure_and_answers_are_shared_between_experiments(world, out, monkeypatch):
    assert _run("blendfilter-queries", world, out) == 0
    assert _run("blendfilter-main", world, out, "--zero-shot") == 0
    before = {path: path.stat().st_mtime_ns for path in (out / "records").glob("*.jsonl")}
    assert sum(path.name.startswith("blendfilter-") for path in before) == 4, "the whole blendfilter was there already"
    assert _run("blendfilter-k", world, out) == 0
    assert (out / "blendfilter-k/how-many-passages-a-query-1.svg").read_text("utf-8").rstrip().endswith("</svg>")
    rows = read_json(out / "blendfilter-k/results.json")["sections"][0]["rows"]
    assert [row["exact match"] for row in rows] == ["blendfilter", "iter-retgen"]
    assert list(rows[0])[1:] == [f"k {k}" for k in (3, 4, 5, 6, 7, 8)]
    page = (out / "report.html").read_text("utf-8")
    assert "blendfilter-main:" in page and "blendfilter-k:" in page, "one page holds what earlier commands made"
    monkeypatch.setattr("raisf.programs.calls.Run.ask", None)  # any call of an LM would fail
    assert _run("blendfilter-main", world, out, "--zero-shot") == 0


def test_what_is_read_from_is_held_to_gold(world, out):
    workspace = Workspace(out, world, engine="bm25", n=6)
    settings = {"retrieved": Setting("rag"), "kept": Setting("blendfilter")}
    from raisf.utils.progress import progress_bar

    with progress_bar(False) as bars:
        answers = workspace.answer(settings, bars)
    (section,) = EXPERIMENTS["blendfilter-retrieval"].sections(workspace, answers)
    retrieved, kept = section.rows
    gold = {row["id"]: set(row["gold_pids"]) - {""} for row in read_jsonl(world / "test.jsonl")}
    shares = [
        len(gold[name] & {one["pid"] for one in record["trace"]["root"]["passages"]}) / len(gold[name])
        for name, record in answers["retrieved"].items()
    ]
    assert retrieved[2].value == pytest.approx(sum(shares) / len(shares))
    assert kept[1].n == retrieved[1].n == 6
    assert "without any passage counts as 0" in section.text
    for record in answers["retrieved"].values():
        record["trace"]["root"]["route"] = "budget"  # spent before any passage was judged or read
    (section,) = EXPERIMENTS["blendfilter-retrieval"].sections(workspace, answers)
    assert section.rows[0][2].value == 0


def test_mistakes_are_told_before_anything_is_made(world, tmp_path, capsys):
    assert cli.main(["experiment", "table99"]) == 2
    assert "table99" in capsys.readouterr().err
    assert _run("table2", world, tmp_path / "r", "--zero-shot") == 2  # it trained judges all the same
    assert "or give --variant zero-shot" in " ".join(capsys.readouterr().err.split())
    assert _run("table3", world, tmp_path / "r", "--zero-shot") == 2  # it did nothing
    assert "--zero-shot is for table1, blendfilter-main, all, not for table3" in " ".join(
        capsys.readouterr().err.split()
    )
    assert _run("table1", tmp_path / "nothing", tmp_path / "r") == 2
    assert "test.jsonl" in capsys.readouterr().err


def test_a_folder_keeps_to_its_data(world, out, tmp_path, capsys):
    """Else weights trained on one data set would be reported on another."""
    other = tmp_path / "other"
    assert cli.main(["world", "--seed", "8", "--entities", "500", "--test", "8", "--out", str(other)]) == 0
    assert _run("blendfilter-main", other, out) == 2
    assert "other data" in capsys.readouterr().err


def test_systems_read_equally_many_passages(world, out):
    """Else a table would compare appetites. ReAct reads one passage a search, as its paper does, and searches more."""
    from raisf.programs.registry import defaults

    read = {name: defaults(PROGRAMS[name]).get("k") for name in SYSTEMS}
    assert {k for name, k in read.items() if name != "react" and k is not None} == {defaults(PROGRAMS["ra-isf"])["k"]}
    assert not any(setting.options for setting in EXPERIMENTS["table1"].settings.values())


@pytest.mark.slow
def test_what_skr_learnt_is_kept(world, out, monkeypatch):
    workspace = Workspace(out, world, engine="bm25", n=6)
    cases = workspace.open(Setting("skr-knn")).cases
    monkeypatch.setattr("raisf.optimize.optimizers.fit_skr.FitSKR.compile", None)
    monkeypatch.setattr("raisf.optimize.optimizers.base.skr_cases", None)
    workspace = Workspace(out, world, engine="bm25", n=6)
    assert cases and workspace.open(Setting("skr-knn")).cases == cases
    assert workspace.open(Setting("skr-knn", few_shot=True)).cases == cases, "its demonstrations need no second fit"


def test_skr_asks_no_more_training_questions_than_the_judges_rows_are_of(world, tmp_path):
    """Each is asked twice: NQ's training file would take 176,000 answers, where the judges learn of 2,000 questions."""
    for rows, n, told in ((None, 40, []), (20, 40, []), (16, 32, [["questions", 32]])):
        workspace = Workspace(tmp_path / "out", world, engine="bm25", n=6, rows=rows)
        assert len({example.id for example in workspace.learning.skr_questions}) == n
        assert (workspace.learning.skr_questions is workspace.train) == (n == 40)
        assert workspace.learning._learns_from(Setting("skr-knn")) == told, (
            "what was fitted on all of a few keeps its name"
        )


def test_what_was_learnt_over_one_index_is_not_taken_for_another(world, tmp_path, monkeypatch):
    """Else a table would show prompts, or weights, made of other passages than those it names."""
    from raisf.retrieval.index import build_index
    from raisf.retrieval.passage import Passage

    learnt = []
    monkeypatch.setattr(
        Learning, "_learnt", lambda one, program, setting: learnt.append(one.workspace.index()) or program
    )
    for name in "ab":
        build_index([Passage(name, f"Only {name} is here.")], tmp_path / name, engine="bm25")
    for index in (None, "a", "b", "a"):
        given = index and str(tmp_path / index)
        workspace = Workspace(tmp_path / "out", world, lm=LMChoice("pocket"), engine="bm25", index=given)
        workspace.learning.artifact(Setting("prompts"))
    assert learnt == [tmp_path / "out/made/index-bm25", str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_folder_of_something_else_is_left_alone(world, capsys):
    before = sorted(world.iterdir())
    assert _run("blendfilter-main", world, world) == 2
    assert "holds other things" in capsys.readouterr().err and sorted(world.iterdir()) == before


def test_table3_has_the_bases_that_ship_where_the_pocket_llama_answers_and_else_those_that_are_named(world, out):
    bases = {setting.base for setting in _settings("table3").values()}
    assert {base or "pocket" for base in bases} == set(pocket.WEIGHTS)
    named = SimpleNamespace(base="local/llama", bases=("local/t5",), lm=LMChoice("openai/x"))
    assert list(EXPERIMENTS["table3"].rows(named))[2:] == [
        "local/llama, LoRA",
        "local/llama, all weights",
        "local/t5, LoRA",
    ]


@pytest.mark.slow
def test_judges_may_be_of_another_base_than_the_lm_that_answers(world, out):
    """Table 3 compares bases: each judge must be of the row's, and no answer."""
    workspace = Workspace(out, world, engine="bm25", n=6, rows=8)
    program = workspace.open(Setting("weights", base="pocket-t5", training={"epochs": 1}))
    found = {name: predictor.lm.base.partition("#")[0] for name, predictor in program.named_predictors()}
    small = {name for name, base in found.items() if base == "local/pocket-t5"}
    assert small == {"know", "relevant", "decompose"}
    assert {base for name, base in found.items() if name not in small} == {"local/pocket"}
    assert program(question=workspace.test[0].question).trace.root


@pytest.mark.slow
def test_all_experiments_run_from_one_command(world, out):
    assert _run("all", world, out, "--rows", "20", "--zero-shot") == 0
    for name in PAPERS:
        assert read_json(out / name / "results.json")["sections"][0]["rows"], name
    page = (out / "report.html").read_text("utf-8")
    assert all(f"{name}: " in page for name in PAPERS)


@pytest.mark.slow
def test_the_judges_are_compared_by_answers_cost_and_alone(world, tmp_path, monkeypatch):
    confident = {"know": "confidence"}
    rows = {
        "way: none": Setting("ra-isf"),
        every_judge.WHOLE: Setting("ra-isf", confident, then=(every_judge.THRESHOLDS,)),
        "broken": Setting("ra-isf", {"k": 0}),
        "and so": Setting("rag", {"k": 0}),
    }
    monkeypatch.setattr(every_judge, "ROWS", rows)
    workspace = Workspace(tmp_path / "out", world, engine="bm25", n=4, lm=LMChoice("pocket"))
    experiment = replace(EXPERIMENTS["judges"], settings=rows)
    with WorkspaceBars([rows], 4) as bars:
        answers, judges, differences = experiment.run(workspace, bars)
    assert [row[0] for row in answers.rows] == ["way: none", every_judge.WHOLE]
    assert "Left out: broken; and so (k is 0" in answers.text
    asked = {(row[0], row[1]): row[2] for row in judges.rows}
    assert len(asked) == 4 and all(score is not None for score in asked.values())
    assert differences.rows[0][0] == f"{every_judge.WHOLE} - way: none"
    # What a row has learnt is an artifact with its thresholds, and is not learnt again.
    (made,) = (tmp_path / "out/made").glob("ra-isf-*")
    assert read_json(made / "manifest.json")["compile"]["calibration"]["aim"] == "answer"


def test_a_judge_that_failed_once_leaves_out_neither_answers_nor_later_verdicts(world, tmp_path, monkeypatch):
    """Answered rows were told as left out, and a row whose judge had failed was never asked."""
    rows, later = {"a": Setting("ra-isf"), "b": Setting("rag")}, {"c": Setting("ra-isf", {"k": 2})}
    workspace = Workspace(tmp_path / "out", world, engine="bm25", n=2, lm=LMChoice("pocket"))

    def hiccup(programs, *args, **options):
        raise LMError("a hiccup")

    with WorkspaceBars([rows, later], 2) as bars:
        assert set(workspace.answer(rows, bars)) == {"a", "b"}
        with monkeypatch.context() as patched, pytest.raises(LMError, match="a hiccup"):
            patched.setattr("raisf.experiments.workspace.judge_all", hiccup)
            workspace.judge(rows | later)
        assert set(workspace.answer(rows | later, bars)) == {"a", "b", "c"} and not workspace.left_out
    assert set(workspace.judge(rows | later)) == {"a", "c"} and not workspace.left_out


def test_the_file_that_people_label_stays_and_is_counted_when_table5_is_run_again(world, tmp_path):
    """It was deleted as a table of an earlier report, with the labels in it."""
    argv = (world, tmp_path / "out", "--lm", "pocket", "--only", "ra-isf, zero-shot", "--n", "2")
    assert _run("table5", *argv) == 0
    path = tmp_path / "out/table5" / by_hand.FILE
    lines = path.read_text("utf-8").splitlines()
    lines[1] = f"{lines[1]}{'relevant' if ',relevance,' in lines[1] else 'good'}"
    path.write_text("\n".join([*lines, ""]), "utf-8")
    assert _run("table5", *argv) == 0
    assert path.read_text("utf-8").splitlines() == lines
    titles = [section["title"] for section in read_json(path.with_name("results.json"))["sections"]]
    assert titles[-1] == "Agreement with people"


def test_an_encoder_of_one_engine_is_not_given_to_another(tmp_path):
    """REPLUG's tuned row wants a dense index: with a ColBERT checkpoint for the others it was left out."""
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "Ada was born in Elm."}\n')
    indexes = Indexes(tmp_path / "made", tmp_path / "corpus.jsonl", "colbert", None, "raisf-minilm", lambda: [])
    assert read_manifest(indexes.path("colbert")).checkpoint == "raisf-minilm"
    assert read_manifest(indexes.path("dense")).checkpoint == "minilm"


def test_samples_at_an_endpoint_are_drawn_anew_for_each_question(world, tmp_path, faulty, monkeypatch):
    """Servers that draw by the seed alone gave the same draws to all questions of a sample."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with faulty.serve(answer=lambda asked: {"answer": "Rome"}) as served:
        lm = LMChoice("openai/x", api_base=served.url)
        workspace = Workspace(tmp_path / "out", world, engine="bm25", n=2, lm=lm)
        drawn = {name: one for name, one in EXPERIMENTS["blendfilter-sampling"].settings.items() if "0.5" in name}
        rows = {name: replace(one, program="direct") for name, one in list(drawn.items())[:3]}
        with WorkspaceBars([rows], 2) as bars:
            assert set(workspace.answer(rows, bars)) == {*rows}
        bodies = [body for _, _, body in served.seen]
        assert len(bodies) == 3 * 2 and not any("seed" in body for body in bodies)
