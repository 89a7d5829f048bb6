"""`raisf experiment` again in a folder: after a mistake, on more questions, by other orders of the same answers."""

import csv
import json
import random
from dataclasses import replace
from types import SimpleNamespace

import dspy
import pytest

import raisf
from raisf import cli
from raisf.commands.experiments import OF_RAISF
from raisf.experiments import blendfilter_tables, by_hand, every_judge
from raisf.experiments.catalog import EXPERIMENTS
from raisf.experiments.learning import Learning
from raisf.experiments.opening import LMChoice
from raisf.experiments.real_rows import RowChoice
from raisf.experiments.remarks import given_lines, remarks
from raisf.experiments.settings import THRESHOLDS, Setting
from raisf.experiments.workspace import Workspace
from raisf.optimize.judges.weighed import balanced
from raisf.reports.report import judge_sections
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, read_jsonl, write_jsonl
from raisf.utils.progress import progress_bar


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Two small closed worlds."""
    folder = tmp_path_factory.mktemp("data")
    for seed in (7, 8):
        argv = ["world", "--seed", str(seed), "--entities", "300", "--train", "4", "--dev", "4", "--test", "4"]
        assert cli.main([*argv, "--out", str(folder / str(seed))]) == 0
    return folder


def test_a_mistake_does_not_bind_a_folder_to_its_data(worlds, tmp_path, capsys):
    """The folder held nothing, and was refused for the data that were meant."""
    argv = ["--engine", "bm25", "--lm", "pocket", "--n", "2", "--out", str(tmp_path / "out")]
    assert cli.main(["experiment", "table1", "--data", str(worlds / "8"), "--only", "nonsense", *argv]) == 2
    assert cli.main(["experiment", "table1", "--data", str(worlds / "7"), "--only", "rag", *argv]) == 0
    assert cli.main(["experiment", "table1", "--data", str(worlds / "8"), "--only", "rag", *argv]) == 2
    assert "holds experiments on other data" in capsys.readouterr().err


def test_a_page_names_the_indexes_that_its_rows_have_searched_alone(worlds, tmp_path, capsys):
    """A table over BM25 named an index of ColBERT's that was never made, as did one of rows that search nothing."""
    argv = ["--data", str(worlds / "7"), "--lm", "pocket", "--n", "2", "--out", str(tmp_path), "--json"]
    for name, only, folders in (("table1", "direct", None), ("blendfilter-bm25", "direct,rag", "index-bm25")):
        assert cli.main(["experiment", name, "--only", only, *argv]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["facts"]["index"] == (folders and str(tmp_path / "made" / folders))
        assert "n=2 is below 30" in made["experiments"][name][0]["text"]
    assert sorted(path.name for path in (tmp_path / "made").glob("index-*[!n]")) == ["index-bm25"]


def test_intervals_are_not_called_rough_where_a_table_has_none_and_are_where_a_kind_has_few(worlds, tmp_path, capsys):
    argv = ["--data", str(worlds / "7"), "--lm", "pocket", "--engine", "bm25", "--out", str(tmp_path), "--json"]
    row = ["--only", "ra-isf, zero-shot, k 1", "--variant", "zero-shot"]
    for name, n, more in (("table4", "2", ["--only", "ra-isf, zero-shot"]), ("fig4", "40", row)):
        assert cli.main(["experiment", name, "--n", n, *more, *argv]) == 0
        (section,) = json.loads(capsys.readouterr().out)["experiments"][name]
        assert ("is below 30: bootstrap intervals are rough" in section["text"]) == (name == "fig4")


def test_a_row_that_is_left_out_names_no_way_out_that_an_experiment_has_not(worlds, tmp_path):
    """It advised `--no-know`, another strategy and arguments of Python's."""
    for split in ("train", "dev", "test"):
        rows = read_jsonl(worlds / f"7/{split}.jsonl")
        write_jsonl(
            tmp_path / f"{split}.jsonl", ({key: row[key] for key in ("id", "question", "answers")} for row in rows)
        )
    (tmp_path / "corpus.jsonl").write_bytes((worlds / "7/corpus.jsonl").read_bytes())
    workspace = Workspace(tmp_path / "out", tmp_path, lm=LMChoice("pocket"), engine="bm25", n=2)
    with progress_bar(False) as bars:
        workspace.answer({name: Setting(name) for name in ("direct", "prompts", "weights")}, bars)
    prompts, weights = (workspace.left_out[name] for name in ("prompts", "weights"))
    assert prompts.endswith(
        "found 0 'relevant' and 0 'irrelevant': give gold_pids or gold_titles of passages that are in "
        "the index, give more questions, or let a teacher label passages (--teacher)"
    )
    assert weights.endswith("an LM that labels passages and decompositions (--teacher)")
    with pytest.raises(InputError) as error:
        balanced([], "know", 2, random.Random(0))
    settings = {"a": Setting("rag"), "b": Setting("direct")}
    workspace._sorted_out(settings, {repr(settings["a"]): {}}, {repr(settings["b"]): error.value})
    assert workspace.left_out["b"].endswith("give more questions, some that the LM knows and some not")


def test_the_sheet_that_nobody_has_labelled_is_of_the_rows_of_this_run(tmp_path):
    """After `--n 2` people were asked to label those rows for all later runs, also for runs on other questions."""
    path, workspace = tmp_path / "table5" / by_hand.FILE, SimpleNamespace(out=tmp_path, seed=0, teacher=None)

    def sheet(*questions):
        rows = [{"question": one, "passage": "p", "gold": True, "said": True, "readable": True} for one in questions]
        write_jsonl(tmp_path / "judges" / "rows.jsonl", rows)
        by_hand.reliability_and_people(
            workspace, {"zero-shot": {"relevance": {"verdicts": "rows.jsonl", "scores": {}}}}
        )
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    assert {row["question"] for row in sheet("A?")} == {"A?"}
    (first, *_) = rows = sheet("B?", "C?")
    assert {row["question"] for row in rows} == {"B?", "C?"}
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([first.keys(), {**first, "label": "relevant"}.values()])
    assert len(sheet("B?", "C?", "D?")) == 1, "what people have labelled stays"


def test_intervals_of_what_is_read_do_not_depend_on_who_answered_first():
    """A row asked again in another order had other intervals, and stood beside rows that were not asked again."""
    names = [f"q{number}" for number in range(12)]
    workspace = SimpleNamespace(test=[dspy.Example(id=name, gold_pids=["a", "b", "c"]) for name in names])
    records = {}
    for number, name in enumerate(names):
        passages = [{"pid": pid} for pid in "abcdefgh"[number % 4 : number % 4 + 1 + number % 3]]
        root = {"route": "passages", "passages": passages, "sub_questions": []}
        records[name] = {"trace": {"root": root}}
    found = []
    for seed in range(3):
        shuffled = random.Random(seed).sample(names, len(names))
        (section,) = blendfilter_tables.kept(workspace, {"kept": {name: records[name] for name in shuffled}})
        found.append(section.rows)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["experiment", "table1", "--only", ""], "expected names, with commas between them; found nothing"),
        (["experiment", "data-efficiency", "--ways", ""], "expected names, with commas between them; found nothing"),
        (["experiment", "judges", "--ways", ""], "expected names, with commas between them; found nothing"),
        (["compare", "--programs", "", "--test", "t.jsonl"], "expected names of programs"),
        (["compare", "--programs", "rag,=cot", "--test", "t.jsonl"], "expected LABEL=NAME, found '=cot'"),
        (["compare", "--programs", "rag,a=", "--test", "t.jsonl"], "expected LABEL=NAME, found 'a='"),
    ],
)
def test_an_empty_list_of_what_to_measure_is_told(argv, told, tmp_path, capsys):
    """A variable that was not set ran all rows of a table, for hours."""
    assert cli.main([*argv, "--out", str(tmp_path / "out")]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_the_n_beside_a_judge_counts_what_its_measures_rest_on():
    """It counted the verdicts that could not be read, too, of which the table said nothing."""
    score = {"value": 0.5, "low": 0.2, "high": 0.8, "n": 6}
    listwise = {"scores": {"accuracy": score}, "rows": 10, "unreadable": 4, "errors": 0}
    know = {"scores": {"accuracy": score, "auroc": score}, "rows": 6, "unreadable": 0, "errors": 0}
    nothing = {"scores": {}, "rows": 3, "unreadable": 3, "errors": 0}
    section = every_judge._judges({"sets": {"relevance": listwise}, "alone": {"know": know, "relevance": nothing}})
    assert section.columns[-2:] == ["n", "unreadable"] and "in no measure" in section.text
    assert [row[-2:] for row in section.rows] == [[6, 4], [6, 0], [0, 3]]
    section = every_judge._judges({"alone": {"know": know}})
    assert section.columns[-1] == "n" and section.rows[0][-1] == 6 and "in no measure" not in section.text


def test_the_whole_is_tested_against_each_other_row_of_the_judges(records):
    labels = ("way: none", every_judge.ALWAYS, every_judge.WHOLE)
    runs = {label: {f"q{n}": records.record(n, n < of) for n in range(9)} for of, label in enumerate(labels)}
    workspace = SimpleNamespace(judge=lambda rows: {}, left_out={}, test=range(9))
    *_, tested = every_judge.sections(workspace, runs)
    assert [row[0] for row in tested.rows] == [f"{every_judge.WHOLE} - {label}" for label in labels[:2]]
    assert len(every_judge.sections(workspace, {every_judge.WHOLE: runs[every_judge.WHOLE]})) == 2, "no other row"


def test_what_a_row_has_learnt_is_not_lost_where_a_later_step_of_it_fails(worlds, tmp_path):
    """Its runs, or tries of hours, were made again."""
    workspace = Workspace(tmp_path / "out", worlds / "7", lm=LMChoice("pocket"), engine="bm25")
    shown = Setting("direct", few_shot=True)
    with pytest.raises(InputError, match="no thresholds"):
        workspace.learning.artifact(replace(shown, then=(THRESHOLDS,)))
    assert list((tmp_path / "out/made/work").glob("prompts-*.jsonl"))
    learnt = workspace.learning.artifact(shown)
    assert read_json(learnt / "manifest.json")["compile"]["resumed"]
    assert not list((tmp_path / "out/made/work").glob("prompts-*.jsonl"))


@pytest.fixture(scope="module")
def compiled(worlds, tmp_path_factory):
    """RA-ISF compiled elsewhere, its judge of relevance a probe; the same without; and one of another system."""
    folder = tmp_path_factory.mktemp("artifacts")
    index = Workspace(folder / "out", worlds / "8", lm=LMChoice("pocket"), engine="bm25").index()
    program = raisf.RAISF(raisf.open_index(index), relevance_threshold=0.25, max_depth=1)
    program.set_lm(raisf.connect("pocket-tiny"))
    raisf.save(program, folder / "shown")
    learner = raisf.ProbeJudges(rows=8, predictors=("relevant",), work=folder / "work", progress=False)
    train, dev = (raisf.load_questions(worlds / "8" / f"{split}.jsonl") for split in ("train", "dev"))
    raisf.save(learner.compile(program, trainset=train, valset=dev), folder / "mine")
    raisf.save(raisf.RAG(), folder / "rag")
    return folder


def _fig3(data, out, *more):
    argv = ["experiment", "fig3", "--data", str(data), "--engine", "bm25", "--lm", "pocket", "--n", "2", "--json"]
    return cli.main([*argv, "--out", str(out), "--only", "ra-isf, weights, k 1,ra-isf, weights, k 3", *more])


def test_a_table_takes_ra_isf_as_it_was_compiled_elsewhere(worlds, compiled, tmp_path, capsys, monkeypatch):
    """What had been compiled for hours by `raisf compile` was compiled again for each folder of tables."""
    out, mine = tmp_path / "out", compiled / "mine"
    monkeypatch.setattr(Learning, "_begin", None)  # nothing is compiled
    assert _fig3(worlds / "7", out, "--program", f"weights={mine}") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["weights"] == f"the artifact {mine}"
    (section,) = found["experiments"]["fig3"]
    told = "is the artifact mine, which asks local/pocket-tiny (256 tokens an answer at most), with max_depth 1, rel"
    assert told in section["text"] and list(section["rows"][0]) == ["exact match", "k 1", "k 3"]
    assert "Not held out" not in section["text"]
    asked = [read_json(file)["program"] for file in (out / "records").glob("*.meta.json")]
    assert len(asked) == 2 and all("pocket-tiny" in json.dumps(one) for one in asked)
    for given, why in (
        (f"weights={compiled / 'rag'}", "a compiled rag, and that row is RA-ISF's"),
        (f"weights={compiled / 'shown'}", "has no weights: give it as prompts=..."),
        (f"prompts={mine}", "has trained weights: give it as weights=..."),
        (f"prompts={compiled / 'shown'}", "none of the rows that are asked for is RA-ISF compiled to prompts"),
        (f"mine={mine}", "the papers' tables take weights and prompts"),
    ):
        assert _fig3(worlds / "7", out, "--program", given) == 2
        assert why in " ".join(capsys.readouterr().err.split())
    assert _fig3(worlds / "7", out, *(["--program", f"weights={mine}"] * 2)) == 2
    assert "weights=... was given twice" in capsys.readouterr().err


def test_a_table_tells_of_an_artifact_that_has_learnt_its_questions(worlds, compiled, tmp_path, capsys):
    """A line among the log's was all, beside a table that a page shows for years."""
    data = tmp_path / "data"
    data.mkdir()
    for name, split in (("test", "train"), ("corpus", "corpus")):
        (data / f"{name}.jsonl").write_bytes((worlds / "8" / f"{split}.jsonl").read_bytes())
    # What nothing here learns from may be what is asked.
    (data / "train.jsonl").write_bytes((data / "test.jsonl").read_bytes())
    assert _fig3(data, tmp_path / "out", "--program", f"weights={compiled / 'mine'}") == 0
    (section,) = json.loads(capsys.readouterr().out)["experiments"]["fig3"]
    told = "Not held out: ra-isf, weights, k 1; ra-isf, weights, k 3 (the program was compiled on 2 of the 2 questions"
    assert told in section["text"]
    # Its judges alone are asked the sub-questions, too, of which the log alone told.
    argv = ["--data", str(data), "--engine", "bm25", "--lm", "pocket", "--n", "2", "--out", str(tmp_path / "out")]
    given = ["--program", f"weights={compiled / 'mine'}", "--only", "ra-isf, weights", "--json"]
    assert cli.main(["experiment", "table5", *argv, *given]) == 0
    sections = json.loads(capsys.readouterr().out)["experiments"]["table5"]
    told = "Not held out: ra-isf, weights (the program was compiled on "
    assert len(sections) == 3 and all(told in section["text"] for section in sections)


def test_the_judges_alone_are_told_to_have_learnt_what_they_are_asked():
    report = {"scores": {}, "not_held_out": ["the program was compiled on 3 of the 4 questions"]}
    judged = {"a": {"know": report, "relevance": report}, "b": {"know": {"scores": {}, "not_held_out": []}}}
    told = "Not held out: a (the program was compiled on 3 of the 4 questions)."
    assert every_judge._judges(judged).text.endswith(told)
    assert [section.text.endswith(told) for section in judge_sections(judged)] == [True, True, False]


def test_an_artifact_is_asked_in_the_form_of_all_rows_and_has_no_other_judges(worlds, compiled, tmp_path):
    """RA-ISF alone quoted first, which changes what a small LM answers; and table 7 lost its row of other judges."""
    lm = LMChoice("pocket", adapter="compact")  # in which it reads instructions
    workspace = Workspace(tmp_path / "out", worlds / "7", lm=lm, given={"weights": compiled / "mine"}, engine="bm25")
    weights = workspace.open(Setting("weights"))
    assert not weights.evidence and not workspace.open(Setting("rag")).evidence
    assert "pocket-tiny" in weights.answer_from.lm.model and "evidence" not in weights.answer_from.signature.fields
    shown = raisf.RAISF().deepcopy()
    shown.answer_from.demos = [dspy.Example(question="Who?", answer="Ada")]
    workspace.learning.give_form(shown, Setting("weights"))
    assert shown.evidence and shown.answer_from.demos, "what has learnt a form keeps it"
    (told,) = given_lines(workspace, {"ra-isf, weights": Setting("weights")})
    assert "evidence" not in told and "max_depth 1" in told
    (told,) = given_lines(workspace, {"ra-isf, weights, max_depth 2": Setting("weights", {"max_depth": 2})})
    assert "max_depth" not in told, "the row says it"
    listwise = Setting("weights", {"relevance": "listwise"})
    _, told = given_lines(workspace, {"ra-isf, weights": Setting("weights"), "its sets": listwise})
    assert told == "It has other judges than its sets: compiled here, for pocket."
    told = " ".join(remarks(workspace, {"blendfilter": Setting("rag"), "bm25": Setting("rag", engine="bm25")}))
    assert told == "Rows that name no retriever search with bm25, as those that name it do."
    takes = workspace.learning.takes_given
    assert takes(Setting("weights", {"relevance": "pointwise", "k": 3}))
    assert not takes(Setting("weights", {"relevance": "listwise"})) and not takes(Setting("weights", base="pocket"))
    assert not takes(Setting("weights", {"relevance": "listwise", "decomposition": "at_once"}))
    for told in ({"few_shot": True}, {"then": (THRESHOLDS,)}, {"rows": 8}, {"training": {"epochs": 1}}):
        assert not takes(replace(Setting("weights"), **told)), "it says how it learns"
    workspace.learning.check_given([listwise, Setting("weights")])
    with pytest.raises(InputError, match="none of the rows that are asked for is RA-ISF compiled to weights"):
        workspace.learning.check_given([listwise])


def test_a_row_of_ones_own_takes_the_place_of_no_other(compiled):
    """`--program ra-isf=...` made the zero-shot row that artifact, too."""
    for label in ("ra-isf", "weights", "rag"):
        with pytest.raises(InputError, match=rf"--program {label}=...: {label} is no artifact; give .* new name"):
            RowChoice(programs=((label, str(compiled / "mine")),)).rows()
    assert "mine" in RowChoice(programs=(("mine", str(compiled / "mine")),)).rows()


def test_artifacts_are_for_the_tables_that_show_a_compiled_ra_isf(worlds, tmp_path):
    workspace = Workspace(tmp_path / "out", worlds / "7", lm=LMChoice("pocket"))
    shown = {
        name
        for name, one in EXPERIMENTS.items()
        if {"weights", "prompts"} & {setting.program for setting in one.rows(workspace).values()}
    }
    # Those two show how judges are trained.
    assert shown - {"table3", "judges", "data-efficiency"} == set(OF_RAISF)


def test_no_table_mixes_rows_over_an_index_that_is_changed_on_the_way(tmp_path, monkeypatch):
    """Each row opens the index anew, hours after the one before: later rows searched another corpus, without a word."""
    from raisf.retrieval.index import add_to_index, build_index, open_folder
    from raisf.retrieval.passage import Passage

    given, out = tmp_path / "given", tmp_path / "out"
    build_index([Passage("Di", "Di was born in Rome.")], given, engine="bm25")
    (tmp_path / "test.jsonl").write_text('{"question": "Where was Di born?", "answer": "Rome"}\n')

    def change(name):
        add_to_index(given, [Passage(name, f"{name} was born in Bonn.")], progress=False)

    def begun():
        return Workspace(out, tmp_path, lm=LMChoice("pocket"), index=str(given))

    workspace = begun()
    assert workspace.open(Setting("rag")).retriever.path == given
    change("Ed")
    for setting in (Setting("rag"), Setting("rag", engine="dense")):
        with pytest.raises(InputError, match=r"given has changed since this experiment began.*same command again"):
            workspace.open(setting)
    workspace.open(Setting("direct"))  # which searches nothing
    again = begun()
    assert len(again.open(Setting("rag")).retriever.passages) == 2
    monkeypatch.setattr(again.learning, "artifact", lambda _: change("Flo"))  # which takes hours
    with pytest.raises(InputError, match="has changed"):
        again.open(Setting("rag"))
    # While its passages are read, for another engine's index.
    third = begun()
    passages = iter(third.indexes._passages())
    next(passages)
    change("Gus")
    with pytest.raises(InputError, match="has changed"):
        list(passages)
    assert len(open_folder(begun().index("dense")).passages) == 4
