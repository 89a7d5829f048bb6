"""The command line as a person meets it."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from raisf import cli
from raisf.commands.result import facts_result

HAS_FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full: of Linux")
HEAVY = ("torch", "dspy", "transformers", "colbert", "datasets", "numpy", "rich")


def _run(*argv: str) -> int:
    return cli.main(argv)


def _modules_after(code: str) -> set[str]:
    """The names of all modules that a fresh interpreter holds after running some code."""
    code += "\nimport sys\nprint('modules:', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.rpartition("modules:")[2].split())


def test_help_answers_at_once_because_nothing_heavy_is_imported():
    loaded = _modules_after("from raisf import cli\ncli.main([])")
    assert "raisf.cli" in loaded
    assert not loaded & set(HEAVY)


def test_importing_the_facade_is_free():
    assert not _modules_after("import raisf") & set(HEAVY)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself_with_examples(command, capsys):
    assert _run(command, "--help") == 0
    assert f"raisf {command}" in capsys.readouterr().out.split("examples:")[1]


@pytest.mark.parametrize("family", ["colbert", "dense", "pocket"])
def test_a_family_says_in_whole_sentences_what_its_commands_do(family, capsys):
    assert _run(family, "--help") == 0
    commands = capsys.readouterr().out.split("commands:")[1].split("examples:")[0]
    assert commands.strip().endswith(".") and "..." not in commands


@pytest.mark.parametrize("command", [["index", "--out", "mine"], ["index", "add", "mine"]])
def test_files_that_a_shell_made_of_a_star_are_told_to_come_as_one_folder(command, capsys):
    assert _run(*command, "a.md", "b.md") == 2
    assert "extra argument (b.md): give one file or one folder" in capsys.readouterr().err


def test_a_question_without_quotes_is_told_to_have_them(capsys):
    assert _run("ask", "Where", "is", "it", "--index", "indexes/mine") == 2
    assert "extra arguments (is it): put the question in quotes" in capsys.readouterr().err


def test_help_is_not_offered_for_an_unknown_option(capsys):
    assert _run("ask", "Where?", "--model", "x") == 2
    assert "No such option '--model' (see: raisf ask --help)" in capsys.readouterr().err


@pytest.mark.parametrize("misspelt, action", [("inf", "info"), ("ad", "add"), ("delete", ""), ("docs", "")])
def test_a_misspelt_action_is_no_folder_of_documents(misspelt, action, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _run("index", misspelt, "indexes/mine") == 2
    offered = f"Nothing is at '{misspelt}'. Did you mean 'index {action}'? (see: raisf index --help)"
    said = capsys.readouterr().err
    assert (offered if action else "Missing option '--out'") in said


def test_documents_may_be_called_nearly_as_an_action(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checks").mkdir()
    assert _run("index", "checks", "--out", "made") == 2
    assert "no files in checks" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys):
    assert _run() == 0
    assert "commands:" in capsys.readouterr().out


WRONG = {
    "an unknown command": ["fly"],
    "an unknown option": ["ask", "Who?", "--colour", "red"],
    "no question": ["ask"],
    "an empty question": ["ask", "  ", "--program", "direct"],
    "a k of nothing": ["ask", "Who?", "--k", "0"],
    "a k that is no number": ["ask", "Who?", "--k", "many"],
    "a negative depth": ["ask", "Who?", "--max-depth", "-1"],
    "no time at all": ["ask", "Who?", "--max-seconds", "0"],
    "an unknown program": ["ask", "Who?", "--program", "ra-isv"],
    "a program that needs an index": ["ask", "Who?"],
    "an index that is not there": ["ask", "Who?", "--index", "nowhere"],
    "documents by a variable that is not set": ["index", "", "--out", "made"],
    "an index by a variable that is not set": ["index", "remove", " ", "a"],
    "documents that are not there": ["index", "nowhere", "--out", "made"],
    "a checkpoint for BM25": ["index", "docs.jsonl", "--out", "made", "--engine", "bm25", "--checkpoint", "minilm"],
    "training questions that are not there": ["compile", "--train", "no.jsonl", "--dev", "no.jsonl", "--out", "made"],
    "an unknown strategy": ["compile", "--strategy", "luck", "--train", "a", "--dev", "b", "--out", "made"],
    "test questions that are not there": ["eval", "--test", "no.jsonl", "--program", "direct"],
    "a world too small to split": ["world", "--entities", "10", "--out", "made"],
    "an unknown pocket action": ["pocket", "sell", "--out", "made"],
    "a demo of no questions": ["demo", "--questions", "0"],
    "too hot": ["ask", "Who?", "--program", "direct", "--temperature", "3"],
    "an empty language model": ["ask", "Who?", "--program", "direct", "--lm", ""],
    "an empty filter without an index": ["ask", "Who?", "--program", "direct", "--where", ""],
    "a retriever as an option": ["ask", "Who?", "--program", "direct", "--set", "retriever=5"],
    "a name as an option": ["ask", "Who?", "--program", "direct", "--set", "name=rag"],
    "brackets without end as an option": ["ask", "Who?", "--program", "direct", "--set", f"max_calls={'[' * 9000}"],
    "thirty years as an option": ["ask", "Who?", "--program", "direct", "--set", "max_seconds=1e10"],
    "a list as an option": ["ask", "Who?", "--program", "direct", "--set", "max_calls=[1]"],
    "a demo into a file": ["demo", "--out", __file__],
}


@pytest.mark.parametrize("argv", WRONG.values(), ids=WRONG.keys())
def test_a_users_mistake_gets_one_clear_line_and_leaves_nothing_behind(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _run(*argv) == 2
    shown = capsys.readouterr()
    assert "error: " in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named_without_a_traceback(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert _run("world", "--out", str(tmp_path / "file" / "world")) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_link_to_itself_is_no_place(capsys, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for out in (tmp_path / "loop", tmp_path / "loop" / "world"):
        assert _run("world", "--entities", "300", "--out", str(out)) == 2
        assert "give another place" in capsys.readouterr().err


def test_json_is_all_there_is_on_standard_output(capsys, tmp_path):
    assert _run("world", "--entities", "300", "--out", str(tmp_path / "world"), "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["entities"] == 300
    assert (tmp_path / "world" / "corpus.jsonl").is_file()


def test_what_speaks_json_itself_takes_no_json_option(capsys):
    """It was taken, and did nothing."""
    assert cli.main(["mcp", "indexes/none", "--json"]) == 2
    assert "No such option" in capsys.readouterr().err
    assert cli.main(["mcp", "--help"]) == 0
    assert "print the result as JSON" not in capsys.readouterr().out


def test_leaving_takes_no_time_because_nothing_is_searched_for_garbage():
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))\nfrom raisf import cli\n"
    run = subprocess.run([sys.executable, "-c", code + "cli.main([])"], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("True\n")


PROGRAMS = "from raisf.cli import main; import sys; sys.exit(main(sys.argv[1:]))", "programs"


@HAS_FULL
def test_a_full_disk_under_standard_output_is_told_and_not_raised():
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-c", *PROGRAMS], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr == "error: the work is done, but its outcome cannot be written (No space left on device)\n"


WITH_A_BAR = """
from raisf.commands.programs import programs_command
from raisf.commands.result import facts_result
from raisf.utils.progress import ProgressBars

