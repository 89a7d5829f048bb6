"""`raisf experiment real`: what it compares, what it goes on from, and the pages it leaves. The pocket Llama stands in
for a real one."""

import json
import resource
import shutil
from types import SimpleNamespace

import pytest

import raisf
from raisf import cli
from raisf.experiments.demo_real import almanac
from raisf.experiments.learning import lend
from raisf.experiments.opening import LMChoice
from raisf.experiments.real import RealComparison, RealWorkspace, open_workspaces
from raisf.experiments.real_rows import GIVEN, ROWS, RowChoice, about
from raisf.programs.program import Program
from raisf.reports.markdown import MARK, write_markdown
from raisf.reports.sections import Section
from raisf.utils.errors import InputError, LMError, RaisfError
from raisf.utils.files import read_json, read_jsonl, write_jsonl
from raisf.viewing.runs import find_runs

data_sets = ("2wiki", "musique")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of two data sets, of the almanac's articles and questions."""
    folder = tmp_path_factory.mktemp("real") / "data"
    for name in data_sets:
        shutil.copytree(almanac(), folder / name)
        dev = folder / name / "dev.jsonl"
        dev.write_text("".join(dev.read_text("utf-8").splitlines(keepends=True)[:6]), "utf-8")
    return folder


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """A compiled program; its own LM, smaller than the answering one, stands for trained weights."""
    folder = tmp_path_factory.mktemp("artifacts") / "all"
    program = raisf.RAISF(relevance_threshold=0.25, know_threshold=0.8, decomposition="chains", confidence="path")
    program.set_lm(raisf.connect("pocket-tiny"))
    raisf.save(program, folder)
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("reports") / "real"


def _run(data, out, *more):
    argv = ["experiment", "real", "--data", str(data), "--out", str(out), "--lm", "pocket", "--engine", "bm25"]
    return cli.main([*argv, "--n", "2", *more])


@pytest.mark.slow
def test_rows_are_answered_a_few_at_a_time_and_shown_together(data, out, artifact, capsys, monkeypatch):
    given = ("--program", f"weights-all={artifact}")
    page = out / "page.md"  # in the report's own folder, which is no other's for that
    assert _run(data, out, *given, "--only", "direct,rag", "--no-judges", "--page", str(page)) == 0
    page.write_text("# Ours\n\nWhat we found.\n", "utf-8")
    capsys.readouterr()
    assert _run(data, out, *given, "--only", "weights-all", "--json", "--page", str(page)) == 0
    tables = {one["title"]: one for one in json.loads(capsys.readouterr().out)["experiments"]["real"]}
    assert [row["program"] for row in tables["Real text"]["rows"]] == ["direct", "rag", "weights-all"]
    assert set(tables["Real text"]["columns"]) == {"program", *(f"{s} {m}" for s in data_sets for m in ("EM", "F1"))}
    assert tables["musique: answers"]["rows"][0]["exact match"]["n"] == 2
    tested = [row["pair"] for row in tables["2wiki: differences in exact match"]["rows"]]
    assert tested == ["weights-all - direct", "weights-all - rag"]
    assert tables["musique: judge: know"]["rows"][0]["program"] == "weights-all"
    text = page.read_text("utf-8")
    assert text.startswith("# Ours\n\nWhat we found.\n") and text.count(MARK) == 1
    assert text.count("## Real text") == 1 and "| weights-all |" in text
    assert "| weights-all |" in (out / "real/real.md").read_text("utf-8")
    assert "real: Real text" in (out / "report.html").read_text("utf-8")
    labels = [f"{name}: {row}" for name in data_sets for row in ("direct", "rag", "weights-all")]
    assert sorted(read_json(out / "real/results.json")["records"]) == labels, "earlier rows are shown, too"
    for place in (out, out / "real"):
        assert sorted(run.label for run in find_runs([place]).runs) == labels
    monkeypatch.setattr("raisf.programs.calls.Run.ask", None)  # any call of an LM would fail
    assert _run(data / "musique", out, *given, "--only", "direct") == 0


def test_half_a_line_of_a_row_that_nobody_asked_for_now_costs_no_other_row(data, tmp_path, capsys):
    """A kill leaves one, and so does a run that is answering that row meanwhile."""
    assert _run(data / "musique", tmp_path, "--only", "direct", "--no-judges") == 0
    (records,) = (tmp_path / "real/musique/records").glob("direct-*.jsonl")
    records.write_bytes(records.read_bytes()[:-9])
    capsys.readouterr()
    assert _run(data / "musique", tmp_path, "--only", "rag", "--no-judges", "--json") == 0
    tables = json.loads(capsys.readouterr().out)["experiments"]["real"]
    assert [row["program"] for row in tables[0]["rows"]] == ["rag"]


