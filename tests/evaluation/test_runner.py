"""If these failed, an evaluation of hours could be lost, mixed up with another, or silently wrong."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from raisf.evaluation.examples import describe_test
from raisf.evaluation.records import open_records
from raisf.evaluation.report import summarise
from raisf.evaluation.runner import MAX_FAILURES, evaluate
from raisf.programs.trace import Cost, JudgedPassage, Judgement, Node, Trace
from raisf.retrieval.store.manifest import IndexManifest, Segment
from raisf.utils.errors import InputError, LMError, RaisfError
from raisf.utils.files import read_jsonl


class Answers(dspy.Module):
    """A program whose answer is what a function says; its options stand for a real program's."""

    def __init__(self, answer: Callable[[str], str], k: int = 5) -> None:
        super().__init__()
        self._answer = answer
        self._lock = threading.Lock()
        self._asked: list[str] = []
        self.k = k

    @property
    def asked(self) -> list[str]:
        return self._asked

    def forward(self, question: str) -> dspy.Prediction:
        with self._lock:
            self._asked.append(question)
        return dspy.Prediction(answer=self._answer(question))


def questions(n: int, **fields: Any) -> list[dspy.Example]:
    return [
        dspy.Example(id=f"q{i}", question=f"What is {i}?", answer=str(i), **fields).with_inputs("question")
        for i in range(n)
    ]


def echo(question: str) -> str:
    return question.split()[-1]


def run(program: dspy.Module, examples: list[dspy.Example], out: Path | None = None, **options: Any):
    return evaluate(program, examples, out, progress=False, **options)


def test_a_run_scores_every_question_and_writes_one_record_each(tmp_path: Path) -> None:
    program = Answers(lambda q: echo(q) if int(echo(q).strip("?")) < 6 else "wrong")
    report = run(program, questions(8), tmp_path / "r.jsonl")
    assert (report.em.value, report.em.n, report.errors) == (0.75, 8, 0)
    rows = list(read_jsonl(tmp_path / "r.jsonl"))
    assert {row["id"]: row["em"] for row in rows} == {f"q{i}": float(i < 6) for i in range(8)}
    assert summarise(rows) == report


def test_the_report_does_not_depend_on_which_question_finished_first() -> None:
    examples = questions(12)
    mixed = Answers(lambda q: echo(q) if len(q) % 2 else "no")
    assert run(mixed, examples, threads=1).em == run(mixed, examples[::-1], threads=4).em


def test_a_second_run_asks_nothing_again_and_says_the_same(tmp_path: Path) -> None:
    out, program = tmp_path / "r.jsonl", Answers(echo)
    first = run(program, questions(5), out)
    before, written = out.read_bytes(), out.stat().st_mtime_ns
    again = Answers(echo)
    assert run(again, questions(5), out) == first
    assert again.asked == [] and out.read_bytes() == before
    assert out.stat().st_mtime_ns == written, "reports say by it when the last answer was given"


