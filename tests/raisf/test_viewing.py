"""`raisf view`: what it finds, what it holds to gold, the file that it exports, and its server."""

import http.client
import json
import re
import shutil
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf import cli
from raisf.evaluation.runner import evaluate
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json
from raisf.viewing.page import as_json
from raisf.viewing.server import ViewServer
from raisf.viewing.view import BLOCK, View


@pytest.fixture
def report(records: Any, tmp_path: Path) -> Path:
    """Two runs: B has what A has right and one question more."""
    a = [records.record(number, number % 2 == 0) for number in range(6)]
    b = [records.record(number, number % 2 == 0 or number == 3) for number in range(6)]
    return records.write_report(tmp_path / "report", {"A": a, "B": b})


def test_a_report_s_runs_are_called_as_the_report_calls_them(report: Path) -> None:
    for given in (report, report / "report.html", report / "results.json"):
        summary = View([given]).summary
        assert [run["label"] for run in summary["runs"]] == ["A", "B"]
        assert [run["em"]["value"] for run in summary["runs"]] == [0.5, pytest.approx(4 / 6)]
        assert summary["facts"] == {"language model": "pocket"}


@pytest.mark.parametrize(
    "other", ['{"records": "x"}', '{"facts": "x"}', '{"facts": {}, "records": "x"}', '{"facts": [1]}', "[1]", "{"]
)
def test_results_of_another_program_are_passed_over(other: str, report: Path) -> None:
    """They ended in a traceback, in a report's folder or in one below it."""
    (report / "a").mkdir()
    for place, labels in ((report / "a", ["A", "B"]), (report, ["run-0", "run-1"])):
        (place / "results.json").write_text(other)
        assert [run["label"] for run in View([report]).summary["runs"]] == labels


def test_records_files_and_folders_of_them_can_be_viewed_together(records: Any, report: Path, tmp_path: Path) -> None:
    records.write_records(tmp_path / "runs/rag-1.jsonl", [records.record(0, True)])
    own = records.write_records(tmp_path / "runs/run-0.jsonl", [records.record(1, True)])
    labels = [run["label"] for run in View([tmp_path / "runs", report / "records/run-0.jsonl", own]).summary["runs"]]
    assert labels[0] == "rag-1" and len(set(labels)) == 3


def test_an_evaluation_under_way_can_be_viewed(records: Any, report: Path) -> None:
    """Its last line may not be whole; of a question asked again the later record counts."""
    with (report / "records/run-0.jsonl").open("a") as file:
        file.write(json.dumps(records.record(1, True)) + "\n" + json.dumps(records.record(9, True))[:200])
    summary = View([report]).summary
    assert [one["id"] for one in summary["questions"]] == [f"q{number}" for number in range(6)]
    assert summary["answers"][0][1]["em"] == 1