def test_rows_of_earlier_runs_stay_though_a_question_failed_and_though_the_next_run_is_stopped(
    data, tmp_path, capsys, monkeypatch
):
    """Such a row was gone from the page, and so were all tables of the sets whose turn had not come."""
    assert _run(data, tmp_path, "--only", "direct", "--no-judges") == 0
    (records,) = (tmp_path / "real/2wiki/records").glob("direct-*.jsonl")
    first, second = read_jsonl(records)
    write_jsonl(records, [{**first, "error": "LMError: a hiccup"}, second])

    answer = RealWorkspace.answer

    def stopped(space, *args):
        if space.data.name == "musique":
            raise KeyboardInterrupt
        return answer(space, *args)

    monkeypatch.setattr(RealWorkspace, "answer", stopped)
    assert _run(data, tmp_path, "--only", "rag", "--no-judges") == 130
    before = read_json(tmp_path / "real/results.json")["sections"]
    monkeypatch.undo()
    capsys.readouterr()
    assert _run(data / "2wiki", tmp_path, "--only", "rag", "--no-judges", "--json") == 0
    tables = json.loads(capsys.readouterr().out)["experiments"]["real"]
    assert [row["program"] for row in tables[0]["rows"]] == ["direct", "rag"] and tables[1]["rows"][0]["errors"] == 1
    assert before[0]["columns"] == ["program", "2wiki EM", "2wiki F1", "musique EM", "musique F1"]