def test_a_torn_last_line_is_healed_and_its_question_asked_again(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run(Answers(echo), questions(5), out, threads=1)
    out.write_bytes(out.read_bytes()[:-20])
    program = Answers(echo)
    report = run(program, questions(5), out)
    assert program.asked == ["What is 4?"]
    assert report.em.n == 5 and len(list(read_jsonl(out))) == 5


def test_a_broken_line_in_the_middle_is_named_not_dropped(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run(Answers(echo), questions(3), out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text(lines[0] + "{oops\n" + lines[2])
    with pytest.raises(InputError, match="line 2"):
        run(Answers(echo), questions(3), out)


def test_another_programs_records_are_refused_unless_fresh(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run(Answers(echo, k=5), questions(3), out)
    with pytest.raises(InputError, match=r"another program.*k: 5 there, 3 here.*--fresh"):
        run(Answers(echo, k=3), questions(3), out)
    assert run(Answers(echo, k=3), questions(3), out, fresh=True).em.n == 3
    assert len(list(read_jsonl(out))) == 3


def test_another_test_sets_records_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    run(Answers(echo), questions(3), out)
    with pytest.raises(InputError, match=r"another test.*n: 3 there, 4 here"):
        run(Answers(echo), questions(4), out)


def test_a_demonstration_more_is_another_program(tmp_path: Path) -> None:
    class Asks(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ask = dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer="x")

    out, program = tmp_path / "r.jsonl", Asks()
    run(program, questions(2), out)
    program.ask.demos = [dspy.Example(question="a", answer="b")]
    with pytest.raises(InputError, match="predictor ask"):
        run(program, questions(2), out)


@pytest.mark.parametrize("change", [*({name: "d"} for name in ("search", "checkpoint", "corpus_hash", "precision"))])
def test_records_over_one_index_are_not_taken_for_those_over_another(tmp_path: Path, change: dict[str, str]) -> None:
    def over(search: str = "exact", checkpoint: str = "a", corpus_hash: str = "c", **more: Any) -> Answers:
        program: Any = Answers(echo)
        segment = Segment(name="1", passages=1, search=search)
        parts: Any = (search, 1, corpus_hash, "minilm", checkpoint, [segment], None, {}, {}, {})
        manifest = IndexManifest("colbert", *parts, **more)
        program.retriever = SimpleNamespace(corpus_hash=corpus_hash, manifest=manifest, ranking=manifest.ranking)
        return program

    out = tmp_path / "r.jsonl"
    run(over(), questions(2), out)
    assert run(over(), questions(2), out).em.n == 2
    with pytest.raises(InputError, match=r"another program.*retriever"):
        run(over(**change), questions(2), out)


def test_a_test_set_is_another_when_any_gold_of_it_changes() -> None:
    """Else recall, and the judges' figures, would be those of the gold before it was mended."""
    gold = {"kind": "bridge", "gold_pids": ["a", "b"], "sub_questions": ["x?", "#1?"], "sub_answers": ["y", "z"]}
    before = describe_test(questions(3, **gold))
    assert describe_test(questions(3, **gold)[::-1]) == before
    changes = ({"sub_questions": []}, {"sub_answers": ["y", "w"]}, {"sub_titles": ["A", "B"]}, {"known": False})
    for change in ({"gold_pids": ["b", "a"]}, *changes):
        assert describe_test(questions(3, **{**gold, **change})) != before


def test_a_file_of_something_else_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "mine.jsonl"
    out.write_text('{"precious": 1}\n')
    with pytest.raises(InputError, match=r"mine\.meta\.json"):
        run(Answers(echo), questions(1), out)
    assert out.read_text() == '{"precious": 1}\n'
    with pytest.raises(InputError, match="folder"):
        run(Answers(echo), questions(1), tmp_path)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("text", ["no newline", '{\n  "precious": 1\n}'])
def test_not_a_byte_of_something_else_is_lost(tmp_path: Path, text: str, fresh: bool) -> None:
    """Its last line is no record that a kill has torn."""
    out = tmp_path / "n.jsonl"
    out.write_text(text)
    with pytest.raises(InputError, match=r"n\.meta\.json"):
        run(Answers(echo), questions(1), out, fresh=fresh)
    assert out.read_text() == text


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("text", ['{"format": 1, "title": "mine"}\n', "[]", "not JSON"])
def test_something_else_beside_the_records_is_never_overwritten(tmp_path: Path, text: str, fresh: bool) -> None:
    (tmp_path / "x.meta.json").write_text(text)
    program = Answers(echo)
    with pytest.raises(InputError, match=r"x\.meta\.json"):
        run(program, questions(1), tmp_path / "x.jsonl", fresh=fresh)
    assert program.asked == [] and [file.name for file in tmp_path.iterdir()] == ["x.meta.json"]
    assert (tmp_path / "x.meta.json").read_text() == text


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with (
        open_records(out, {"program": {}, "test": {}}),
        pytest.raises(InputError, match="another evaluation"),
    ):
        run(Answers(echo), questions(1), out)


def test_a_question_that_fails_is_a_counted_zero_and_asked_again_next_time(tmp_path: Path) -> None:
    def answer(question: str) -> str:
        if "3" in question:
            raise LMError("rubbish")
        return echo(question)

    out = tmp_path / "r.jsonl"
    report = run(Answers(answer), questions(5), out)
    assert report.errors == 1 and report.em.value == 0.8 and report.em.n == 5
    assert report.routes["error"].n == 1
    cured = Answers(echo)
    assert run(cured, questions(5), out).em.value == 1.0
    assert cured.asked == ["What is 3?"]


def test_a_dead_endpoint_ends_the_run_early_and_what_was_answered_stays(tmp_path: Path) -> None:
    def answer(question: str) -> str:
        if int(echo(question).strip("?")) >= 20:
            raise LMError("no answer from http://127.0.0.1:9")
        return echo(question)

    out = tmp_path / "r.jsonl"
    with pytest.raises(LMError, match=r"10 questions in a row.*127\.0\.0\.1:9.*goes on from there"):
        run(Answers(answer), questions(500), out, threads=2)
    rows = list(read_jsonl(out))
    assert sum(row["error"] is None for row in rows) >= 19  # the last right one may have been under way
    assert len(rows) < 20 + 2 * MAX_FAILURES
    assert run(Answers(echo), questions(500), out).em.value == 1.0


def test_a_short_run_in_which_nothing_was_answered_is_no_result(tmp_path: Path) -> None:
    """Else a dead endpoint would be reported as an exact match of 0."""

    def answer(question: str) -> str:
        raise LMError("no answer from http://127.0.0.1:9")

    out = tmp_path / "r.jsonl"
    with pytest.raises(LMError, match=r"every question.*127\.0\.0\.1:9.*goes on from there"):
        run(Answers(answer), questions(3), out)
    assert len(list(read_jsonl(out))) == 3
    assert run(Answers(echo), questions(3), out).em.value == 1.0


def test_a_function_is_no_program() -> None:
    program: Any = lambda question: dspy.Prediction(answer="1")  # noqa: E731
    with pytest.raises(InputError, match=r"dspy\.Module, found a function"):
        run(program, questions(1))


def test_a_program_that_always_fails_is_not_blamed_on_the_lm() -> None:
    def answer(question: str) -> str:
        raise TypeError("a bug")

    with pytest.raises(RaisfError, match=r"the program failed.*a bug") as raised:
        run(Answers(answer), questions(50))
    assert not isinstance(raised.value, LMError)


def test_a_full_disk_is_reported_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from raisf.evaluation.records import Records

    def full(self: Records, record: dict[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Records, "add", full)
    with pytest.raises(OSError, match="No space"):
        run(Answers(echo), questions(5), tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "no questions"),
        ([*questions(1), *questions(1)], "two questions have the id 'q0'"),
        ([dspy.Example(question="Who?", answer="x")] * 2, r"without an id comes twice, 'Who\?'"),
        ([dspy.Example(id="a", question="Q?").with_inputs("question")], "no gold answer"),
    ],
)
def test_bad_test_sets_are_refused_before_anything_is_asked(examples: list[dspy.Example], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(program := Answers(echo), examples)
    assert program.asked == []


@pytest.mark.parametrize("threads", ["2", 1.5, True, 0])
def test_threads_are_a_whole_number_from_1(threads: Any) -> None:
    with pytest.raises(InputError, match=rf"threads is {threads!r}: give a whole number, 1 or more"):
        run(Answers(echo), questions(1), threads=threads)


def test_the_callers_lm_holds_in_every_worker() -> None:
    seen: set[Any] = set()

    def answer(question: str) -> str:
        seen.add(dspy.settings.lm)
        time.sleep(0.01)
        return echo(question)

    lm = dspy.LM("openai/none")
    with dspy.context(lm=lm):
        run(Answers(answer), questions(8), threads=4)
    assert seen == {lm}


def test_questions_run_side_by_side() -> None:
    # Each waits until four others are under way: one at a time would never get there.
    together = threading.Barrier(4, timeout=60)
    assert run(Answers(lambda q: (together.wait(), echo(q))[1]), questions(8), threads=4).em.value == 1.0


class Traced(dspy.Module):
    def forward(self, question: str) -> dspy.Prediction:
        passages = [
            JudgedPassage(pid=p, title=p.upper(), text="long " * 50, judgement=Judgement(verdict="relevant"))
            for p in "ax"
        ]
        known = question.startswith("What is 0")
        root = Node(question=question, passages=[] if known else passages)
        root.end("direct" if known else "passages", "because", "0")
        cost = Cost(lm_calls=4, prompt_tokens=100, completion_tokens=7, retrievals=not known)
        return dspy.Prediction(answer="0", trace=Trace(system="s", root=root, cost=cost, unreadable=1))


def test_routes_retrieval_and_cost_are_read_from_the_trace(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    report = run(Traced(), questions(4, gold_pids=["a", "b"], gold_titles=["other"]), out)
    assert {name: (route.n, route.correct) for name, route in report.routes.items()} == {
        "passages": (3, 0.0),
        "direct": (1, 1.0),
    }
    assert report.recall is not None and report.precision is not None
    assert (report.recall.value, report.recall.n, report.precision.value) == (0.5, 3, 0.5)
    assert report.cost["lm_calls"] == 4 and report.cost["prompt_tokens"] == 100
    assert report.unreadable == 4
    row = next(iter(read_jsonl(out)))
    assert Trace.model_validate(row["trace"]).root.route in ("direct", "passages")
    assert "long long" not in out.read_text()
    json.dumps(report.as_dict(), allow_nan=False)
    assert report.table("title").row_count > 8


def test_titles_are_compared_where_gold_has_no_ids_and_facts_that_no_passage_states_are_no_gold() -> None:
    report = run(Traced(), questions(2, gold_titles=["A"]))
    assert report.recall is not None and (report.recall.value, report.recall.n) == (1.0, 1)
    assert run(Traced(), questions(2)).recall is None
    report = run(Traced(), questions(4, gold_pids=["a", ""], gold_titles=["A", "other"]))  # of two facts one is stated
    assert report.recall is not None and (report.recall.value, report.recall.n) == (1.0, 3)
    assert run(Traced(), questions(4, gold_pids=[""], gold_titles=["A"])).recall is None
