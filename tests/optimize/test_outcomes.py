"""If these failed, judges would learn verdicts that lead to wrong answers, or pay for calls that bring nothing."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.artifact import load, save
from raisf.optimize.judges.outcomes import Advantages, Trying
from raisf.optimize.judges.weighed import accepted, heaviest
from raisf.optimize.optimizers import probe
from raisf.optimize.optimizers.probe_fit import fit_probe
from raisf.optimize.optimizers.selection import Selection, answer_exact_match
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.reports.compiled import compiled_view
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, LMError
from raisf.utils.journal import Journal
from tests.scripted import ScriptedLM
from tests.shelf import Shelf

QUICK = Training(epochs=1, rank=2, batch_size=8)


def truth_and_lie(query: str) -> list[Passage]:
    """Finds for each subject a passage that is right and one that leads astray; a flight needs both of its parts."""
    subject = query.split()[-1].strip("?")
    return [Passage(f"t{subject}", f"the truth of {subject}"), Passage(f"l{subject}", f"a lie of {subject}")]


GOLD = {"known": "by heart", "both": "by heart", "read": "from the truth", "hard": "out of parts", "part": "half"}


def script(fields: dict[str, Any]) -> dict[str, Any]:
    """Knows `known` and `both`; reads `both` and `read` out of the truth, and the lie wherever it is shown first."""
    subject = fields["question"].split()[-1].strip("?")
    if "passage" in fields:
        return {"verdict": "relevant"}  # gullible: the natural verdict is wrong for lies
    if "facts" in fields:
        return {"answer": "out of parts" if "half" in str(fields["facts"]) else "nonsense"}
    if "passages" in fields:
        found = str(fields["passages"])
        honest = "lie" not in found and subject in ("both", "read", "part")
        return {"evidence": "e", "answer": GOLD[subject] if honest else "nonsense"}
    return {
        "verdict": "know",
        "answer": "by heart" if subject in ("known", "both") else "nonsense",
        "sub_questions": ["What of part?"] if subject == "hard" else [],
    }


def asked(*subjects: str) -> list[dspy.Example]:
    return [dspy.Example(question=f"What of {s}?", answer=GOLD[s]).with_inputs("question") for s in subjects]


@pytest.fixture
def student() -> RAISF:
    made = RAISF(Shelf(truth_and_lie), k=2)
    made.set_lm(ScriptedLM(script))
    return made


def tried(student: RAISF, tmp_path: Path, *subjects: str, call: float = 0.01, search: float = 0.0) -> Advantages:
    trying = Trying(student, answer_exact_match, call, search, threads=2, progress=False)
    return trying.outcomes(asked(*subjects), Journal(tmp_path / "journal.jsonl"), "tries")


def verdicts(found: Advantages, judge: str) -> dict[str, tuple[str, float]]:
    return {
        " / ".join(row.inputs().values()): (row.verdict, pytest.approx(row.weight, abs=1e-6)) for row in found.of[judge]
    }


def test_the_verdict_whose_end_is_better_is_the_label_and_by_how_much_its_weight(
    student: RAISF, tmp_path: Path
) -> None:
    found = tried(student, tmp_path, "known", "both", "read")
    know = verdicts(found, "know")
    # Know takes 2 calls, going on 4: the judge, two passages and the reader.
    assert know["What of known?"] == ("know", 1.02)
    assert know["What of both?"] == ("know", 0.02), "right either way: it saves two calls"
    # Both passages together mislead, but the judge of passages learns too.
    assert know["What of read?"] == ("unknown", 0.98)
    relevant = verdicts(found, "relevance")
    assert relevant["What of read? / the truth of read"] == ("relevant", 1.0)
    assert relevant["What of read? / a lie of read"] == ("irrelevant", 1.0)
    assert not any("known" in text for text in relevant), "wrong with and without: no lesson"
    assert found.even["relevance"] == 2 and found.unreadable == found.failed == 0


def test_at_equal_ends_the_cheaper_verdict_wins_by_what_it_saves(student: RAISF, tmp_path: Path) -> None:
    student.k = 1  # the truth alone
    found = tried(student, tmp_path, "both", "read", search=0.1)
    know = verdicts(found, "know")
    assert know["What of both?"] == ("know", 0.01 + 0.1), "right either way, with a judgement and a search less"
    assert know["What of read?"] == ("unknown", 1 - 0.01 - 0.1)
    assert [row.decided for row in found.of["know"]] == [False, True]
    free = Trying(student, answer_exact_match, 0.0, 0.0, threads=1, progress=False)
    nothing = free.outcomes(asked("both"), Journal(tmp_path / "free.jsonl"), "tries")
    assert nothing.of["know"] == [] and nothing.even["know"] == 1


def test_sub_questions_are_judged_by_the_final_answer(student: RAISF, tmp_path: Path) -> None:
    found = tried(student, tmp_path, "hard")
    know, relevant = verdicts(found, "know"), verdicts(found, "relevance")
    # 9 calls: 3 judgements, a decomposition, 3 judgements, the reader, the composer; memory is 2 shorter, and wrong.
    assert know["What of hard?"] == ("unknown", 1 - 0.09 + 0.02)
    assert know["What of part?"] == ("unknown", 1 - 0.02)
    assert relevant["What of part? / the truth of part"] == ("relevant", 1.0)
    assert relevant["What of part? / a lie of part"] == ("irrelevant", 1.0)
    assert relevant["What of hard? / the truth of hard"] == ("irrelevant", 1 - 0.09 + 0.04), "no passage suffices"
    assert {row.origin for rows in found.of.values() for row in rows} == {"What of hard?"}


def test_a_way_that_ends_a_stepwise_decomposition_before_the_part_tried_has_no_answer_of_it(tmp_path: Path) -> None:
    """A verdict on words that stand below an earlier part, too, changed that one's answer: the question was lost."""

    def judged(fields: dict[str, Any]) -> dict[str, Any]:
        asked, facts = fields["question"], str(fields.get("facts", ""))
        read = "E" if "= D" in facts else "C" if facts else "unknown"
        below = {"What of hard?": "film?" if ": C" in facts else "sequel?", "sequel?": "film?"}  # none is asked twice
        found = {"What of hard?": "out of parts", "film?": "D", "sequel?": read}
        return {"verdict": "unknown", "answer": found[asked], "follow_up": below.get(asked, "none")}

    program = RAISF(use_relevance=False, decomposition="stepwise")
    program.set_lm(ScriptedLM(judged))
    assert tried(program, tmp_path, "hard").of["know"]


