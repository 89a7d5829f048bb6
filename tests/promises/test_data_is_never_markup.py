"""Promises: what stands in a passage, a question, a label, an answer or a file's name is shown, and does nothing.

Without them a stranger's document could rewrite the terminal, and a label with a bracket cost a finished comparison.
"""

import ast
import html
import io
import json
import logging
import re
import unicodedata
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from raisf import cli
from raisf.programs.rendering import render
from raisf.programs.trace import Cost, JudgedPassage, Judgement, Node, Step, Trace
from raisf.reports.sections import Section
from raisf.utils.display import DataTable, as_text, console
from raisf.utils.files import write_jsonl
from raisf.utils.progress import ProgressBars
from raisf.utils.text import one_line, plot_label, visible, visible_json
from tests.raisf.serving.page_script import run_in_node

ROOT = Path(__file__).parents[2]
PACKAGES = ("src", "optimize", "programs", "evaluation", "retrieval", "lm", "data", "utils")
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m[/b] [red] :smile: \u202eb\r"
"""It sets a window's title, clears the screen, is no rich markup, and is read from right to left."""


def is_harmless(text: str) -> bool:
    """Whether a terminal does nothing but show it: no control character but tabs and line breaks, no reordering."""
    return not any(
        (unicodedata.category(one) == "Cc" and one not in "\n\t") or one in "\u202a\u202b\u202c\u202d\u202e\u2066\u2069"
        for one in text
    )


