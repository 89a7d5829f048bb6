"""Noise is never taken for a judgement: it is counted, it is told, and a run of nothing else fails."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf import cli
from raisf.evaluation.readability import check_readable, counts
from raisf.evaluation.runner import evaluate
from raisf.programs.baselines.direct import Direct
from raisf.programs.calls import Run
from raisf.programs.outputs import sensible
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import Judgement, Trace
from raisf.reports.report import judge_sections, output_counts
from raisf.retrieval.passage import Passage
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import LMError
from raisf.utils.files import read_json, read_jsonl, write_jsonl
from tests.scripted import ScriptedLM
from tests.shelf import Shelf


def trace_of(program: dspy.Module, answer: Callable[[Any], Any]) -> Trace:
    with dspy.context(lm=ScriptedLM(answer)):
        return program(question="Who?").trace


@pytest.mark.parametrize("reply", ["", "mumble", "I do not know", '{"verdict": null}', "know or unknown"])
def test_an_unreadable_judgement_has_no_verdict_and_no_probability(reply: str) -> None:
    with dspy.context(lm=ScriptedLM(lambda fields: reply)):
        run = Run(None, None, None)
        said = run.judge(dspy.Predict(SelfKnowledge), question="Who?")
    assert said == Judgement.unread() == Judgement(verdict=None, probability=None, readable=False)
    assert (run.read, run.unreadable) == (0, 1)


@pytest.mark.parametrize(("relevance", "judgements"), [("pointwise", 2), ("listwise", 1)])
def test_the_program_goes_on_cautiously_and_its_trace_tells_verdicts_from_defaults(
    relevance: Any, judgements: int
) -> None:
    shelf = Shelf(lambda query: [Passage(f"p{number}", f"text {number}", "T") for number in range(2)])
    trace = trace_of(RAISF(shelf, k=2, relevance=relevance), lambda fields: "mumble")
    assert trace.root.know == Judgement.unread()
    assert [passage.judgement for passage in trace.root.passages] == [Judgement.unread()] * 2
    assert not any(passage.relevant for passage in trace.root.passages)
    assert (trace.root.answer, trace.root.readable) == ("unknown", False)
    assert (trace.read, trace.unreadable) == (0, 1 + judgements + 1)
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


class Forgiving(dspy.ChatAdapter):
    """A user's: it leaves out what it cannot read, and raises nothing."""

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return {}


def test_outputs_that_an_adapter_of_ones_own_leaves_out_are_unreadable() -> None:
    """They counted as read: a run of nothing else had no fault."""
    lm = ScriptedLM(lambda fields: "mumble")
    lm.adapter = Forgiving()
    program = RAISF(Shelf(lambda query: [Passage("p", "text", "T")]))
    program.set_lm(lm)
    trace = program(question="Who?").trace
    assert (trace.root.answer, trace.root.readable, trace.read, trace.unreadable) == ("unknown", False, 0, 3)


@pytest.mark.parametrize(("kind", "field"), [(str, {"default": None}), (str | None, {}), (Any, {}), (type(None), {})])
def test_an_output_that_may_be_left_out_is_not_asked_of_a_reply(kind: Any, field: dict[str, Any]) -> None:
    """The answer before it was lost."""
    predictor = dspy.Predict(dspy.Signature("question -> answer").append("note", dspy.OutputField(**field), kind))
    assert sensible(predictor, dspy.Prediction(answer="Oslo", note=None), {})
    assert not sensible(predictor, dspy.Prediction(note="short"), {})


def test_an_answer_that_says_unknown_is_another_thing_than_one_that_cannot_be_read() -> None:
    said = trace_of(Direct(), lambda fields: {"answer": "unknown"})
    unread = trace_of(Direct(), lambda fields: "mumble")
    assert (said.root.answer, said.root.readable, said.unreadable) == ("unknown", True, 0)
    assert (unread.root.answer, unread.root.readable, unread.unreadable) == ("unknown", False, 1)


def test_records_and_reports_count_what_was_read_and_what_was_not(tmp_path: Path) -> None:
    examples = [dspy.Example(id=str(n), question=f"q{n}?", answer="x").with_inputs("question") for n in range(8)]
    lm = ScriptedLM(lambda fields: "mumble" if int(fields["question"][1]) < 3 else {"answer": "x"})
    with dspy.context(lm=lm):
        report = evaluate(Direct(), examples, tmp_path / "r.jsonl", progress=False)
    records = {record["id"]: record for record in read_jsonl(tmp_path / "r.jsonl")}
    assert {name: record["readable"] for name, record in records.items()} == {str(n): n >= 3 for n in range(8)}
    assert (report.unreadable, report.outputs, report.errors) == (3, 8, 0) == (*counts(records.values()), 0)
    assert report.em.value == 5 / 8  # an answer that cannot be read is none
    assert report.as_dict()["unreadable"] == 3
    old = [{name: value for name, value in record.items() if name != "read"} for record in records.values()]
    write_jsonl(tmp_path / "r.jsonl", old)  # records of earlier versions: all of their outputs were unreadable
    with dspy.context(lm=lm):
        report = evaluate(Direct(), examples, tmp_path / "r.jsonl", progress=False)
    assert (report.unreadable, report.outputs) == (3, 8)


def test_more_than_half_is_a_failed_run_and_half_is_not() -> None:
    check_readable({"a": (0, 0), "b": (5, 10)})
    with pytest.raises(LMError, match=r"6 of 11 of b.*--adapter compact.*another model.*in runs/x") as failed:
        check_readable({"a": (0, 5), "b": (6, 11)}, "runs/x")
    assert failed.value.exit_code == 1