def test_the_student_stays_as_it_is_and_equal_calls_are_made_once(student: RAISF, tmp_path: Path) -> None:
    tried(student, tmp_path, "known", "read", "hard")
    calls = [json.dumps(call) for call in student.know.lm.calls if len(call) > 1]  # else three predictors ask alike
    assert len(calls) == len(set(calls)) > 10
    assert student(question="What of read?").trace.root.know.verdict == "know"


def test_a_reply_that_cannot_be_read_gives_no_label(tmp_path: Path) -> None:
    def mute(fields: dict[str, Any]) -> dict[str, Any] | str:
        return "rubbish" if "passages" in fields else script(fields)

    student = RAISF(Shelf(truth_and_lie), k=2)
    student.set_lm(ScriptedLM(mute))
    found = tried(student, tmp_path, "both")
    assert found.of["know"] == found.of["relevance"] == [] and found.unreadable > 0


def test_a_killed_try_goes_on_where_it_was(student: RAISF, tmp_path: Path) -> None:
    whole = tried(student, tmp_path / "whole", "known", "read", "hard")
    lost = RAISF(Shelf(truth_and_lie), k=2)

    def dies(fields: dict[str, Any]) -> dict[str, Any]:
        if "hard" in fields["question"]:
            raise KeyboardInterrupt
        return script(fields)

    lost.set_lm(ScriptedLM(dies))
    trying = Trying(lost, answer_exact_match, 0.01, 0.0, threads=1, progress=False)
    examples = asked("known", "read", "hard")
    with pytest.raises(KeyboardInterrupt):
        trying.outcomes(examples, Journal(tmp_path / "j.jsonl"), "tries")
    again = Trying(student, answer_exact_match, 0.01, 0.0, threads=1, progress=False)
    before = len(student.know.lm.calls)
    found = again.outcomes(examples, Journal(tmp_path / "j.jsonl"), "tries")
    assert {call["question"] for call in student.know.lm.calls[before:]} == {"What of hard?", "What of part?"}
    assert [[dict(row) for row in rows] for rows in found.of.values()] == [
        [dict(row) for row in rows] for rows in whole.of.values()
    ]


def test_tries_that_are_kept_are_not_made_again_and_their_price_is_told(student: RAISF, tmp_path: Path) -> None:
    """Who compiles with more rows than before would else pay for all tries anew."""
    journal = tmp_path / "tries.jsonl"
    trying = Trying(student, answer_exact_match, 0.01, 0.0, threads=1, progress=False)
    first = trying.outcomes(asked("known", "read"), Journal(journal), "tries")
    assert first.seconds > 0 == first.seconds_before
    before = len(student.know.lm.calls)
    again = Trying(student, answer_exact_match, 0.01, 0.0, threads=1, progress=False)
    more = again.outcomes(asked("hard", "read", "known"), Journal(journal), "tries")
    assert {call["question"] for call in student.know.lm.calls[before:]} == {"What of hard?", "What of part?"}
    assert more.seconds_before == pytest.approx(first.seconds) and more.seconds > more.seconds_before
    assert len(more.of["know"]) > len(first.of["know"])