def printed(view: object) -> str:
    """What our console writes of something."""
    file = io.StringIO()
    out = console()
    out.file = file
    out.print(view)
    return file.getvalue()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with hostile documents, their index, and questions of hostile kinds in a folder with a hostile name."""
    folder = tmp_path_factory.mktemp("home")
    rows = [{"id": f"p{n}", "title": f"{HOSTILE} {n}", "text": f"Belrin's mayor {n} {HOSTILE}"} for n in range(4)]
    write_jsonl(folder / "corpus.jsonl", rows)
    tests = folder / "tests[/x]" / "t.jsonl"
    tests.parent.mkdir(parents=True)
    asked = [{"question": f"Who is mayor {n}? {HOSTILE}", "answer": "Bob", "kind": "[/kind]"} for n in range(2)]
    asked += [{"question": f"Where is {n}? {HOSTILE}", "answer": "no", "kind": f"$x$ {HOSTILE}"} for n in range(2)]
    write_jsonl(tests, asked)
    argv = ["index", str(folder / "corpus.jsonl"), "--engine", "bm25", "--out", str(folder / "index")]
    assert cli.main(argv) == 0
    return folder


def test_an_evaluation_over_hostile_kinds_in_a_hostile_folder_shows_its_table(home, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    test = home / "tests[/x]/t.jsonl"
    argv = ["eval", "--program", "direct", "--test", str(test), "--out", str(home / "records.jsonl"), "--lm", "pocket"]
    assert cli.main(argv) == 0
    shown = capsys.readouterr()
    assert "exact match, [/kind]" in shown.out and "exact match, $x$ a␛]0;owned␇" in shown.out
    assert "tests[/x]/t.jsonl" in "".join(shown.out.split())
    assert is_harmless(shown.out) and is_harmless(shown.err)


def test_a_comparison_with_hostile_labels_shows_its_tables_and_draws_its_figures(home, capsys):
    labels = ["direct", "[/x]=direct", r"a$\frac$=direct", "_hidden=direct", f"{HOSTILE.strip()}=direct"]
    argv = ["compare", "--programs", ",".join(labels), "--test", str(home / "tests[/x]/t.jsonl"), "--no-judges"]
    assert cli.main([*argv, "--out", str(home / "report"), "--lm", "pocket"]) == 0
    shown = capsys.readouterr()
    for label in ("[/x]", r"a$\frac$", "_hidden", "a␛]0;owned␇"):
        assert label in shown.out
    assert is_harmless(shown.out) and is_harmless(shown.err)
    page = (home / "report/report.html").read_text("utf-8")
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    for label in ("[/x]", r"a$\frac$", "_hidden", "a␛]0;owned␇"):
        assert label in drawings, "each program is named in the figures"
    assert is_harmless(page)


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["tree", "json"])
def test_asking_over_hostile_passages_prints_no_control_character(home, capsys, more):
    argv = ["ask", f"Who is Belrin's mayor? {HOSTILE}", "--program", "rag", "--index", str(home / "index")]
    assert cli.main([*argv, "--lm", "pocket", *more]) in (0, 1), "1 where the reply could not be read"
    shown = capsys.readouterr()
    assert is_harmless(shown.out) and is_harmless(shown.err)
    if more:
        kept = json.loads(shown.out)["trace"]["root"]["passages"]
        assert kept and all("\x1b[2J" in passage["text"] for passage in kept), "JSON is the data as it is"
    else:
        assert "␛[2J" in shown.out


def test_the_pages_show_hidden_characters_as_the_terminal_does():
    script = (ROOT / "utils/visible.js").read_text("utf-8")
    work = "const every = Array.from({ length: 0xd800 }, (_, code) => visible(String.fromCharCode(code)));"
    assert run_in_node(f"{script}{work}console.log(JSON.stringify(every))") == [visible(chr(n)) for n in range(0xD800)]


MISTAKES = {
    "a program": ["ask", "Who?", "--program", HOSTILE],
    "an own program": ["ask", "Who?", "--program", f"{HOSTILE}:X"],
    "an option": ["ask", "Who?", f"--{HOSTILE}"],
    "a command": [HOSTILE],
    "a file": ["eval", "--test", f"{HOSTILE}.jsonl", "--program", "direct"],
    "a number": ["ask", "Who?", "--k", HOSTILE],
    "a switch": ["ask", "Who?", "--program", "direct", "--set", f"{HOSTILE}=1"],
    "an index": ["ask", "Who?", "--index", HOSTILE],
    "a filter": ["index", "remove", HOSTILE, "--where", HOSTILE],
}


@pytest.mark.parametrize("argv", MISTAKES.values(), ids=MISTAKES.keys())
def test_an_error_that_quotes_hostile_data_prints_no_control_character(argv, capsys):
    assert cli.main(argv) == 2
    shown = capsys.readouterr()
    assert "error: " in shown.err and is_harmless(shown.err) and shown.out == ""


def test_a_warning_that_names_a_hostile_file_prints_no_control_character(capfd, monkeypatch):
    assert cli.main([]) == 0
    monkeypatch.setattr(logging.getLogger("raisf.test"), "propagate", False)  # pytest's own handlers are on the root
    logging.getLogger("raisf.test").warning("%s has no text", HOSTILE)
    said = capfd.readouterr().err
    assert "has no text" in said and is_harmless(said)


def test_a_progress_bar_with_hostile_words_is_shown_as_it_stands(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with ProgressBars() as bars:
        bars.update(bars.add_task(f"reading {HOSTILE}", total=2), advance=2, score=HOSTILE)
    said = capsys.readouterr().err
    assert said.count("[/b] [red]") == 2 and is_harmless(said)


def test_a_hostile_trace_is_drawn_as_text_and_a_title_stays_on_its_line():
    passage = JudgedPassage(
        pid="1", title=f"{HOSTILE}\nforged", text=HOSTILE, citation=HOSTILE, judgement=Judgement(verdict="relevant")
    )
    node = Node(question=HOSTILE, answer=HOSTILE, reason=HOSTILE, evidence=HOSTILE, passages=[passage])
    node.sub_questions = [Node(question=HOSTILE, steps=[Step(generation=HOSTILE, query=HOSTILE, passages=[passage])])]
    shown = printed(render(Trace(system="rag", root=node, cost=Cost())))
    assert is_harmless(shown) and "[/b] [red]" in shown
    assert not any(line.strip("│├└─ ").startswith("forged") for line in shown.splitlines())


def test_a_section_with_hostile_cells_is_the_same_in_the_terminal_and_in_its_csv(tmp_path):
    section = Section("Answers", ["program", HOSTILE], [[HOSTILE, 1.0], ["[/]", None]], text=HOSTILE)
    assert is_harmless(printed(section.view())) and "[/b] [red]" in printed(section.view()).replace("\n", " ")
    section.write(tmp_path)
    assert HOSTILE.rstrip("\r") in (tmp_path / "answers.csv").read_text("utf-8")


@given(st.text())
def test_any_text_is_made_harmless_once_and_plain_text_stays_as_it_is(text):
    shown = visible(text)
    assert is_harmless(shown) and visible(shown) == shown
    assert "\n" not in one_line(text) and is_harmless(one_line(text))
    if is_harmless(text) and not set(text) & set("\u061c\u200e\u200f\u2067\u2068\u2028\u2029"):
        assert shown == text


@given(st.dictionaries(st.text(), st.text()))
def test_any_json_for_a_terminal_is_harmless_and_the_same_value(value):
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert is_harmless(text) and json.loads(text) == value


@given(st.text(alphabet=st.sampled_from("[]/\\abr:$=\x1b\x07 "), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_string_in_a_table_is_text_for_anybodys_console(text):
    table = DataTable(text, title=text, caption=text)
    table.add_column(text)
    table.add_row(text, as_text(text))
    file = io.StringIO()
    Console(file=file, width=300, markup=True).print(table)
    assert is_harmless(file.getvalue()) and visible(text).strip() in file.getvalue()


LABELS = ["a$\\frac$", "$$", "$x_1$", "\\$", "$", "_x", "\x1b$[", "a\\$b$c", "%", "^_{", "\u202e", "漢字"]


@pytest.mark.parametrize("label", LABELS)
def test_any_label_can_be_drawn_and_stands_in_the_legend(label):
    from matplotlib.figure import Figure

    figure = Figure()
    panel = figure.subplots()
    panel.plot([0, 1], label=plot_label(label))
    panel.set_yticks([0.5], [plot_label(label)])
    legend = panel.legend()
    assert len(legend.get_texts()) == 1
    section = Section("Answers", ["program"], [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning would stand among the command's own words
        section.draw(figure)
    assert visible(label) in html.unescape(section.drawings[0])


def test_our_console_shows_even_what_was_not_prepared():
    assert is_harmless(printed(Text(HOSTILE))) and is_harmless(printed(HOSTILE)) and "[red]" in printed(HOSTILE)


def test_there_is_one_place_where_data_becomes_text():
    """Tables, consoles and bars that take strings for markup are made in `utils.display` and `utils.progress` alone."""
    makers = {"Console", "Table", "Progress", "track", "Panel", "Prompt"}
    for path in [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]:
        if path.relative_to(ROOT).as_posix() in ("utils/display.py", "utils/progress.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called.rpartition(".")[2] not in {"from_markup", "render_str"}, path
            assert called not in makers, f"{path.relative_to(ROOT)} makes a {called}: take raisf.utils.display's"
