"""The judges' training sets as files, each row with where it comes from (Liu et al. 2024, appendix A)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import dspy

from raisf.evaluation.identity import describe, describe_test, digest, question_id
from raisf.evaluation.runner import progress_bar
from raisf.optimize.judges.judge_data import decomposition_examples, relevance_examples, steps
from raisf.optimize.judges.judgements import ask_each, plain
from raisf.optimize.judges.labels import Labels, check_asking, check_labelled, know_labels
from raisf.optimize.overlap import check_disjoint
from raisf.programs.calls import require_lm
from raisf.programs.ra_isf import RAISF
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import Decomposition, PassageRelevance
from raisf.utils.errors import InputError
from raisf.utils.files import locked, read_json, write_json, write_jsonl
from raisf.utils.journal import Journal

JUDGES = ("know", "relevance", "decomposition")
# Questions after which what is collected is safe on disk.
CHUNK = 50
_STATE, _JOURNAL, _LOCK = "collected.json", "journal.jsonl", ".lock"
_EARLIER = "done.jsonl"  # of versions that kept no journal


def collect(
    program: RAISF,
    trainset: Sequence[dspy.Example],
    out: Path | str,
    *,
    labels: Labels = "model",
    teacher: dspy.LM | None = None,
    others: Mapping[str, Sequence[dspy.Example]] | None = None,
    threads: int = 8,
    progress: bool = True,
) -> dict[str, Any]:
    """Writes know.jsonl, relevance.jsonl and decomposition.jsonl for RA-ISF's judges; a stopped call goes on.

    A row holds the judge's inputs, its gold output, and `source`: the training question's `id`, who `labelled` it
    (gold, model, teacher), `by` which LM, and a hash of the `call` where one was asked. A reply that cannot be read, or
    that was cut off, is no label: it gives no row, it is counted, and the next call asks again.

    Args:
        program: With the LM whose knowledge is judged, and the retriever whose passages are.
        trainset: Questions with answers; with gold passages and decompositions as far as there is no teacher.
        out: The folder; its `journal.jsonl` keeps each question's rows as they are found.
        labels: How known questions are told from unknown ones; see `know_labels`.
        teacher: Judges relevance and decomposes where gold says nothing; None: such questions give no such rows.
            Where gold speaks too, the teacher is asked all the same, and `agreement` says how often they agree.
        others: Splits by name that must share no question with the training set.
        threads: Questions asked at a time.
        progress: Show a bar on stderr.

    Returns:
        {"rows": {judge: {class: count}}, "agreement": {judge: {"agree": share, "n": count}}, "errors": failed calls,
        "unreadable": replies that could not be read, "unfinished": training questions with one of either, whose missing
        rows the same call makes later}.

    Raises:
        InputError: No questions, answers missing, an overlapping split, unknown labels, or a folder of another
            collection, or one that another process is writing into.
        LMError: The LM failed on ten calls in a row; or most of its replies cannot be read, once what there is lies in
            the folder.
    """
    if not trainset:
        raise InputError("the training set is empty: give a file with a question and its answer a line")
    check_asking(labels, threads)
    check_disjoint(trainset, others or {})
    require_lm(program)
    made = {"program": describe(program), "train": describe_test(trainset), "labels": labels}
    made |= {"teacher": teacher.model if teacher else None}
    folder = Path(out)
    _check_own(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / _LOCK, f"another collect is writing into {folder}: wait for it, or give another folder"):
        journal = _open(folder, digest(made))
        waiting = [example for example in trainset if question_id(example) not in journal]
        origin = {step.question: question_id(one) for one in reversed(trainset) for step in reversed(steps(one))}
        missing, partial = _Missing(), dict[str, _Kept]()
        try:
            with progress_bar(progress) as bar:
                done = len(trainset) - len(waiting)
                task = bar.add_task("collecting", total=len(trainset), completed=done, score="")
                for start in range(0, len(waiting), CHUNK):
                    chunk = waiting[start : start + CHUNK]
                    for identity, kept in _rows(program, chunk, origin, labels, teacher, threads, missing).items():
                        if identity in missing.failed or identity in missing.unreadable:
                            partial[identity] = kept
                        else:
                            journal.add(identity, kept)
                    bar.update(task, advance=len(chunk))
        finally:
            kept = [journal.get(identity) or partial.get(identity) for identity in map(question_id, trainset)]
            counts = _write(folder, [one for one in kept if one])
    check_labelled(missing.asked, missing.unreadable.total())
    return {
        "rows": counts,
        "agreement": _shares([journal.get(identity) for identity in map(question_id, trainset) if identity in journal]),
        "errors": missing.failed.total(),
        "unreadable": missing.unreadable.total(),
        "unfinished": sum(question_id(example) not in journal for example in trainset),
    }


class _Kept(TypedDict):
    """What one training question gives: rows of each judge, and of how many teacher (or LM) and gold agree."""

    rows: dict[str, list[dict[str, Any]]]
    agreement: dict[str, list[int]]


@dataclass(slots=True)
class _Missing:
    """Calls made in labelling, and by training question's id how many failed and how many could not be read."""

    asked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)