def test_a_row_that_cannot_be_run_costs_no_other_row_and_no_other_data_set(data, tmp_path, capsys, monkeypatch):
    """One such row ended the comparison on all data sets, with the rows after it."""
    opened = RealWorkspace.open

    def broken(space, setting):
        if setting.program == "rag" and space.data.name == "2wiki":
            raise InputError("no corpus at all")
        return opened(space, setting)

    monkeypatch.setattr(RealWorkspace, "open", broken)
    assert _run(data, tmp_path, "--only", "rag,direct", "--no-judges", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"]["real"] == {"2wiki: rag": "no corpus at all"}
    overview, *_ = found["experiments"]["real"]
    assert {row["program"] for row in overview["rows"]} == {"direct", "rag"}
    of_rag = next(row for row in overview["rows"] if row["program"] == "rag")
    assert of_rag["2wiki EM"] is None and of_rag["musique EM"]["n"] == 2
    assert "Left out: 2wiki: rag (no corpus at all)." in overview["text"]
    assert _run(data / "2wiki", tmp_path / "other", "--only", "rag", "--no-judges") == 2
    assert "no corpus at all" in capsys.readouterr().err
    monkeypatch.setattr(RealWorkspace, "answer", _down)
    assert _run(data, tmp_path / "down", "--only", "rag,direct", "--no-judges") == 1
    assert "the endpoint is down" in capsys.readouterr().err and not (tmp_path / "down/real/results.json").exists()


def test_judges_that_fail_and_rows_that_nobody_asked_for_cost_no_answers(data, tmp_path, capsys, monkeypatch):
    """One set's judges ended the comparison on all sets, as did a row of another run that could not be opened."""
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data/2wiki/corpus.jsonl").unlink()
    assert _run(tmp_path / "data", tmp_path / "out", "--only", "direct", "--no-judges") == 0

    def broken(programs, examples, folder, **options):
        if "2wiki" in str(folder):
            raise LMError("the judges hiccuped")
        return {}

    monkeypatch.setattr("raisf.experiments.real.judge_all", broken)
    capsys.readouterr()
    assert _run(data, tmp_path / "judged", "--only", "direct", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"]["real"] == {"2wiki: the judges alone": "the judges hiccuped"}
    assert all(found["experiments"]["real"][0]["rows"][0][f"{name} EM"]["n"] == 2 for name in data_sets)


def test_the_text_is_about_the_rows_that_are_shown():
    """`--only rag` told what eight other rows are, and of judges that nobody had asked."""
    assert about({"rag": ROWS["rag"]}, alone=True) == "rag: reads five passages."
    told = about({"no-know": ROWS["no-know"], "chains": ROWS["chains"]}, alone=False)
    assert told.startswith("no-...: weights-all without one of its judges. RA-ISF goes 2 ") and "alone" not in told
    assert "Judges alone are asked about the first 100" in about({"chains": ROWS["chains"]}, alone=True)


def _down(space, *_):
    space.lm_down = True
    raise LMError("the endpoint is down")


def test_strategyqa_is_counted_by_accuracy_in_all_tables(records):
    """Learning counted accuracy, and the overview, the routes and the tests exact match."""
    right = {
        label: {f"q{n}": records.record(n, False, accuracy=float(n < of)) for n in range(20)}
        for label, of in (("rag", 5), ("weights-all", 20))
    }
    spaces = {
        name: SimpleNamespace(measure=measure, seen={}) for name, measure in (("sq", "accuracy"), ("hp", "exact match"))
    }
    comparison = RealComparison(spaces, RowChoice())
    for name in spaces:
        comparison._tell(name, right, {})
    overview, *others = comparison.sections
    assert overview.columns == ["program", "sq accuracy", "hp EM", "hp F1"]
    assert "20 questions of hp" in overview.text and "Judges alone are asked about the first 100" in overview.text
    assert "zero-shot:" not in overview.text, "no row of this table"
    assert [cell.value for cell in overview.rows[0][1:]] == [0.25, 0.0, 0.0]
    tables = {section.title: section for section in others}
    answers, tested = tables["sq: answers"], tables["sq: differences in accuracy"]
    assert answers.columns[:4] == ["program", "accuracy", "F1", "recall"] and answers.rows[1][1].value == 1.0
    assert "Wilson's for accuracy, else" in answers.text
    assert tested.rows[0][1].value == 0.75 and "100.0%" in str(tables["sq: routes"].rows[1])
    assert tables["hp: answers"].columns[1:4] == ["exact match", "F1", "accuracy"]
    assert tables["hp: differences in exact match"].rows[0][1].value == 0.0


def test_trained_weights_go_to_whom_the_row_says(data, out, artifact):
    choice = RowChoice(programs=(("weights-all", str(artifact)), ("seed 1", str(artifact))))
    spaces = open_workspaces(out / "real", data, choice, lm=LMChoice("pocket"), n=3, engine="bm25")
    assert list(spaces) == list(data_sets)
    rows, space = choice.rows(), spaces["musique"]

    def trained(label):
        program = space.open(rows[label])
        return {name for name, predictor in program.named_predictors() if "pocket-tiny" in predictor.lm.model}

    judges = {"know", "relevant", "decompose"}
    assert trained("weights-judges") == judges
    everyone = {*judges, "answer_directly", "answer_from", "compose"}
    assert trained("weights-all") == trained("seed 1") == trained("no-know") == everyone
    assert trained("rag-reader") == {"answer_from"} and trained("rag") == trained("zero-shot") == set()
    opened = space.open(rows["no-know"])
    assert not opened.use_know and opened.relevance_threshold == 0.25 and opened.max_calls == 60
    other = raisf.RAISF(know="confidence")
    lend(other, space.open(rows["weights-all"]), ("know", "relevant"))
    assert (other.know_threshold, other.relevance_threshold) == (0.5, 0.25), "another kind has another scale"


@pytest.mark.slow
def test_another_judge_stands_in_the_trained_program_and_its_threshold_is_fitted(data, out, artifact, tmp_path):
    choice = RowChoice(programs=(("weights-all", str(artifact)),))
    options = {"lm": LMChoice("pocket"), "n": 3, "engine": "bm25"}
    (space,) = open_workspaces(tmp_path / "real", data / "musique", choice, **options).values()
    rows = choice.rows()
    assert space.answered(rows["know-confidence"]) is None and not (tmp_path / "real/musique/made/ra-isf").exists()
    program = space.open(rows["know-confidence"])
    assert program.self_knowledge == "confidence" and program.max_calls == 60
    assert program.decomposition == "chains" and program.confidence == "path", "all else is that of weights-all"
    (made,) = (tmp_path / "real/musique/made").glob("ra-isf-*")
    assert read_json(made / "manifest.json")["compile"]["calibration"]["aim"] == "answer"
    lms = {name: predictor.lm.model for name, predictor in program.named_predictors()}
    assert all("pocket-tiny" in model for model in lms.values()), lms
    truth = space.open(rows["know-truth"])
    assert "pocket-tiny" not in truth.know.lm.model, "what was trained to judge the question judges no draft"
    assert space.open(rows["know-truth"]).self_knowledge == "truth"
    assert len(list((tmp_path / "real/musique/made").glob("ra-isf-*"))) == 2, "each is made once"
    prompted = space.open(rows["prompts-judges"])
    answerers = {name for name, one in prompted.named_predictors() if "pocket-tiny" in one.lm.model}
    assert answerers == {"answer_directly", "answer_from", "compose"}, "the judges are the LM itself, with prompts"


def test_both_ways_are_compiled_where_no_artifact_is_given(data, tmp_path, monkeypatch):
    """What each row asks of the teleprompters; the training itself is tested with them."""
    asked = []

    def learnt():
        program = raisf.RAISF()
        program.set_lm(raisf.connect("pocket"))
        return program

    def named(how, strategy=None, **options):
        asked.append((how, strategy, options.get("predictors")))
        return type("Named", (), {"compile": lambda *_, **__: learnt()})()

    learnt()
    # As in a process that never used the facade: the command line trained, and could not save what it had.
    monkeypatch.setattr(Program, "write_folder", None)
    monkeypatch.setattr("raisf.optimize.compile.optimizer_named", named)
    space = RealWorkspace(tmp_path, data / "musique", given={}, lm=LMChoice("pocket"), n=3, engine="bm25")
    assert space.answered(ROWS["weights-all"]) is None and not asked, "looking is not compiling"
    for label in GIVEN:
        space.open(ROWS[label])
    assert [one[:2] for one in asked] == [
        ("prompts", None),
        ("prompts", "random"),
        ("weights", None),
        ("weights", None),
    ]
    assert asked[2][2] is None and asked[3][2] == "all"


def test_no_option_is_dropped(data, tmp_path, capsys, monkeypatch):
    """`real` took the LM of the environment, a base, a teacher and a checkpoint without a word, and used none."""
    made = []
    monkeypatch.setenv("RAISF_LM", "pocket-tiny")
    monkeypatch.setattr(
        "raisf.experiments.real.open_workspaces", lambda *_, **options: made.append(options) or pytest.fail("enough")
    )
    told = ["--base", "pocket-t5", "--teacher", "pocket", "--checkpoint", "mine"]
    with pytest.raises(pytest.fail.Exception):
        cli.main(["experiment", "real", "--data", str(data), "--out", str(tmp_path / "r"), *told])
    (options,) = made
    assert options["lm"].spec == "pocket-tiny" and options["base"] == "pocket-t5" and options["checkpoint"] == "mine"
    assert "pocket" in options["teacher"].model


def test_mistakes_are_told_before_anything_is_made(data, tmp_path, artifact, capsys):
    for more, said in (
        (["--only", "rga"], "no row 'rga'"),
        (["--program", f"rag={artifact}"], "rag is no artifact"),
        (["--program", "weights-all=nowhere"], "no folder"),
    ):
        assert _run(data, tmp_path / "r", *more) == 2
        assert said in capsys.readouterr().err
    assert _run(tmp_path, tmp_path / "r") == 2
    assert "raisf dataset" in capsys.readouterr().err
    assert cli.main(["experiment", "table2", "--no-judges", "--out", str(tmp_path / "r")]) == 2
    assert "--no-judges is for real, not for table2" in capsys.readouterr().err
    with pytest.raises(InputError, match="choose"):
        RowChoice(only=("",)).rows()


def test_a_page_keeps_its_words_and_shows_data_as_data(tmp_path):
    section = Section("A | B", ["program", "score"], [["a|b\nc", None], ["d", 0.5]], "n = 2.")
    page = tmp_path / "docs/page.md"
    for _ in range(2):
        write_markdown(page, "Title", {"data": "x"}, [section])
    text = page.read_text("utf-8")
    assert text.startswith(f"# Title\n\n{MARK}\n\n- data: x\n")
    assert "## A \\| B\n\nn = 2.\n\n| program | score |\n| --- | ---: |\n" in text
    assert text.rstrip().endswith("| d | 0.50 |") and text.count("| a\\|b") == 1
    page.write_text("# Mine\n\nMy own words.\n")
    write_markdown(page, "Title", {"data": "x"}, [section])
    assert page.read_text("utf-8").startswith(f"# Mine\n\nMy own words.\n\n{MARK}\n\n- data: x\n")


def test_a_page_that_cannot_be_written_is_told_before_the_work(data, out, capsys):
    latin = out.parent / "latin.md"
    latin.write_bytes("café\n".encode("latin-1"))
    for page in (latin, out.parent):
        assert _run(data, out.parent / "other", "--only", "direct", "--page", str(page)) == 2
        told = capsys.readouterr().err
        assert "is no page to write tables into" in told and not (out.parent / "other/real").exists()


def test_what_a_person_wrote_on_a_page_outlives_a_full_disk(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Mine\n\nWhat I found.\n\n{MARK}\n")
    section = Section("A", ["program"], [["long " * 50_000]], "n = 1.")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # meets the same error as a full disk
    try:
        with pytest.raises(RaisfError, match="nothing was replaced"):
            write_markdown(page, "Mine", {}, [section])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "What I found." in page.read_text()
