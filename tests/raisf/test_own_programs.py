"""`--program package.module:Class`: a user compares a program of her own with ours, without a fork."""

import sys

import pytest

import raisf
from raisf import cli
from raisf.data.questions import load_questions
from raisf.experiments.opening import LMChoice, open_program
from raisf.experiments.own import load_class
from raisf.utils.files import read_json
from tests.raisf.conftest import run_json
from tests.scripted import ScriptedLM

MODULE = '''
import dspy
import raisf
from mine.words import PREFIX

class Wrapped(dspy.Module):
    """A module around one of ours, with an option of her own."""
    def __init__(self, retriever, k=5, prefix=PREFIX):
        super().__init__()
        self.rag, self.prefix = raisf.RAG(retriever, k=k), prefix

    def forward(self, question):
        found = self.rag(question=question)
        return dspy.Prediction(answer=self.prefix + found.answer)

class Guess(dspy.Module):
    """Takes nothing, and keeps no trace."""
    def forward(self, question):
        return dspy.Prediction(answer="42")

class OurKind(raisf.Program):
    """A raisf.Program: its trace is drawn."""
    system = "our-kind"
    def __init__(self, retriever=None, k=3, max_calls=None, max_seconds=None):
        super().__init__(retriever, max_calls, max_seconds)
        self.k = k
        self.answer = raisf.Direct().answer_directly

    def _answer(self, run, question):
        with run.node(question) as node:
            run.settle(node, "direct", "from memory", self.answer)
        return node

class Needy(dspy.Module):
    def __init__(self, colour):
        super().__init__()
    def forward(self, question): ...

class Broken(dspy.Module):
    def __init__(self):
        raise RuntimeError("out of order")
    def forward(self, question): ...

class Other(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(response="42")

class Text(dspy.Module):
    def forward(self, question):
        return "42"

class Idle(dspy.Module):
    """Cannot be asked."""

class Query(dspy.Module):
    def forward(self, query): ...

class Remembers(dspy.Module):
    """Asks an LM of its own besides, and reads what that has cost."""
    def __init__(self):
        super().__init__()
        self.answer, self.hers = dspy.Predict("question -> answer"), dspy.LM("openai/hers", api_key="k")
    def forward(self, question): ...

def function(question): ...
'''


@pytest.fixture(scope="module")
def home(make_home):
    """A folder with a small world, its index, and a package of the user's."""
    folder = make_home(train=4, dev=4, test=4)
    (folder / "mine").mkdir()
    (folder / "mine/rag.py").write_text(MODULE)
    (folder / "mine/words.py").write_text("PREFIX = ''")
    (folder / "bad.py").write_text("import nowhere_to_be_found")
    (folder / "quits.py").write_text("raise SystemExit('bye')")
    return folder


@pytest.fixture(autouse=True)
def here(home, monkeypatch):
    """Works in that folder, as a user does; what it imports is forgotten."""
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("mine", "bad", "quits"):
            del sys.modules[name]


def test_a_module_of_ones_own_answers_with_the_retriever_and_the_options_it_takes(capsys):
    argv = ["ask", "Who?", "--program", "mine.rag:Wrapped", "--index", "index", "--k", "2"]
    found = run_json(capsys, *argv, "--set", "prefix=It is ")
    assert found["answer"].startswith("It is ") and found["trace"] is None
    assert cli.main(["ask", "Who?", "--program", "mine.rag:Guess"]) == 0
    assert capsys.readouterr().out == "42\n"


def test_a_program_of_our_kind_is_drawn(capsys):
    assert cli.main(["ask", "Who?", "--program", "mine.rag:OurKind", "--lm", "pocket"]) == 0
    assert "from memory" in capsys.readouterr().out


def test_it_is_evaluated_and_asked_again_after_a_change_in_its_code(home, capsys):
    argv = ["eval", "--program", "mine.rag:Guess", "--test", "world/test.jsonl"]
    first = run_json(capsys, *argv)
    assert first["em"]["n"] == 4 and first["out"].startswith("runs/mine.rag.Guess-test-")
    assert run_json(capsys, *argv)["out"] == first["out"]
    words = home / "mine/words.py"
    (home / "mine/rag.py").write_text(MODULE.replace('"42"', '"43"'))
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]
    try:
        second = run_json(capsys, *argv)
        assert second["out"] != first["out"]
        words.write_text("PREFIX = 'The '")
        assert run_json(capsys, "eval", "--program", "mine.rag:Wrapped", "--index", "index", *argv[3:])["em"]["n"] == 4
    finally:
        (home / "mine/rag.py").write_text(MODULE)
        words.write_text("PREFIX = ''")


def test_it_is_compared_with_ours_under_a_label(capsys):
    programs = "direct,rag,mine=mine.rag:Wrapped,guess=mine.rag:Guess"
    argv = ["compare", "--programs", programs, "--index", "index", "--test", "world/test.jsonl", "--k", "2"]
    found = run_json(capsys, *argv, "--out", "report", "--no-judges")
    assert list(found["programs"]) == ["direct", "rag", "mine", "guess"]
    assert found["programs"]["mine"]["em"] == found["programs"]["rag"]["em"], "the same retrieval, reading and k"


@pytest.mark.slow
def test_it_is_compiled_and_its_artifact_is_opened_by_naming_the_class(home, capsys):
    files = ["--train", "world/train.jsonl", "--dev", "world/dev.jsonl", "--index", "index", "--out", "artifact"]
    made = run_json(capsys, "compile", "--program", "mine.rag:Wrapped", *files, "--strategy", "bootstrap")
    assert made["out"] == "artifact"
    assert run_json(capsys, "ask", "Who?", "--program", "mine.rag:Wrapped@artifact")["trace"] is None
    assert cli.main(["ask", "Who?", "--program", "mine.rag:Wrapped@artifact", "--k", "2"]) == 2
    assert "keeps the options it was compiled with" in capsys.readouterr().err
    argv = ["compare", "--programs", "rag,mine=mine.rag:Wrapped@artifact", "--index", "index", "--k", "2"]
    found = run_json(capsys, *argv, "--test", "world/test.jsonl", "--out", "report2", "--no-judges")
    assert list(found["programs"]) == ["rag", "mine"]