def work():
    with ProgressBars() as bars:
        bars.advance(bars.add_task("asking", total=1))
    return facts_result({"done": 1})

programs_command.callback = work
"""


@HAS_FULL
@pytest.mark.parametrize("asked", [["programs", "--json"], ["fly"]])
@pytest.mark.parametrize("lost", ["its reader is gone", "its disk is full"])
def test_standard_error_that_cannot_be_written_costs_no_work_and_no_exit_code(lost, asked):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, gone = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(gone, "w") as pipe:
        code = [sys.executable, "-c", WITH_A_BAR + PROGRAMS[0], *asked]
        stderr = full if "full" in lost else pipe
        run = subprocess.run(code, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    assert (run.returncode, run.stdout) == ((2, "") if asked == ["fly"] else (0, '{\n  "done": 1\n}\n'))


@pytest.mark.parametrize("wanted", [[], ["--json"]])
def test_what_a_plain_terminal_cannot_show_does_not_cost_the_outcome(wanted, monkeypatch):
    from raisf.commands.programs import programs_command

    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(programs_command, "callback", lambda: facts_result({"answer": "✓ Café → Ωμέγα ✗"}))
    assert _run("programs", *wanted) == 0
    text = shown.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert json.loads(text) == {"answer": "✓ Café → Ωμέγα ✗"} if wanted else "+ Caf? ? ????? -" in text


def test_ctrl_c_while_the_outcome_is_printed_ends_as_any_ctrl_c(capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("raisf.commands.command.show", interrupted)
    assert _run("programs") == 130
    assert "interrupted" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch):
    from raisf.commands.eval import eval_command

    def interrupted(**arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(eval_command, "callback", interrupted)
    assert _run("eval", "--test", "questions.jsonl") == 130
    assert "run the same command again" in capsys.readouterr().err


def test_an_option_of_several_files_takes_them_one_after_the_other_or_each_by_its_name(monkeypatch):
    from raisf.commands.colbert import colbert_train_command

    seen = []
    monkeypatch.setattr(colbert_train_command, "callback", lambda **given: seen.append(given) or facts_result({}))
    for argv in (
        ["a.json", "b.json", "--test", "c", "d"],
        ["a.json", "--questions", "b.json", "--test", "c", "--test=d"],
    ):
        assert _run("colbert", "train", "--out", "made", "--questions", *argv) == 0
    first, second = seen
    assert first == second and [len(first[name]) for name in ("questions", "test")] == [2, 2]


def test_the_values_of_options_mean_what_they_meant(monkeypatch):
    from raisf.commands.compile import compile_command

    seen = {}
    monkeypatch.setattr(compile_command, "callback", lambda **given: seen.update(given) or facts_result({}))
    files = ["--train", "t", "--dev", "d", "--out", "o"]
    assert _run("compile", *files, "--calibrate", "--no-know", "--set", "k=2", "--set", "mode=fast") == 0
    assert seen["aim"] == "answer" and seen["use_know"] is False and seen["use_relevance"] is None
    assert seen["switches"] == (("k", 2), ("mode", "fast"))
    assert seen["strategy"] is None and seen["how"] == "prompts" and seen["full"] is False
    assert _run("compile", *files, "--calibrate", "cost", "--call-price", "0.1") == 0
    assert seen["aim"] == "cost" and seen["call_price"] == 0.1
    assert _run("compile", *files) == 0 and seen["aim"] is None and seen["use_know"] is None


SLOW = """
import sys, time
from raisf import cli
from raisf.programs.concurrency import Task
from raisf.commands.programs import programs_command