def test_a_dead_endpoint_ends_the_tries(tmp_path: Path) -> None:
    def down(fields: dict[str, Any]) -> str:
        raise LMError("cannot be reached")

    student = RAISF(Shelf(truth_and_lie), k=2)
    student.set_lm(ScriptedLM(down))
    with pytest.raises(LMError, match="10 questions in a row"):
        tried(student, tmp_path, *(["known"] * 12))


def test_few_rows_are_those_that_weigh_most_and_lean_to_no_verdict() -> None:
    rows = [dspy.Example(verdict="know", weight=0.1 * n, n=n) for n in range(1, 11)]
    rows += [dspy.Example(verdict="unknown", weight=1.0, n=n) for n in range(3)]
    drawn = heaviest(rows, 6, random.Random(0))
    assert sorted(row.n for row in drawn if row.verdict == "know") == [8, 9, 10]
    mass = {v: sum(row.weight for row in drawn if row.verdict == v) for v in ("know", "unknown")}
    assert mass == {"know": pytest.approx(3), "unknown": pytest.approx(3)}
    assert max(row.weight for row in drawn) == pytest.approx(3 * 1.0 / 2.7)


def test_rejection_takes_rows_by_their_weight_and_leaves_no_verdict_out() -> None:
    rows = [dspy.Example(verdict="know", weight=0.01)] + [dspy.Example(verdict="know", weight=0.0001)] * 200
    rows += [dspy.Example(verdict="unknown", weight=w) for w in (1.0, 0.5) for _ in range(200)]
    taken = accepted(rows, random.Random(0))
    weights = [row.weight for row in taken]
    assert weights.count(1.0) == 200 and 70 < weights.count(0.5) < 130
    assert weights.count(0.01) == 1 and weights.count(0.0001) < 10


# The optimizer


@pytest.fixture
def gullible(world: Any, oracle: Any) -> RAISF:
    """Thinks that it knows all, and that all passages are relevant: gold or outcomes can tell it better."""
    right = oracle()._script.answer

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        said = dict(right(fields))
        if "passages" in fields and said["answer"] not in str(fields["passages"]):
            said["answer"] = "nonsense"
        return {**said, "verdict": "relevant" if "passage" in fields else "know"}

    program = RAISF(BM25.load(world.index), k=3)
    program.set_lm(ScriptedLM(answer))
    return program


def compiled(program: Any, world: Any, tmp_path: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"rows": 20, "work": tmp_path / "work", "progress": False, **options}
    return raisf.compile(program, trainset=world.train[:10], valset=world.dev[:4], how="outcome", **given)


@pytest.mark.slow
def test_the_judges_learn_weights_from_answers_alone(gullible: RAISF, world: Any, llama: Path, tmp_path: Path) -> None:
    bare = [dspy.Example(question=e.question, answer=e.answer).with_inputs("question") for e in world.train[:14]]
    sets = {"trainset": bare, "valset": [e.copy(gold_pids=None, sub_questions=None) for e in world.dev[:6]]}
    options: Any = {"rows": 20, "base": LocalLM(f"local/{llama}"), "training": QUICK, "work": tmp_path / "work"}
    made = raisf.OutcomeJudges(**options, progress=False).compile(gullible, **sets)
    report = made.compile_report
    assert (report["how"], report["by"]) == ("outcome", "weights")
    assert report["predictors"].keys() == {"know", "relevant"} and "decompose" in report["missing"]
    assert made.know.lm.lora is not None and made.compose.lm is gullible.compose.lm
    told = report["outcomes"]["judges"]
    assert told["know"]["agreement"]["n"] > 0 and "agreement" not in told["relevance"], "gold knows no passage"
    assert report["outcomes"]["lm_calls"] > 0 and 0 < told["know"]["advantage"] <= 2
    for judge in told.values():
        assert sum(judge["taken"].values()) <= 20 and all(judge["rows"].values())
    save(made, tmp_path / "a")
    loaded: Any = load(tmp_path / "a", lm=gullible.compose.lm)
    assert loaded.compile_report == json.loads(json.dumps(report)) and loaded.know.lm.lora is not None