def test_its_artifact_asks_where_the_user_says_that_its_lm_is_served(monkeypatch):
    """--api-base was lost on the way, and the error asked for it."""
    program = load_class("mine.rag:OurKind")()
    program.set_lm(raisf.connect("openai/model-of-hers", api_base="http://127.0.0.1:9/v1"))
    raisf.save(program, "served")
    lm = LMChoice(api_base="http://127.0.0.1:8/v1")
    assert open_program("mine.rag:OurKind@served", lm=lm).answer.lm.endpoint.place == lm.api_base
    assert LMChoice().at_a_time(["mine.rag:OurKind@served"]) == 8
    monkeypatch.chdir("served")
    assert LMChoice().at_a_time(["mine.rag:OurKind"]) == 32, "the class is no artifact, whatever lies here"


def test_an_lm_that_its_artifact_does_not_bring_keeps_its_history():
    program = load_class("mine.rag:Remembers")()
    program.set_lm(raisf.connect("openai/x"))
    raisf.save(program, "remembers")
    found = open_program("mine.rag:Remembers@remembers")
    for lm in (found.hers, found.answer.lm):
        lm.update_history({"cost": 1})
    assert (found.hers.history, found.answer.lm.history) == ([{"cost": 1}], [])


WRONG = {
    "no such module": (["nosuch.module:X"], "no module 'nosuch' for the program nosuch.module:X"),
    "no such part": (["mine.nosuch:X"], "no module 'mine.nosuch'"),
    "no such class": (["mine.rag:Nope"], "its programs are Wrapped, Guess, OurKind, Needy, Broken, Other, "),
    "not a class": (["mine.rag:function"], "give a subclass of dspy.Module, or of raisf.Program"),
    "an artifact that is not there": (["mine.rag:Guess@nowhere"], "no artifact at nowhere"),
    "no name": (["mine.rag:"], "write package.module:Class"),
    "no python name": (["no name:X"], "no program 'no name:X': write package.module:Class"),
    "its import fails": (["bad:X"], "importing bad ends with ModuleNotFoundError: No module named 'nowhere_to_be_foun"),
    "its import quits": (["quits:X"], "importing quits ends with SystemExit: bye"),
    "an option it has not": (["mine.rag:Wrapped", "--index", "index", "--max-depth", "2"], "has no option 'max_depth'"),
    "an index it does not take": (["mine.rag:Guess", "--index", "index"], "has no parameter `retriever`"),
    "no index": (["mine.rag:Wrapped"], "retrieves passages: give --index"),
    "an argument that nobody gives": (["mine.rag:Needy"], "give --set colour=VALUE"),
    "its constructor fails": (["mine.rag:Broken"], "cannot be made: RuntimeError: out of order"),
    "a prediction without an answer": (["mine.rag:Other"], "Other gave a prediction with response: let its forward"),
    "no prediction": (
        ["mine.rag:Text", "--live"],
        "Text gave a str: let its forward return dspy.Prediction(",
    ),
    "nothing to ask": (["mine.rag:Idle"], "mine.rag:Idle has no forward: give it forward(self, question)"),
    "another question": (["mine.rag:Query"], "its forward takes (self, query), and is called with question=..."),
}


@pytest.mark.parametrize(("argv", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_with_it_is_one_clear_line(argv, message, capsys):
    assert cli.main(["ask", "Who?", "--program", *argv]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and "Traceback" not in shown.err and shown.out == ""


@pytest.mark.parametrize("name", ["Other", "Text"])
def test_a_module_without_answers_is_not_taken_for_one_that_is_never_right(name, capsys):
    asked = ["eval", "--program", f"mine.rag:{name}", "--test", "world/test.jsonl", "--out", f"{name}.jsonl"]
    assert cli.main(asked) == 2
    assert f"{name} gave " in capsys.readouterr().err


def test_programs_are_compared_from_python_in_memory_and_in_a_folder(home, tmp_path):
    test = load_questions("world/test.jsonl")
    lm = ScriptedLM(lambda fields: {"evidence": "x is it.", "answer": "x"})
    programs = {"direct": raisf.Direct(), "rag": raisf.RAG(raisf.open_index("index"), k=2)}
    for program in programs.values():
        program.set_lm(lm)
    report = raisf.compare(programs, test, judges=False, progress=False)
    assert list(report.results["programs"]) == ["direct", "rag"] and len(report.results["pairs"]) == 1
    assert {"answers", "cost", "routes", "differences-in-exact-match"} <= set(report.sections)
    assert set(report.records["rag"]) == {str(example.id) for example in test}
    kept = raisf.compare(programs, test, tmp_path / "report", judges=False, progress=False)
    assert read_json(tmp_path / "report/results.json")["programs"] == kept.results["programs"]
    assert (tmp_path / "report/report.html").is_file()
    asked = len(lm.calls)
    raisf.compare(programs, test, tmp_path / "report", judges=False, progress=False)
    assert len(lm.calls) == asked, "what is in the folder is not asked again"
    with pytest.raises(raisf.InputError, match="no program to compare"):
        raisf.compare({}, test)
    with pytest.raises(raisf.InputError, match=r"no program to compare in a list: give some by label"):
        raisf.compare([raisf.Direct()], test)  # type: ignore[arg-type]
