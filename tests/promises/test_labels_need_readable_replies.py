"""A reply that cannot be read is no evidence: it never becomes a label, it is counted, told, and asked for again."""

import json
import zlib
from pathlib import Path
from random import Random
from typing import Any

import dspy
import pytest

import raisf
from raisf import cli
from raisf.data.questions import load_questions
from raisf.data.world.files import write_world
from raisf.experiments.judging import judge_alone
from raisf.lm.adapter import CompactAdapter
from raisf.optimize.bootstrapping import bootstrap_demos
from raisf.optimize.demonstrations import Rows
from raisf.optimize.judges.answer_likelihood import baselines
from raisf.optimize.judges.collect import collect
from raisf.optimize.judges.judge_data import steps
from raisf.optimize.judges.judgements import Judged, Judgements, judgements_of
from raisf.optimize.judges.labels import know_labels
from raisf.optimize.traces import lacks_reply, traced_rows
from raisf.programs.baselines.skr import SKR
from raisf.programs.trace import Cost, Node, Trace
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import LMError
from raisf.utils.files import read_jsonl
from raisf.utils.journal import Journal
from tests.scripted import ScriptedLM

QUIET: dict[str, Any] = {"progress": False}


class Mute:
    """An LM that answers everything rightly, and sends "" for the calls that `mute` picks."""

    def __init__(self, examples: list[dspy.Example]) -> None:
        self.answers = {step.question: step.answers[0] for example in examples for step in steps(example)}
        self.parts = {example.question: example.sub_questions for example in examples}
        self.mute: Any = lambda fields: False
        self.calls: list[dict[str, Any]] = []

    def lm(self) -> ScriptedLM:
        return ScriptedLM(self._answer)

    def _answer(self, fields: dict[str, Any]) -> dict[str, Any] | str:
        self.calls.append(fields)
        if self.mute(fields):
            return ""
        question = fields["question"]
        gold = self.answers.get(question, "nothing")
        if "passage" in fields:
            return {"verdict": "relevant" if gold in fields["passage"] else "irrelevant"}
        if "passages" in fields or "facts" in fields:
            return {"evidence": gold, "answer": gold}
        known = zlib.crc32(question.encode()) % 2 == 0
        said = {"verdict": "know" if known else "unknown", "answer": gold if known else "a guess"}
        return {**said, "sub_questions": self.parts.get(question, [])}


def third(fields: dict[str, Any]) -> bool:
    return zlib.crc32(f"mute {fields['question']}".encode()) % 3 == 0


def from_memory(fields: dict[str, Any]) -> bool:
    return not {"passage", "passages", "facts"} & fields.keys()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("world") / "w"
    write_world(folder, entities=300, counts={"train": 40, "dev": 15, "test": 15})
    index = folder.parent / "index"
    BM25.build(read_documents(folder / "corpus.jsonl"), index)
    return index, *(load_questions(folder / f"{split}.jsonl") for split in ("train", "dev", "test"))


@pytest.fixture
def mute(world: Any) -> Mute:
    return Mute([*world[1], *world[2], *world[3]])


@pytest.fixture
def program(world: Any, mute: Mute) -> Any:
    made = raisf.RAISF(BM25.load(world[0]), k=3)
    made.set_lm(mute.lm())
    return made


def labels(made: Any) -> dict[str, str]:
    return {row.question: row.verdict for row in made.rows}


def test_a_question_without_a_readable_answer_is_neither_known_nor_unknown(
    program: Any, mute: Mute, world: Any
) -> None:
    whole = know_labels(world[1], answerer=program.answer_directly)
    mute.mute = third
    part = know_labels(world[1], answerer=program.answer_directly)
    silent = {question for question in labels(whole) if third({"question": question})}
    assert silent and set(part.unreadable) == silent
    assert labels(part) == {q: verdict for q, verdict in labels(whole).items() if q not in silent}
    told = f"{len(silent)} of {part.asked} questions gave no readable answer: not labelled"
    assert part.told() == told and whole.told() is None