def measured(n: int, unreadable: int) -> dict[str, Any]:
    score = {"value": 0.5, "low": 0.2, "high": 0.8, "n": n}
    scores = {name: score for name in ("accuracy", "precision", "recall")} if n else {}
    return {"scores": scores, "bins": [], "rows": n + unreadable, "unreadable": unreadable, "errors": 0}


def test_a_judges_table_shows_the_unreadable_beside_its_own_n() -> None:
    section = judge_sections(
        {"a": {"know": measured(7, 3)}, "b": {"know": measured(10, 0)}, "c": {"know": measured(0, 9)}}
    )[0]
    assert list(section.columns)[-2:] == ["n", "unreadable"] and "in no measure" in section.text
    assert [row[-2:] for row in section.rows] == [[7, 3], [10, 0], [0, 9]]
    assert all(cell is None for cell in section.rows[2][1:-2])  # no accuracy of nothing
    clean = judge_sections({"b": {"know": measured(10, 0)}})[0]
    assert "unreadable" not in clean.columns
    assert output_counts({}, {"a": {"know": measured(7, 3)}}) == {"the know judge of a": (3, 10)}


class Server(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint; `content` makes a reply from the number of the request and its prompt."""

    daemon_threads = True
    request_queue_size = 256
    content: Callable[[int, str], str]
    asked = 0
    lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True  # a reply in two parts would wait 40 ms for the first one's receipt

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        server: Any = self.server
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][-1]["content"]
        with server.lock:
            server.asked += 1
            number = server.asked
        message = {"role": "assistant", "content": server.content(number, str(prompt))}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps(
            {"id": "x", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("raisf.lm.transport.GARBAGE_SECONDS", 0.01)
    made = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Questions, a corpus and its index."""
    rows = [{"id": str(n), "question": f"Who wrote book {n}?", "answer": "Ada", "known": n % 2 == 0} for n in range(6)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = [{"pid": str(n), "title": f"Book {n}", "text": f"Book {n} was written by Ada."} for n in range(6)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    index = ["index", str(tmp_path / "corpus.jsonl"), "--engine", "bm25", "--out", str(tmp_path / "index")]
    assert cli.main(index) == 0
    return tmp_path


def lm_options(server: Server) -> list[str]:
    return ["--lm", "openai/fake", "--api-base", f"http://127.0.0.1:{server.server_port}/v1"]


def test_eval_of_a_model_that_says_nothing_fails_and_keeps_its_records(home: Path, server: Server, capsys: Any) -> None:
    server.content = lambda number, prompt: "" if number % 2 else "mumble"
    out = home / "records.jsonl"
    argv = ["eval", "--program", "rag", "--index", str(home / "index"), "--test", str(home / "test.jsonl")]
    assert cli.main([*argv, "--out", str(out), *lm_options(server)]) == 1
    told = capsys.readouterr().err
    assert "6 of 6 of rag" in told and "--adapter compact" in told and "another model" in told and str(out) in told
    assert [record["unreadable"] for record in read_jsonl(out)] == [1] * 6


def test_compare_with_a_model_that_says_nothing_fails_and_writes_its_report(
    home: Path, server: Server, capsys: Any
) -> None:
    server.content = lambda number, prompt: ""
    out = home / "report"
    argv = ["compare", "--programs", "direct,rag,ra-isf", "--index", str(home / "index"), "--no-judges"]
    assert cli.main([*argv, "--test", str(home / "test.jsonl"), "--out", str(out), *lm_options(server)]) == 1
    told = capsys.readouterr().err
    assert "most of the LM's outputs could not be read" in told and "of ra-isf" in told and "--adapter compact" in told
    results = read_json(out / "results.json")["programs"]
    assert {name: (one["unreadable"], one["errors"]) for name, one in results.items()} == {
        "direct": (6, 0), "rag": (6, 0), "ra-isf": (6 * 7, 0),
    }  # fmt: skip
    assert "unreadable" in (out / "answers.csv").read_text() and (out / "report.html").exists()


def test_a_model_that_is_readable_but_for_some_replies_is_measured_and_told(
    home: Path, server: Server, capsys: Any
) -> None:
    server.content = lambda number, prompt: (
        "" if "book 3" in prompt else "[[ ## evidence ## ]]\ne\n[[ ## answer ## ]]\nAda"
    )
    argv = ["eval", "--program", "direct", "--test", str(home / "test.jsonl"), "--out", str(home / "r.jsonl")]
    assert cli.main([*argv, *lm_options(server)]) == 0
    assert "1 of 6" in capsys.readouterr().out


@pytest.mark.parametrize("silent", [False, True])
def test_an_experiment_names_rows_that_measure_the_format_and_fails_where_most_of_all_do(
    home: Path, server: Server, capsys: Any, silent: bool
) -> None:
    """It ended well and without a word, whatever the LM wrote."""
    server.content = lambda number, prompt: (
        "" if silent or "was written by" in prompt else "[[ ## evidence ## ]]\ne\n[[ ## answer ## ]]\nAda"
    )
    argv = ["experiment", "table1", "--data", str(home), "--engine", "bm25", "--only", "direct,rag"]
    argv += ["--out", str(home / "out"), *lm_options(server)]
    assert cli.main(argv) == silent
    told = " ".join(capsys.readouterr().out.split())
    assert "most of the LM's outputs could not be read" in told and "6 of 6 of rag in table1" in told
    assert ("6 of 6 of direct in table1" in told) == silent
    assert cli.main([*argv, "--json"]) == silent  # as answered before
    assert "6 of 6 of rag in table1" in json.loads(capsys.readouterr().out)["unreadable"]
    assert "unreadable" in (home / "out" / "report.html").read_text()  # the column's name