@pytest.mark.parametrize("so_far", ["", '{"id": "0", "quest'])
def test_a_run_without_a_record_yet_hides_no_other(records: Any, report: Path, so_far: str) -> None:
    """An experiment that was stopped there, or has just come to its next row, could not be looked at."""
    begun = records.write_records(report / "records/later.jsonl", [])
    begun.write_text(so_far)
    view = View([report])
    assert [run["label"] for run in view.summary["runs"]] == ["A", "B"] and not view.stale
    records.write_records(begun, [records.record(0, True)])
    assert view.stale and [run["label"] for run in View([report]).summary["runs"]] == ["A", "B", "later"]
    for file in (report / "records").glob("*.jsonl"):
        file.write_text("")
    with pytest.raises(InputError, match="holds no records yet"):
        View([report])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{"id": "a"}\n', "no 'question'"), (b"[1]\n", "no record"), (b"{\n{}\n", "no JSON"), (b"", "no records yet")],
)
def test_what_is_no_record_is_refused_in_one_line(tmp_path: Path, capsys: Any, content: bytes, message: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    assert cli.main(["view", str(tmp_path / "x.jsonl"), "--export", str(tmp_path / "x.html")]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1 and not (tmp_path / "x.html").exists()
    with pytest.raises(InputError, match="nothing at"):
        View([tmp_path / "nosuch"])


@pytest.mark.parametrize(
    "strange",
    [
        {"cost": [1]},
        {"cost": {"seconds": "x", "lm_calls": "y"}},
        {"unreadable": "x"},
        {"recall": "x"},
        {"route": ["direct"]},
        {"gold": {"sub_questions": [1, 2], "sub_answers": ["a", "b"]}},
        {"trace": {"root": {"question": "Which sea does river 0 reach?", "answer": "x", "know": "know"}}},
    ],
)
def test_a_record_with_other_things_in_its_fields_is_told_with_its_file(
    strange: dict[str, Any], records: Any, tmp_path: Path, capsys: Any
) -> None:
    """A page that a stranger's file ends in a traceback says neither which file nor what to do."""
    records.write_records(tmp_path / "x.jsonl", [records.record(0, True, **strange)])
    assert cli.main(["view", str(tmp_path / "x.jsonl"), "--export", str(tmp_path / "x.html")]) == 2
    assert re.search(r"x\.jsonl.* no record \(.*give a file that", capsys.readouterr().err.replace("\n", " "))


def test_an_evaluation_keeps_gold_for_the_viewer(tmp_path: Path) -> None:
    class Echo(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer="yes")

    gold = {
        "scoring": "triviaqa",
        "gold_pids": ["p1"],
        "sub_questions": ["a?", "b?"],
        "sub_answers": ["x", "y"],
        "known": False,
    }
    example = dspy.Example(id="1", question="really?", answer="yes", kind="lookup", **gold).with_inputs("question")
    evaluate(Echo(), [example], tmp_path / "e.jsonl", progress=False)
    assert View([tmp_path / "e.jsonl"]).summary["questions"][0]["gold"] == {"kind": "lookup", **gold}


class _Scripts(HTMLParser):
    """The scripts of a page, as a browser divides it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.found.append((dict(attrs), ""))

    def handle_data(self, text: str) -> None:
        if self.lasttag == "script" and self.found:
            self.found[-1] = (self.found[-1][0], self.found[-1][1] + text)


def test_the_export_is_one_file_in_which_records_are_data(records: Any, tmp_path: Path, capsys: Any) -> None:
    one = records.record(
        0,
        True,
        question=records.HOSTILE,
        id=records.HOSTILE,
        answers=[records.HOSTILE],
        prediction=records.LONG,
        kind="\u2028<!--",
    )
    one["trace"]["root"]["passages"][0] = records.passage(1, "relevant", records.HOSTILE)
    report = records.write_report(tmp_path / "report", {"<b>A</b>": [one]})
    assert cli.main(["view", str(report), "--export", str(report), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 1
    assert cli.main(["view", str(report), "--export", str(report)]) == 0, "its own page it makes anew"
    assert cli.main(["view", str(report), "--export", str(report / "report.html")]) == 2
    assert "report.html is no page of this command" in capsys.readouterr().err
    page = (report / "view.html").read_text("utf-8")
    parser = _Scripts()
    parser.feed(page)
    assert len(parser.found) == 3 and "img" not in parser.tags and "link" not in parser.tags
    summary, block = (json.loads(text) for attributes, text in parser.found if attributes.get("id"))
    assert (
        summary["questions"][0]["question"] == records.HOSTILE
        and summary["answers"][0][0]["prediction"] == records.LONG
    )
    assert block["trees"][0][0]["root"]["passages"][0]["title"] == records.HOSTILE
    (rule,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src &#x27;none&#x27;" in rule and "unsafe" not in rule
    assert not re.search(r"https?://", page.replace("http://www.w3.org", "")), "no other host"


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="number"):
        as_json({"x": float("nan")})


def test_no_character_of_json_in_a_page_is_markup() -> None:
    """Behind "<!--<script " the end of the element is none, and the rest of the page is gone."""
    text = "<!--<script &>\u2028\u2029"
    shown = as_json({"x": text})
    assert not set("<>&\u2028\u2029").intersection(shown) and json.loads(shown) == {"x": text}


def _get(server: ViewServer, path: str, host: str | None = None) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=60)
    connection.request("GET", path, headers={"Host": host} if host else {})
    reply = connection.getresponse()
    return (
        reply.status,
        {name.lower(): value for name, value in reply.getheaders()},
        reply.read().decode("utf-8", "replace"),
    )


def test_the_server_gives_the_page_its_parts_and_the_report(records: Any, report: Path) -> None:
    with ViewServer(lambda: View([report])) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            status, headers, page = _get(server, "/")
            assert status == 200 and "connect-src 'self'" in headers["content-security-policy"] and "report" in page
            summary = json.loads(_get(server, "/data/summary.json")[2])
            block = f"/data/block-0.json?version={summary['version']}"
            assert len(json.loads(_get(server, block)[2])["trees"]) == 6
            assert "a report" in _get(server, "/report-0")[2]
            for number in ("7", "9" * 5_000, "-1", "x"):
                assert _get(server, f"/data/block-{number}.json?version={summary['version']}")[0] == 404
            assert _get(server, "/", host="evil.example")[0] == 400, "DNS rebinding"
            for count in (5, 6):  # one more while the page is loaded, which reads all but once
                assert _get(server, "/")[0] == 200
                records.write_records(report / "records/run-0.jsonl", [records.record(n, True) for n in range(count)])
            assert json.loads(_get(server, "/data/summary.json")[2])["runs"][0]["em"]["n"] == 5
            assert _get(server, "/")[0] == 200
            assert json.loads(_get(server, "/data/summary.json")[2])["runs"][0]["em"]["value"] == 1, "read again"
            assert _get(server, block)[0] == 410
            (report / "report.html").write_bytes(b"caf\xe9")
            assert _get(server, "/report-0")[0] == 200, "whoever made it, and however it is encoded"
            (report / "report.html").unlink()
            assert _get(server, "/report-0")[::2] == (404, "the report's page is gone: write the report again")
        finally:
            server.stop()
            thread.join()


def test_a_run_that_came_later_is_shown(records: Any, tmp_path: Path) -> None:
    records.write_records(tmp_path / "runs/a-1.jsonl", [records.record(0, True)])
    view = View([tmp_path / "runs"])
    assert not view.stale
    records.write_records(tmp_path / "runs/b-2.jsonl", [records.record(0, False)])
    assert view.stale and len(View([tmp_path / "runs"]).summary["runs"]) == 2


def test_a_report_that_comes_after_its_last_record_is_shown(report: Path, tmp_path: Path) -> None:
    """Looked at in between, it had no labels, no texts and no link, until the viewer was started again."""
    place = tmp_path / "under-way"
    shutil.copytree(report / "records", place / "records")
    view = View([place])
    assert not view.stale and [run["label"] for run in view.summary["runs"]] == ["run-0", "run-1"]
    for name in ("results.json", "report.html"):
        shutil.copy(report / name, place)
        assert view.stale
        view = View([place])
        assert not view.stale
    assert [run["label"] for run in view.summary["runs"]] == ["A", "B"] and view.sources.pages


def test_questions_of_several_tests_are_told_apart_and_keep_their_gold(records: Any, tmp_path: Path) -> None:
    """Two tests may number their questions alike, and a run of an earlier version kept no gold."""
    kept = ([records.record(1, True, gold={})], [records.record(1, False)], [records.record(2, True, id="q1")])
    view = View([records.write_records(tmp_path / f"{n}.jsonl", found) for n, found in enumerate(kept)])
    first, second = view.summary["questions"]
    assert first["gold"] == second["gold"] == {"gold_pids": ["p1"], "known": True}
    assert [[one and one["em"] for one in of] for of in view.summary["answers"]] == [[1, None], [0, None], [None, 1]]
    asked = [[tree and tree["root"]["question"] for tree in trees] for trees in view.block(0)["trees"]]
    assert asked == [[first["question"], first["question"], None], [None, None, second["question"]]]


def test_blocks_hold_all_questions_in_order(records: Any, tmp_path: Path) -> None:
    view = View(
        [records.write_records(tmp_path / "r.jsonl", [records.record(number, True) for number in range(2 * BLOCK + 1)])]
    )
    roots = [tree["root"]["question"] for n in range(view.blocks) for (tree,) in view.block(n)["trees"]]
    assert roots == [question["question"] for question in view.summary["questions"]] and view.blocks == 3


def test_labels_of_one_program_are_all_shown(records: Any, tmp_path: Path) -> None:
    """Compiled, a program may have stayed what it was: the label of the first was lost."""
    place = records.write_report(tmp_path / "report", {"zero-shot": [records.record(1, True)]})
    results = read_json(place / "results.json")
    write_json(place / "results.json", {**results, "records": {**results["records"], "prompts": "records/run-0.jsonl"}})
    assert [run["label"] for run in View([place]).summary["runs"]] == ["zero-shot = prompts"]


def test_of_several_reports_only_what_holds_for_all_is_told(records: Any, tmp_path: Path) -> None:
    """The last report's facts, its questions among them, stood above all runs; names that are no UTF-8 broke it."""
    places = []
    for number, lm in enumerate(("pocket", "smollm2")):
        places.append(records.write_report(tmp_path / f"<b>\udcff{number}", {"A": [records.record(number, True)]}))
        results = read_json(places[-1] / "results.json")
        write_json(places[-1] / "results.json", {**results, "facts": {"language model": lm, "seed": 0}})
    assert View(places).summary["facts"] == {"seed": 0}
    with ViewServer(lambda: View(places)) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        try:
            page = _get(server, "/")[2]
            assert "<title>&lt;b&gt;" in page
            assert all(f'href="report-{number}">Report &lt;b&gt;?{number}<' in page for number in (0, 1))
            again = View([*places, places[0] / "report.html"]).sources.pages
            assert len(again) == 2, "a report that is named twice is linked once"
            assert [_get(server, f"/report-{number}")[0] for number in (0, 1, 2)] == [200, 200, 404]
        finally:
            server.stop()
            thread.join()