def show(*args, **options):
    Task(lambda: time.sleep(60))  # such as a call to an endpoint that is slow
    print("asked", flush=True)
    time.sleep(60)

sys.modules["raisf.commands.command"].show = show
sys.argv = ["raisf", "programs"]
sys.exit(cli.main())
"""


def test_ctrl_c_ends_the_command_while_other_threads_still_ask() -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stdout.readline() == b"asked\n"
        run.send_signal(signal.SIGINT)
        assert b"interrupted" in run.communicate(timeout=20)[1]
    assert run.returncode == 130


@pytest.mark.parametrize("asked", [["--version"], ["chat", "--program", "direct", "--lm", "pocket"]])
def test_a_closed_stream_is_an_empty_one(asked, monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert cli.main(asked) == 0


def test_a_line_of_another_encoding_costs_a_piped_chat_that_question_alone(monkeypatch, capsys):
    lines = b"Where is alpha?\nWho is Ren\xe9e?\nWhere is beta?\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines), "utf-8", "surrogateescape"))
    assert _run("chat", "--program", "direct", "--lm", "pocket", "--json") == 1
    shown = capsys.readouterr()
    first, second, third = json.loads(shown.out)["answers"]
    assert first["answer"] and third["answer"] and "not valid Unicode" in second["error"]
    assert "Traceback" not in shown.err


def test_ctrl_c_in_a_piped_chat_shows_what_was_answered_and_asks_no_more(monkeypatch, capsys):
    asked = []

    def stopped_at_the_second(program, question, reword):
        asked.append(question)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return dspy.Prediction(answer="Ada")

    import dspy

    from raisf.commands import live

    monkeypatch.setattr(live, "ask_live", stopped_at_the_second)
    monkeypatch.setattr(sys, "stdin", io.StringIO("Who is alpha?\nWho is beta?\nWho is gamma?\n"))
    assert _run("chat", "--program", "direct", "--lm", "pocket", "--json") == 130
    shown = capsys.readouterr()
    assert [one["answer"] for one in json.loads(shown.out)["answers"]] == ["Ada"] and len(asked) == 2
    assert "stopped at: " in shown.err and "beta" in shown.err


def test_a_piped_chat_prints_each_answer_at_once_and_on_one_line(monkeypatch, capsys):
    """Folded at 80 columns and printed at the end, hours of answers could not be read by a program, and were late."""
    import dspy

    from raisf.commands import live

    question, printed = "Who is alpha? " * 10, []

    def answered(program, question, reword):
        printed.append(capsys.readouterr())
        return dspy.Prediction(answer="Ada\n\tof\x1b[1m Velm")

    monkeypatch.setattr(live, "ask_live", answered)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{question}\nAnd who is beta?\n"))
    assert _run("chat", "--program", "direct", "--lm", "pocket") == 0
    shown = capsys.readouterr()
    assert [before.out for before in printed] == ["", f"{question.strip()}\tAda of\u241b[1m Velm\n"]
    assert shown.out == "And who is beta?\tAda of\u241b[1m Velm\n"
    assert "asked as it stands" in printed[0].err  # pocket cannot tell what "it" is, and nobody was told