def test_the_judges_learn_probes_by_what_their_verdicts_are_worth(
    gullible: RAISF, world: Any, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[Any] = []

    def fit(labels: Any, layers: Any, train: Any, validation: Any) -> Any:
        fitted.append(train)
        return fit_probe(labels, layers, train, validation)

    monkeypatch.setattr(probe, "fit_probe", fit)
    made = compiled(gullible, world, tmp_path, by="probe", base=LocalLM(f"local/{llama}"))
    assert (made.compile_report["how"], made.compile_report["by"]) == ("outcome", "probe")
    assert made.know.lm.probe and made.relevant.lm.probe and made.compose.lm is gullible.compose.lm
    assert len(compiled_view(made.compile_report)) == 2, "what was tried, and the probes"
    for rows in fitted:
        mass = [rows.weights[rows.gold == label].sum() for label in (0, 1)]
        assert mass == pytest.approx([len(rows.gold) / 2] * 2), "either label weighs as much"
    assert any(len(set(rows.weights[rows.gold == label].round(6))) > 1 for rows in fitted for label in (0, 1))
    save(made, tmp_path / "a")
    loaded: Any = load(tmp_path / "a", lm=gullible.compose.lm)
    assert loaded.know.lm.probe and loaded.compile_report["outcomes"]["lm_calls"] > 0


@pytest.mark.slow
def test_the_judges_learn_demonstrations_whose_verdicts_paid(
    gullible: RAISF, world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def values(self: Any, program: Any, examples: Any, show: Any) -> list[float]:
        return [sum(len(p.demos) for _, p in program.named_predictors()) / 1000] * len(examples)

    monkeypatch.setattr(Selection, "values", values)  # what has demonstrations wins, so that they are seen
    made = compiled(gullible, world, tmp_path, by="prompts")
    for judge in (made.know, made.relevant):
        assert len({demo["verdict"] for demo in judge.demos}) == 2 and not any("weight" in demo for demo in judge.demos)
    assert made.compile_report["strategy"] == "labeled" and made.compile_report["by"] == "prompts"


@pytest.mark.slow
def test_a_judge_that_is_never_asked_is_left_out(gullible: RAISF, world: Any, tmp_path: Path) -> None:
    """All tries were paid before it was said that there are no outcomes of the judge of what is known."""
    guesses = itertools.count()

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        said = gullible.know.lm._script.answer(fields)
        return said if {"passage", "passages", "facts"} & fields.keys() else {**said, "answer": f"{next(guesses)}"}

    by_drafts = RAISF(gullible.retriever, k=3, know="consistency")
    by_drafts.set_lm(ScriptedLM(answer))
    told = compiled(by_drafts, world, tmp_path, by="prompts").compile_report["outcomes"]["judges"]
    assert told.keys() == {"relevance"} and sum(told["relevance"]["taken"].values()) > 1


def test_what_cannot_be_tried_is_told_before_the_lm_is_asked(gullible: RAISF, world: Any, tmp_path: Path) -> None:
    other = RAG(gullible.retriever)
    other.set_lm(gullible.know.lm)
    listwise = RAISF(gullible.retriever, relevance="listwise")
    listwise.set_lm(gullible.know.lm)
    without = RAISF(gullible.retriever, use_know=False, use_relevance=False)
    without.set_lm(gullible.know.lm)
    by_drafts = RAISF(gullible.retriever, know="consistency", use_relevance=False)
    by_drafts.set_lm(gullible.know.lm)
    for program, options, message in (
        (other, {}, "verdicts are tried within RA-ISF, and this is a RAG"),
        (listwise, {}, "passages are tried one by one"),
        (without, {}, "no judge is left"),
        (by_drafts, {}, "no judge is left"),
        (gullible, {"call_price": -1}, "call_price is -1: give 0 or more"),
        (gullible, {"by": "magic"}, "unknown by 'magic': choose weights, probe, prompts"),
        (gullible, {"rows": 1}, "rows is 1: give a whole number, 2 or more"),
        (gullible, {"by": "weights"}, "scripted/lm is elsewhere: give a base"),
    ):
        with pytest.raises(InputError, match=message):
            compiled(program, world, tmp_path, **options)
    assert gullible.know.lm.calls == []


def test_one_verdict_alone_teaches_no_judge(world: Any, tmp_path: Path) -> None:
    student = RAISF(Shelf(truth_and_lie), k=2)
    student.set_lm(ScriptedLM(script))
    with pytest.raises(InputError, match=r"know judge needs outcomes of both verdicts, found 2 'know' and 0 'unknown'"):
        raisf.OutcomeJudges(by="prompts", progress=False, work=tmp_path).compile(
            student, trainset=asked("known", "both"), valset=asked("read")
        )