def _check_own(folder: Path) -> None:
    if (folder / _STATE).is_file() or not folder.is_dir():
        return
    if {file.name for file in folder.iterdir()} - {_LOCK}:
        raise InputError(f"{folder} holds other things: give a new folder")


def _open(folder: Path, made: str) -> Journal:
    """The folder's journal, begun if there is none."""
    if not (folder / _STATE).is_file():
        write_json(folder / _STATE, {"made": made})
    elif read_json(folder / _STATE).get("made") != made:
        raise InputError(f"{folder} holds rows of another program, LM, teacher or training file: give a new folder")
    elif (folder / _EARLIER).exists():
        raise InputError(f"{folder} was collected by an earlier version, which kept no journal: give a new folder")
    return Journal(folder / _JOURNAL)


def _write(folder: Path, kept: Sequence[_Kept]) -> dict[str, dict[str, int]]:
    """Writes the judges' files, each row once, since questions share sub-questions; counts each class."""
    counts = {}
    for judge in JUDGES:
        rows = {_inputs(row): row for one in reversed(kept) for row in reversed(one["rows"][judge])}
        write_jsonl(folder / f"{judge}.jsonl", reversed(rows.values()))
        counts[judge] = dict(sorted(Counter(map(_class, rows.values())).items()))
    return counts


def _shares(kept: Sequence[_Kept]) -> dict[str, dict[str, float]]:
    """By judge, how often teacher and gold agree."""
    shares = {}
    for judge in JUDGES:
        agree, n = (sum(one["agreement"].get(judge, [0, 0])[i] for one in kept) for i in (0, 1))
        shares |= {judge: {"agree": agree / n, "n": n}} if n else {}
    return shares