def test_compiling_tells_how_many_questions_are_not_labelled(
    program: Any, mute: Mute, world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    mute.mute = lambda fields: third(fields) and from_memory(fields)
    report = raisf.LabeledJudges(**QUIET).compile(program, trainset=world[1]).compile_report
    assert "questions gave no readable answer: not labelled" in report["unlabelled"]["know"]
    assert report["unlabelled"]["know"] in caplog.text


def test_a_label_that_was_read_is_kept_and_one_that_was_not_is_asked_again_on_the_next_run(
    program: Any, mute: Mute, world: Any, tmp_path: Path
) -> None:
    whole = labels(know_labels(world[1], answerer=program.answer_directly))
    mute.mute = third
    first = know_labels(world[1], answerer=program.answer_directly, journal=Journal(tmp_path / "j.jsonl"))
    mute.mute, mute.calls = lambda fields: False, []
    again = know_labels(world[1], answerer=program.answer_directly, journal=Journal(tmp_path / "j.jsonl"))
    assert labels(again) == whole and again.told() is None
    assert {fields["question"] for fields in mute.calls} == set(first.unreadable)


def test_collect_writes_no_row_for_what_it_could_not_read_and_makes_it_the_next_time(
    program: Any, mute: Mute, world: Any, tmp_path: Path
) -> None:
    def rows(folder: str) -> dict[str, dict[tuple[str, Any], Any]]:
        found = {}
        for name in ("know", "relevance", "decomposition"):
            lines = read_jsonl(tmp_path / folder / f"{name}.jsonl")
            of = {(row["question"], row.get("passage")): row.get("verdict", row.get("sub_questions")) for row in lines}
            found[name] = of
        return found

    bare = [dspy.Example(question=e.question, answer=e.answer).with_inputs("question") for e in world[1][:20]]
    options: Any = {"teacher": mute.lm(), **QUIET}
    whole = collect(program, bare, tmp_path / "whole", **options)
    assert (whole["unreadable"], whole["unfinished"]) == (0, 0)
    mute.mute = third
    first = collect(program, bare, tmp_path / "part", **options)
    silent = {example.question for example in bare if third({"question": example.question})}
    assert first["unfinished"] == len(silent) > 0 and first["unreadable"] > len(silent) and first["errors"] == 0
    for name, found in rows("part").items():
        expected = {key: value for key, value in rows("whole")[name].items() if key[0] not in silent}
        assert found == expected, f"{name}: an unreadable reply became a label"
    mute.mute = lambda fields: False
    again = collect(program, bare, tmp_path / "part", **options)
    assert (again["unreadable"], again["unfinished"]) == (0, 0)
    assert rows("part") == rows("whole") and again["rows"] == whole["rows"]


def test_collect_of_nothing_readable_is_an_error_that_says_what_to_try(
    program: Any, mute: Mute, world: Any, tmp_path: Path
) -> None:
    mute.mute = lambda fields: True
    with pytest.raises(LMError, match=r"gave no readable answer: not labelled.*most of them.*--adapter compact.*model"):
        collect(program, world[1], tmp_path / "none", **QUIET)
    assert list(read_jsonl(tmp_path / "none" / "know.jsonl")) == []


@pytest.mark.parametrize("kind", [raisf.LabeledJudges, raisf.BootstrapJudges])
def test_compiling_with_an_lm_that_is_mostly_unreadable_is_an_error(
    program: Any, mute: Mute, world: Any, kind: Any
) -> None:
    mute.mute = from_memory
    with pytest.raises(LMError, match="try another format"):
        kind(**QUIET).compile(program, trainset=world[1])


def test_a_judge_is_measured_on_what_it_said_and_not_on_noise(program: Any, mute: Mute, world: Any) -> None:
    mute.mute = lambda fields: "passage" in fields and third(fields)
    judged = judgements_of(program, "relevance", world[3], **QUIET)
    assert 0 < judged.unreadable < len(judged.rows)
    assert judged.report().scores["accuracy"].n == len(judged.rows) - judged.unreadable
    mute.mute = lambda fields: "passage" in fields
    assert judgements_of(program, "relevance", world[3], **QUIET).report().scores == {}


def test_calibrating_takes_no_unreadable_verdict_for_a_no(program: Any, mute: Mute, world: Any) -> None:
    mute.mute = lambda fields: "passage" in fields
    with pytest.raises(LMError, match=r"verdicts of the relevance judge could not be read.*most of them: try"):
        raisf.Calibrate(**QUIET).compile(program, valset=world[2])
    said = Judged("q", "p", gold=True, said=True, probability=0.9)
    mumbled = Judged("r", "p", gold=True, said=False, readable=False)
    assert Judgements([said, mumbled]).scored == [said], "thresholds are fitted on what was said"


def test_skr_learns_nothing_from_an_answer_that_it_could_not_read(
    world: Any, mute: Mute, caplog: pytest.LogCaptureFixture
) -> None:
    program = SKR(BM25.load(world[0]), k=3, labelled_by="answer")
    program.set_lm(mute.lm())
    whole = raisf.FitSKR(**QUIET).compile(program, trainset=world[1]).cases
    mute.mute = lambda fields: third(fields) and "passages" in fields
    part = raisf.FitSKR(**QUIET).compile(program, trainset=world[1]).cases
    silent = {example.question for example in world[1] if third({"question": example.question})}
    assert part == [case for case in whole if case["question"] not in silent] != whole
    assert f"{len(silent)} of 40 questions gave no readable answer: not labelled" in caplog.text
    mute.mute = lambda fields: True
    with pytest.raises(LMError, match="not labelled"):
        raisf.FitSKR(**QUIET).compile(program, trainset=world[1])


def test_no_demonstration_comes_from_a_run_that_only_looks_right_because_it_could_not_be_read(
    program: Any, mute: Mute, world: Any
) -> None:
    """The answer "unknown", which nobody gave, would be right of a question that nobody can answer."""
    nobody = [example.copy(answer="unknown", answers=["unknown"]) for example in world[1][:12]]
    mute.mute = lambda fields: "verdict" not in fields and not {"passage"} & fields.keys()
    traced = traced_rows(program, nobody, raisf.answer_exact_match, threads=8, progress=False)
    assert traced.of == {} and traced.wrong + traced.failed == len(nobody)
    shown, failed = bootstrap_demos(program, Rows(), 4, Random(0), nobody, raisf.answer_exact_match)
    assert failed == traced.failed
    assert not any(predictor.demos for _, predictor in shown.named_predictors())
    trace = Trace(system="x", root=Node(question="q"), cost=Cost(), unreadable=1)
    ended = dspy.Prediction(answer="unknown", trace=trace)
    assert lacks_reply(ended)
    assert not lacks_reply(dspy.Prediction(answer="unknown")), "an LM may say so"


def test_the_confidence_baseline_leaves_out_what_it_could_not_read(program: Any) -> None:
    class Sure(ScriptedLM):
        def logprob(self, prompt: str, completion: str) -> tuple[float, int]:
            return -float(len(completion)), len(completion)

    lm = Sure(lambda fields: "")
    lm.adapter = CompactAdapter()  # type: ignore[assignment]
    program.answer_directly.lm = lm
    with pytest.raises(raisf.InputError, match="gave no readable answer to any of 2 questions"):
        baselines(program, ["a?", "b?"], [True, False], **QUIET)


def test_the_command_line_tells_it_and_ends_with_an_exit_code(
    world: Any, mute: Mute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("raisf.experiments.opening.LMChoice.open", lambda choice: mute.lm())
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps(dict(example)) + "\n" for example in world[1]))
    argv = ["collect", "--train", str(train), "--index", str(world[0]), "--out", str(tmp_path / "judges"), "--lm", "x"]
    mute.mute = third
    assert cli.main(argv) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "replies could not be read and label nothing" in shown and "run the same command again" in shown
    mute.mute = lambda fields: False
    assert cli.main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfinished"] == 0
    mute.mute = lambda fields: True
    assert cli.main([*argv, "--out", str(tmp_path / "none")]) == 1
    assert "--adapter compact" in capsys.readouterr().err


