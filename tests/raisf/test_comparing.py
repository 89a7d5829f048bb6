"""`raisf compare` as a person uses it, with the pocket Llama."""

import csv
import json
import re
import shutil
from html.parser import HTMLParser

import dspy
import pytest
from dspy.utils.exceptions import LMServerError

import raisf
from raisf import cli
from raisf.data.questions import load_questions
from raisf.evaluation.metrics import exact_match
from raisf.experiments.comparing import judge_all
from raisf.experiments.opening import without_cache
from raisf.lm.connect import connect
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.reports.report import judge_sections
from raisf.retrieval.index import open_index
from raisf.utils.files import read_json, read_jsonl, write_json, write_jsonl
from tests.scripted import ScriptedLM


@pytest.fixture(scope="module")
def home(make_home):
    """A folder with a small world, its index and an artifact."""
    folder = make_home(train=20, dev=4, test=6)
    files = ["--train", str(folder / "world/train.jsonl"), "--dev", str(folder / "world/dev.jsonl")]
    assert cli.main(["compile", *files, "--index", str(folder / "index"), "--out", str(folder / "prompts")]) == 0
    return folder


def _argv(home, out, *more):
    programs = f"direct,rag,zero-shot=ra-isf,{home / 'prompts'}"
    files = ["--test", str(home / "world/test.jsonl"), "--index", str(home / "index"), "--out", str(out)]
    return ["compare", "--programs", programs, *files, *more]


@pytest.fixture(scope="module")
def report(home):
    """The report of a comparison of four programs."""
    assert cli.main(_argv(home, home / "report")) == 0
    return home / "report"


def test_the_same_questions_are_answered_by_all_and_every_pair_is_tested(home, report):
    results = read_json(report / "results.json")
    assert list(results["programs"]) == ["direct", "rag", "zero-shot", "prompts"]
    assert all(one["em"]["n"] == 6 for one in results["programs"].values())
    asked = len(set(results["records"].values()))  # compiled, the last one may be the third
    assert len(results["pairs"]) == asked * (asked - 1) / 2 >= 3
    gold = {row["id"]: row["answers"] for row in read_jsonl(home / "world/test.jsonl")}
    records = list(read_jsonl(next((report / "records").glob("rag-*.jsonl"))))
    assert {record["id"] for record in records} == set(gold)
    right = sum(exact_match(record["prediction"], gold[record["id"]]) for record in records)
    assert results["programs"]["rag"]["em"]["value"] == pytest.approx(right / 6)


def test_answers_that_lack_what_is_not_scored_are_compared_as_without(home, report, tmp_path):
    """Earlier versions told less of an answer: `eval` and `view` took it, and this ended in a traceback."""
    shutil.copytree(report, tmp_path / "report")
    (file,) = (tmp_path / "report/records").glob("rag-*.jsonl")
    write_jsonl(
        file, [{k: v for k, v in row.items() if k not in ("unreadable", "accuracy")} for row in read_jsonl(file)]
    )
    assert cli.main(_argv(home, tmp_path / "report", "--no-judges")) == 0
    assert read_json(tmp_path / "report/results.json")["programs"]["rag"]["accuracy"]["value"] == 0


def test_one_program_under_two_labels_is_told(home, tmp_path, caplog):
    """Between them stood a difference of nothing with an interval, as between two systems that agree."""
    programs = {label: RAISF(open_index(home / "index")) for label in ("zero-shot", "compiled")}
    for program in programs.values():
        program.set_lm(connect("pocket"))
    asked = load_questions(home / "world/test.jsonl")[:2]
    made = raisf.compare(programs, asked, tmp_path / "r", judges=False, progress=False)
    assert made.results["facts"]["one program"] == "zero-shot = compiled" and "zero-shot = compiled" in caplog.text
    assert len(list((tmp_path / "r/records").glob("*.jsonl"))) == 1 and "no LM" not in caplog.text
    assert made.headline.startswith("zero-shot = compiled answers ") and made.results["pairs"] == made.examples == []
    assert list(made.results["programs"]) == ["zero-shot", "compiled"], "each label has its row"