def _rows(
    program: RAISF,
    chunk: list[dspy.Example],
    origin: Mapping[str, str],
    labels: Labels,
    teacher: dspy.LM | None,
    threads: int,
    missing: _Missing,
) -> dict[str, _Kept]:
    """What some questions give, by their id; calls that failed or could not be read are added to `missing`.

    Questions share sub-questions: `origin` says by its text which training question a step's rows belong to.
    """
    known = {step.question: step.known for example in reversed(chunk) for step in reversed(steps(example))}
    kept: dict[str, _Kept] = {
        question_id(example): {"rows": {judge: [] for judge in JUDGES}, "agreement": {}} for example in chunk
    }

    def add(
        judge: str, row: Any, outputs: dict[str, Any], labelled: str, lm: Any = None, signature: Any = None
    ) -> None:
        if origin[row.question] not in kept:  # the row of a training question of another chunk
            return
        inputs = {name: row[name] for name in row.inputs().keys()}
        source = {"id": origin[row.question], "labelled": labelled}
        if lm is not None:
            source |= {"by": lm.model, "call": digest([signature.instructions, inputs, lm.model])}
        kept[origin[row.question]]["rows"][judge].append({**inputs, **outputs, "source": source})

    def compare(judge: str, question: str, gold: Any, said: Any) -> None:
        if gold is not None and origin[question] in kept:
            agree, n = kept[origin[question]]["agreement"].get(judge, [0, 0])
            kept[origin[question]]["agreement"][judge] = [agree + (gold == said), n + 1]

    answerer: Any = program.answer_directly
    made = know_labels(chunk, answerer=answerer, labels=labels, threads=threads)
    missing.asked += made.asked
    missing.failed.update(origin[question] for question in made.failed)
    missing.unreadable.update(origin[question] for question in made.unreadable)
    for row in made.rows:
        by_gold = labels == "gold" and known[row.question] is not None
        lm = None if by_gold else answerer.lm or dspy.settings.lm
        add("know", row, {"verdict": row.verdict}, "gold" if by_gold else "model", lm, DirectAnswer)
        if labels == "model":
            compare("know", row.question, known[row.question], row.verdict == "know")

    retriever: Any = program.retriever
    gold_relevance = relevance_examples(chunk, retriever, program.k) if retriever else []
    gold_parts = decomposition_examples(chunk)
    for row in gold_relevance:
        add("relevance", row, {"verdict": row.verdict}, "gold")
    for row in gold_parts:
        add("decomposition", row, {"sub_questions": row.sub_questions}, "gold")
    if teacher is None:
        return kept

    truth = {(row.question, row.passage): row.verdict for row in gold_relevance}
    judged = _taught(PassageRelevance, "verdict", _passages(program, list(known)), teacher, threads, origin, missing)
    for row, said in judged:
        gold = truth.get((row.question, row.passage))
        compare("relevance", row.question, gold, said)
        if gold is None:
            add("relevance", row, {"verdict": said}, "teacher", teacher, PassageRelevance)
    whole = [dspy.Example(question=example.question).with_inputs("question") for example in chunk]
    parts = {row.question: row.sub_questions for row in gold_parts}
    for row, said in _taught(Decomposition, "sub_questions", whole, teacher, threads, origin, missing):
        compare("decomposition", row.question, parts.get(row.question), said)
        if row.question not in parts and said and len(said) > 1:
            add("decomposition", row, {"sub_questions": said}, "teacher", teacher, Decomposition)
    return kept


def _passages(program: RAISF, questions: Sequence[str]) -> list[dspy.Example]:
    """Each question with each of its k passages."""
    if program.retriever is None:
        return []
    shelves = program.retriever.search_many(questions, program.k)
    return [
        dspy.Example(question=question, passage=passage.prompt_text).with_inputs("question", "passage")
        for question, passages in zip(questions, shelves, strict=True)
        for passage in passages
    ]


def _taught(
    signature: Any,
    output: str,
    rows: list[dspy.Example],
    teacher: dspy.LM,
    threads: int,
    origin: Mapping[str, str],
    missing: _Missing,
) -> list[tuple[dspy.Example, Any]]:
    """What the teacher says of each row, as far as it can be read; the others are added to `missing`."""
    predictor = dspy.Predict(signature)
    predictor.lm = teacher
    said, _ = ask_each(plain(predictor), rows, list(signature.input_fields), threads, progress=False)
    missing.asked += len(rows)
    answered = {id(row) for row, _ in said}
    missing.failed.update(origin[row.question] for row in rows if id(row) not in answered)
    read = [(row, outputs[output] if outputs is not None else None) for row, outputs in said]
    missing.unreadable.update(origin[row.question] for row, value in read if value is None)
    return [(row, value) for row, value in read if value is not None]


def _inputs(row: dict[str, Any]) -> str:
    return digest([row["question"], row.get("passage")])


def _class(row: dict[str, Any]) -> str:
    return row["verdict"] if "verdict" in row else f"{len(row['sub_questions'])} parts"