def _asking(kind: Any, program: Any) -> Any:
    made = kind(program.retriever)
    made.set_lm(program.know.lm)
    return made


@pytest.mark.parametrize(
    "learning",
    [
        lambda program, sets: raisf.LabeledJudges(**QUIET).compile(program, **sets),
        lambda program, sets: raisf.OutcomeJudges(by="prompts", **QUIET).compile(program, **sets),
        lambda program, sets: raisf.ProbeJudges(**QUIET, base="pocket-tiny").compile(program, **sets),
        lambda program, sets: collect(program, sets["trainset"], "collected", progress=False),
        lambda program, sets: judge_alone(program, "know", sets["trainset"]),
        lambda program, sets: raisf.FitSKR(**QUIET).compile(_asking(raisf.SKR, program), trainset=sets["trainset"]),
        lambda program, sets: raisf.FinetuneJudges(**QUIET, base="pocket-tiny").compile(
            _asking(raisf.CoTRAG, program), **sets
        ),
    ],
)
def test_an_lm_that_fails_on_all_of_few_questions_is_told_as_that(
    learning: Any, world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below ten questions it asked for more of them, some that the LM knows and some not; collecting ended well."""

    def down(fields: dict[str, Any]) -> Any:
        raise ConnectionError("no route to host")

    monkeypatch.chdir(tmp_path)
    program = raisf.RAISF(BM25.load(world[0]), use_relevance=False)
    program.set_lm(ScriptedLM(down))
    few = [dspy.Example(question=e.question, answer=e.answers[0]).with_inputs("question") for e in world[1][:7]]
    with pytest.raises(LMError, match=r"the language model failed on every (train )?question that was .*no route"):
        learning(program, {"trainset": few[:4], "valset": few[4:]})