def test_programs_without_a_common_lm_are_told_to_be_so(home, tmp_path, caplog):
    """The difference of two programs was that of their LMs, too."""
    programs = {name: Direct() for name in ("pocket", "pocket-tiny")}
    for name, program in programs.items():
        program.set_lm(connect(name))
    raisf.compare(programs, load_questions(home / "world/test.jsonl")[:1], judges=False, progress=False)
    assert "no LM is asked by all of them" in caplog.text and "pocket local/pocket#" in caplog.text


def test_judges_are_held_to_gold_where_a_program_has_them(report):
    judges = read_json(report / "results.json")["judges"]
    assert set(judges) == {"zero-shot", "prompts"}
    for measured in judges.values():
        assert set(measured) == {"know", "relevance", "decomposition"}
        assert measured["relevance"]["scores"]["accuracy"]["n"] >= 6 * 5


def test_tables_are_csv_with_the_numbers_of_the_results(report):
    results = read_json(report / "results.json")
    with (report / "answers.csv").open(newline="") as file:
        rows = {row["program"]: row for row in csv.DictReader(file)}
    for name, one in results["programs"].items():
        assert float(rows[name]["exact match"]) == pytest.approx(one["em"]["value"])
        assert float(rows[name]["exact match low"]) == pytest.approx(one["em"]["low"])
        assert int(rows[name]["exact match n"]) == 6
    with (report / "differences-in-exact-match.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(results["pairs"])


def test_the_page_is_whole_and_needs_nothing_beside_it(report):
    page = (report / "report.html").read_text("utf-8")
    assert page.count("<svg") == page.count("</svg>") == 6, "exact match, cost twice, routes, reliability of two judges"
    for wanted in (
        "of 6 questions right",
        "language model",
        "raisf compare --programs",
        "Answers",
        "Routes",
        "Judge: know",
        "Differences in F1",
        "Cost of compiling",
        "zero-shot",
    ):
        assert wanted in page
    results = read_json(report / "results.json")
    ranked = sorted(results["programs"], key=lambda name: -results["programs"][name]["em"]["value"])
    files = results["records"]
    once = dict.fromkeys(" = ".join(one for one in files if files[one] == files[name]) for name in ranked)
    (pair,) = (one for one in results["pairs"] if {one["first"], one["second"]} == set(list(once)[:2]))
    assert ("Wins and losses" in page) == bool(pair["won"] + pair["lost"])  # which is so hangs on the CPU
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r'xlink:href="#[^"]*"|href="#[^"]*"', "", page))
    assert "<script" not in page and "@import" not in page

    class Balanced(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open = []

        def handle_starttag(self, tag, attrs):
            if tag not in ("meta", "br", "img", "link"):
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    parser = Balanced()
    parser.feed(page)
    assert not parser.open


def test_what_was_answered_and_judged_is_not_asked_again(home, report, capsys, monkeypatch):
    before = (report / "report.html").read_text("utf-8")
    monkeypatch.setattr("raisf.programs.calls.Run.ask", None)  # any call of an LM would fail
    assert cli.main([*_argv(home, report), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["programs"] == read_json(report / "results.json")["programs"]
    assert (report / "report.html").read_text("utf-8") == before


@pytest.mark.slow
def test_what_does_not_say_what_it_took_to_compile_is_compared_all_the_same(home, tmp_path):
    """As the program that ships, and one that was only calibrated."""
    for name, told in (("shipped", {"how": "weights"}), ("calibrated", {"calibration": {}})):
        shutil.copytree(home / "prompts", tmp_path / name)
        manifest = read_json(tmp_path / name / "manifest.json")
        write_json(tmp_path / name / "manifest.json", manifest | {"compile": told})
    programs = ["--programs", f"{tmp_path / 'shipped'},{tmp_path / 'calibrated'}", "--limit", "2", "--no-judges"]
    assert cli.main([*_argv(home, tmp_path / "report"), *programs]) == 0
    with (tmp_path / "report" / "cost-of-compiling.csv").open(newline="") as file:
        assert [row["how"] for row in csv.DictReader(file)] == ["weights", ""]
    assert cli.main([*_argv(home, tmp_path / "report"), *programs, "--programs", "direct"]) == 0
    left = {file.name for file in (tmp_path / "report").iterdir()}
    assert "answers.csv" in left and not left & {"cost-of-compiling.csv", "differences-in-exact-match.csv"}


def test_a_report_of_failed_calls_is_told_and_not_kept(home, tmp_path):
    """Else the figures of a bad hour would stay in the folder."""
    lm = ScriptedLM(lambda fields: _once_in_three_fails(lm, broken, fields))
    program, examples = RAISF(open_index(home / "index"), k=2), load_questions(home / "world/test.jsonl")[:6]
    program.set_lm(lm)

    def judge():
        found = judge_all({"x": program}, examples, tmp_path, threads=1)["x"]
        return {name: (next(iter(one["scores"].values()))["n"], one["errors"]) for name, one in found.items()}, found

    broken = True
    sick, found = judge()
    assert set(sick) == {"know", "relevance", "decomposition"} and all(errors for _, errors in sick.values())
    for section in judge_sections({"x": found}):
        assert dict(zip(section.columns, section.rows[0], strict=True))["errors"] > 0
    broken = False
    well, _ = judge()
    assert well == {name: (n + errors, 0) for name, (n, errors) in sick.items()}
    asked = len(lm.calls)
    assert judge()[0] == well and len(lm.calls) == asked, "what is whole is kept"


def _once_in_three_fails(lm, broken, fields):
    if broken and len(lm.calls) % 3 == 0:
        raise LMServerError("overloaded")
    return {"verdict": "irrelevant" if "passage" in fields else "unknown", "answer": "x", "sub_questions": ["a?", "b?"]}


def test_judges_whose_kept_reports_a_power_cut_has_emptied_are_asked_again(home, tmp_path, caplog):
    """A comparison stopped there, after all of its answers."""
    program, examples = RAISF(open_index(home / "index"), k=2), load_questions(home / "world/test.jsonl")[:2]
    lm = ScriptedLM(lambda fields: {"verdict": "know", "answer": "x", "sub_questions": ["a?", "b?"]})
    program.set_lm(lm)
    whole, asked = judge_all({"x": program}, examples, tmp_path, threads=1), len(lm.calls)
    (kept,) = tmp_path.glob("ra-isf-*.json")
    kept.write_text("")
    assert judge_all({"x": program}, examples, tmp_path, threads=1) == whole and len(lm.calls) == 2 * asked
    assert f"{kept} cannot be read: these judges are asked again" in caplog.text and read_json(kept)


def test_judges_are_asked_again_when_their_gold_changes(home, tmp_path, caplog):
    program, examples = RAISF(open_index(home / "index"), k=2), load_questions(home / "world/test.jsonl")[:4]
    program.set_lm(ScriptedLM(lambda fields: _once_in_three_fails(None, False, fields)))
    before = judge_all({"x": program}, examples, tmp_path)["x"]
    without = [example.copy(gold_pids=[], gold_titles=[], sub_questions=[], sub_answers=[]) for example in examples]
    after = judge_all({"x": program}, without, tmp_path)["x"]
    assert set(before) - set(after) == {"relevance", "decomposition"}
    told = [record.getMessage() for record in caplog.records if "not measured alone, of x:" in record.getMessage()]
    assert [line.split(": ")[1] for line in told] == ["relevance", "decomposition"]
    assert after["know"]["scores"]["accuracy"]["n"] == 4 < before["know"]["scores"]["accuracy"]["n"]


def test_names_in_a_page_are_text_and_not_html(home, tmp_path):
    argv = _argv(home, tmp_path / "r", "--limit", "2", "--no-judges")
    argv[2] = "<b>direct</b>=direct"
    assert cli.main(argv) == 0
    page = (tmp_path / "r/report.html").read_text("utf-8")
    assert "<b>" not in page and "&lt;b&gt;direct" in page


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ("direct,direct", "LABEL=NAME"),
        (",", "names of programs"),
        ("direct,nosuch", "no program 'nosuch'"),
        ("a=direct,a=rag", "LABEL=NAME"),
        ("direct,skr-knn", "skr-knn has not been fitted: compile it"),
    ],
)
def test_a_wrong_list_of_programs_is_refused_before_anything_is_asked(home, tmp_path, capsys, programs, message):
    argv = _argv(home, tmp_path / "r")
    argv[2] = programs
    assert cli.main(argv) == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "r").glob("*"))


