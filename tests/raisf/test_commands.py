"""The commands one after the other, as a person uses them, on a small closed world with the pocket Llama."""

import io

import pytest

import raisf
from raisf import cli
from raisf.experiments.opening import open_program
from raisf.utils.files import read_jsonl, write_jsonl
from tests.raisf.conftest import run_json


@pytest.fixture(scope="module")
def home(make_home):
    """A folder with a small world and its index, as the commands make them."""
    return make_home(train=24, dev=4, test=8)


@pytest.fixture(scope="module")
def artifact(home):
    """An artifact compiled on it."""
    files = ["--train", str(home / "world/train.jsonl"), "--dev", str(home / "world/dev.jsonl")]
    assert cli.main(["compile", *files, "--index", str(home / "index"), "--out", str(home / "artifact")]) == 0
    return home / "artifact"


@pytest.fixture(scope="module")
def question(home):
    """A question that takes several hops."""
    return next(row["question"] for row in read_jsonl(home / "world/test.jsonl") if row["hops"] > 1)


def test_asking_shows_the_answer_and_the_way_to_it(home, question, capsys):
    assert cli.main(["ask", question, "--index", str(home / "index")]) == 0
    shown = capsys.readouterr()
    assert "knows it?" in shown.out
    assert "LM calls" in shown.out
    assert "Traceback" not in shown.err


def test_asking_for_json_gives_the_whole_trace(home, question, capsys):
    answered = run_json(capsys, "ask", question, "--index", home / "index")
    assert answered["answer"] == answered["trace"]["root"]["answer"]
    assert answered["trace"]["cost"]["lm_calls"] > 1