def test_an_option_is_set_for_the_listed_programs_that_have_it(home, tmp_path, capsys):
    asked = ["--no-judges", "--limit", "2", "--json"]
    assert cli.main(_argv(home, tmp_path / "report", *asked, "--set", "evidence=false")) == 0
    told = [json.loads(path.read_text()) for path in (tmp_path / "report/records").glob("*.meta.json")]
    options = sorted((one["program"]["class"].split(".")[-1], one["program"].get("evidence")) for one in told)
    assert options == [("Direct", None), ("RAG", False), ("RAISF", False), ("RAISF", True)]  # the last is compiled
    capsys.readouterr()
    assert cli.main(_argv(home, tmp_path / "other", *asked, "--set", "haste=1")) == 2
    assert "--set haste: none of direct, rag, zero-shot, prompts is a listed program" in capsys.readouterr().err
    for twice in (["--k", "3", "--set", "k=2"], ["--set", "k=2", "--set", "k=3"]):
        assert cli.main(_argv(home, tmp_path / "other", *asked, *twice)) == 2
        assert "--set k: k is given twice" in capsys.readouterr().err


def test_a_folder_with_other_things_is_left_alone(home, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("mine")
    assert cli.main(_argv(home, tmp_path)) == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_program_costs_the_same_whoever_came_before_it(home):
    lm, examples = connect("pocket"), load_questions(home / "world/test.jsonl")[:3]
    programs = {"one": Direct(max_calls=5), "other": Direct(max_calls=6)}
    for program in programs.values():
        program.set_lm(lm)
    report = raisf.compare(programs, examples, judges=False, progress=False)
    costs = [{id: row["cost"]["prompt_tokens"] for id, row in rows.items()} for rows in report.records.values()]
    assert costs[0] == costs[1] and all(costs[0].values())
    assert all(predictor.lm is lm for program in programs.values() for _, predictor in program.named_predictors())


def test_an_lm_that_a_module_asks_by_itself_is_asked_anew_too(home) -> None:
    """Its calls were the cache's, and cost no tokens."""

    class Own(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.lm = Direct(), connect("pocket")

        def forward(self, question: str) -> dspy.Prediction:
            with dspy.context(lm=self.lm):
                return self.inner(question=question)

    program, examples = Own(), load_questions(home / "world/test.jsonl")[:2]
    for example in examples:
        program(question=example.question)
    (rows,) = raisf.compare({"own": program}, examples, judges=False, progress=False).records.values()
    assert all(row["cost"]["prompt_tokens"] and not row["cost"]["unmetered_calls"] for row in rows.values())
    assert program.lm.cache and not without_cache(program).lm.cache


def test_without_bars_no_judge_shows_one_either(home, capsys) -> None:
    program = RAISF(open_index(home / "index"))
    program.set_lm(connect("pocket"))
    made = raisf.compare({"ra-isf": program}, load_questions(home / "world/test.jsonl")[:2], progress=False)
    assert made.results["judges"]
    assert "judging" not in capsys.readouterr().err


def test_answers_in_memory_are_not_promised_to_be_kept(home) -> None:
    """The message named a folder that was gone."""
    with pytest.raises(raisf.RaisfError, match="there is none: give one with") as raised:
        raisf.compare({"rag": raisf.RAG(open_index(home / "index"))}, load_questions(home / "world/test.jsonl"))
    assert "keeps the answers" not in str(raised.value)