def test_a_question_too_long_for_the_command_line_comes_by_standard_input(question, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{question}\n"))
    answered = run_json(capsys, "ask", "-", "--program", "direct", "--lm", "pocket")
    assert answered["trace"]["root"]["question"] == question


def test_the_limits_on_the_command_line_hold(home, question, capsys):
    found = run_json(capsys, "ask", question, "--index", home / "index", "--no-know", "--k", "2", "--max-calls", "3")
    assert found["trace"]["cost"]["lm_calls"] <= 3
    assert found["trace"]["root"]["know"] is None
    assert len(found["trace"]["root"]["passages"]) == 2


def test_an_artifact_remembers_its_index_and_takes_other_limits(artifact, question, capsys):
    found = run_json(capsys, "ask", question, "--program", artifact, "--max-depth", "0", "--k", "1")
    assert {node["route"] for node in found["trace"]["root"]["sub_questions"]} <= {"depth", "reference"}
    assert len(found["trace"]["root"]["passages"]) <= 1


def test_an_artifact_refuses_options_it_was_not_compiled_for(artifact, capsys):
    assert cli.main(["ask", "Who?", "--program", str(artifact), "--relevance", "listwise"]) == 2
    assert cli.main(["ask", "Who?", "--program", str(artifact), "--set", "evidence=false"]) == 2
    assert cli.main(["ask", "Who?", "--program", str(artifact), "--max-tokens", "9"]) == 2
    shown = capsys.readouterr().err
    assert "another --relevance: leave that option out, give --program ra-isf, or compile again" in shown
    assert "another evidence: leave that option out, give --program ra-isf, or compile again" in shown
    assert "--max-tokens without --lm" in shown


def test_overriding_an_option_keeps_the_demonstrations(artifact):
    compiled, other = open_program(str(artifact)), open_program(str(artifact), k=2)
    assert other.k == 2
    assert {n: p.demos for n, p in other.named_predictors()} == {n: p.demos for n, p in compiled.named_predictors()}


def test_an_artifact_is_one_line_of_python(artifact, question):
    assert raisf.load(artifact)(question=question).answer


def test_an_evaluation_goes_on_where_it_stopped(home, artifact, capsys, monkeypatch):
    monkeypatch.chdir(home)
    argv = ["eval", "--program", artifact, "--test", home / "world/test.jsonl"]
    first = run_json(capsys, *argv)
    records = home / first["out"]
    rows = list(read_jsonl(records))
    assert first["em"]["n"] == len(rows) == 8
    write_jsonl(records, rows[:5])
    again = run_json(capsys, *argv)
    assert again["out"] == first["out"]
    assert [row["id"] for row in read_jsonl(records)][:5] == [row["id"] for row in rows[:5]]
    assert again["em"] == first["em"]


def test_evaluations_under_other_settings_never_mix(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    argv = ["eval", "--program", "rag", "--index", home / "index", "--test", home / "world/test.jsonl", "--limit", "2"]
    assert len({run_json(capsys, *argv, *more)["out"] for more in ((), ("--k", "2"), ("--cache",))}) == 3


def test_ctrl_c_while_indexing_leaves_the_old_index_as_it_was(home, tmp_path, capsys, monkeypatch):
    from raisf.retrieval.store import words

    def interrupted(*args):
        raise KeyboardInterrupt

    before = (home / "index/manifest.json").read_bytes()
    monkeypatch.setattr(words, "words_of", interrupted)
    (tmp_path / "new.txt").write_text("Something else.")
    code = cli.main(["index", str(tmp_path / "new.txt"), "--engine", "bm25", "--out", str(home / "index")])
    assert code == 130
    assert "stands unchanged" in capsys.readouterr().err
    assert (home / "index/manifest.json").read_bytes() == before
    assert not list(home.glob(".index*"))


def test_ctrl_c_while_a_library_makes_its_classes_is_no_failure(capsys, monkeypatch):
    """Python 3.11 wraps it in a RuntimeError, which ended in a traceback and exit code 1."""
    from raisf.commands.eval import eval_command

    class Field:
        def __set_name__(self, owner, name):
            raise KeyboardInterrupt

    monkeypatch.setattr(eval_command, "callback", lambda **_: type("Imported", (), {"field": Field()}))
    assert cli.main(["eval", "--test", "questions.jsonl"]) == 130
    assert "interrupted: run the same command again" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["world", "index", "compile", "pocket train"])
def test_a_folder_with_other_things_is_never_replaced(command, home, tmp_path, capsys):
    thesis = tmp_path / "precious" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    needed = {
        "index": [home / "world/corpus.jsonl", "--engine", "bm25"],
        "compile": [
            "--train",
            home / "world/train.jsonl",
            "--dev",
            home / "world/dev.jsonl",
            "--index",
            home / "index",
        ],
    }
    argv = [*command.split(), *needed.get(command, []), "--out", thesis.parent]
    assert cli.main([str(word) for word in argv]) == 2
    assert "give a new folder" in capsys.readouterr().err
    assert thesis.read_text() == "years of work"


def test_collect_writes_the_judges_rows_and_refuses_a_test_split_that_overlaps(home, tmp_path, capsys):
    splits = ["--train", home / "world/train.jsonl", "--index", home / "index"]
    made = run_json(capsys, "collect", *splits, "--test", home / "world/test.jsonl", "--out", tmp_path / "judges")
    for judge, classes in made["rows"].items():
        assert len(list(read_jsonl(tmp_path / "judges" / f"{judge}.jsonl"))) == sum(classes.values()) > 0
    argv = ["collect", *splits, "--test", home / "world/train.jsonl", "--out", tmp_path / "other"]
    assert cli.main([str(word) for word in argv]) == 2
    assert "in the test split too" in capsys.readouterr().err
    assert cli.main(["collect", *map(str, splits), "--out", __file__]) == 2
    assert "is a file: give a folder" in capsys.readouterr().err


def test_any_option_of_a_program_can_be_set(home, question, capsys):
    argv = ["ask", question, "--program", "blendfilter", "--index", home / "index"]
    plain = run_json(capsys, *argv)
    less = run_json(capsys, *argv, "--set", "use_internal=False", "--set", "max_calls=None", "--set", "k=2")
    assert less["trace"]["cost"]["lm_calls"] < plain["trace"]["cost"]["lm_calls"]
    assert all(len(step["passages"]) <= 2 for step in less["trace"]["root"]["steps"])


@pytest.mark.parametrize(
    ("switch", "message"),
    [
        ("use_internal=maybe", "use_internal is 'maybe': give True or False"),
        ("k=many", "k is 'many': give a whole number, 1 or more"),
        ("max_calls=few", "max_calls is 'few': give a whole number, 1 or more, or None for no limit"),
        ("index=elsewhere", "blendfilter has no option 'index'"),
        ("nonsense", "expected NAME=VALUE"),
    ],
)
def test_an_option_that_does_not_fit_is_told_and_not_raised(home, capsys, switch, message):
    argv = ["ask", "Who?", "--program", "blendfilter", "--index", str(home / "index"), "--set", switch]
    assert cli.main(argv) == 2
    assert message in " ".join(capsys.readouterr().err.split())
