"""The judges' training sets as files, each row with where it comes from (Liu et al. 2024, appendix A)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy
import ujson

from raisf.evaluation.identity import describe, describe_test, digest, question_id
from raisf.evaluation.runner import progress_bar
from raisf.optimize.judges.judge_data import (
    Labels,
    check_asking,
    decomposition_examples,
    know_examples,
    relevance_examples,
    steps,
)
from raisf.optimize.judges.judgements import ask_each, plain
from raisf.optimize.overlap import check_disjoint
from raisf.programs.calls import require_lm
from raisf.programs.ra_isf import RAISF
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import Decomposition, PassageRelevance
from raisf.utils.errors import InputError
from raisf.utils.files import dump_line, locked, read_json, read_jsonl, write_json, write_jsonl

JUDGES = ("know", "relevance", "decomposition")
# Questions after which what is collected is safe on disk.
CHUNK = 50
_STATE, _DONE, _LOCK = "collected.json", "done.jsonl", ".lock"


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
    (gold, model, teacher), `by` which LM, and a hash of the `call` where one was asked.

    Args:
        program: With the LM whose knowledge is judged, and the retriever whose passages are.
        trainset: Questions with answers; with gold passages and decompositions as far as there is no teacher.
        out: The folder.
        labels: How known questions are told from unknown ones; see `know_examples`.
        teacher: Judges relevance and decomposes where gold says nothing; None: such questions give no such rows.
            Where gold speaks too, the teacher is asked all the same, and `agreement` says how often they agree.
        others: Splits by name that must share no question with the training set.
        threads: Questions asked at a time.
        progress: Show a bar on stderr.

    Returns:
        {"rows": {judge: {class: count}}, "agreement": {judge: {"agree": share, "n": count}}, "errors": failed calls,
        "unfinished": questions with a failed call, whose missing rows the same call makes later}.

    Raises:
        InputError: No questions, answers missing, an overlapping split, unknown labels, or a folder of another
            collection, or one that another process is writing into.
        LMError: The LM failed on ten calls in a row.
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
        return _collect(program, trainset, folder, digest(made), labels, teacher, threads, progress)


def _collect(
    program: RAISF,
    trainset: Sequence[dspy.Example],
    folder: Path,
    made: str,
    labels: Labels,
    teacher: dspy.LM | None,
    threads: int,
    progress: bool,
) -> dict[str, Any]:
    chunks = _open(folder, made)
    seen = {judge: {_inputs(row) for row in read_jsonl(folder / f"{judge}.jsonl")} for judge in JUDGES}
    errors = 0
    done = {identity for chunk in chunks for identity in chunk["ids"]}
    waiting = [example for example in trainset if question_id(example) not in done]
    with progress_bar(progress) as bar:
        task = bar.add_task("collecting", total=len(trainset), completed=len(done), score="")
        for start in range(0, len(waiting), CHUNK):
            chunk = waiting[start : start + CHUNK]
            found, agreement, failed = _rows(program, chunk, labels, teacher, threads)
            for judge in JUDGES:
                # Questions share sub-questions, also with those of another chunk.
                new = {key: row for row in found[judge] if (key := _inputs(row)) not in seen[judge]}
                _append(folder / f"{judge}.jsonl", list(new.values()))
                seen[judge] |= new.keys()
            errors += failed.total()
            ids = [identity for example in chunk if (identity := question_id(example)) not in failed]
            done.update(ids)
            chunks.append({"ids": ids, "agreement": agreement})
            # Last: rows of questions that no line names were perhaps written in part, and are dropped in going on.
            _append(folder / _DONE, chunks[-1:])
            bar.update(task, advance=len(chunk))
    counts = {judge: Counter(_class(row) for row in read_jsonl(folder / f"{judge}.jsonl")) for judge in JUDGES}
    shares = {}
    for judge in JUDGES:
        agree, n = (sum(chunk["agreement"].get(judge, (0, 0))[i] for chunk in chunks) for i in (0, 1))
        shares |= {judge: {"agree": agree / n, "n": n}} if n else {}
    return {
        "rows": {judge: dict(sorted(found.items())) for judge, found in counts.items()},
        "agreement": shares,
        "errors": errors,
        "unfinished": sum(question_id(example) not in done for example in trainset),
    }


def _check_own(folder: Path) -> None:
    if (folder / _STATE).is_file() or not folder.is_dir():
        return
    if {file.name for file in folder.iterdir()} - {_LOCK}:
        raise InputError(f"{folder} holds other things: give a new folder")


def _open(folder: Path, made: str) -> list[dict[str, Any]]:
    """The chunks that are done; what a killed call left behind of another is dropped."""
    if not (folder / _STATE).is_file():
        for name in (*(f"{judge}.jsonl" for judge in JUDGES), _DONE):
            _append(folder / name, [])
        write_json(folder / _STATE, {"made": made})
        return []
    if read_json(folder / _STATE).get("made") != made:
        raise InputError(f"{folder} holds rows of another program, LM, teacher or training file: give a new folder")
    _keep(folder / _DONE, lambda chunk: True)
    chunks = list(read_jsonl(folder / _DONE))
    done = {identity for chunk in chunks for identity in chunk["ids"]}
    for judge in JUDGES:
        _keep(folder / f"{judge}.jsonl", lambda row: row["source"]["id"] in done)
    return chunks


def _keep(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Drops the rows of a file that are not wanted, and a last one that was cut off."""
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    write_jsonl(path, [row for row in map(ujson.loads, whole) if wanted(row)])


def _rows(
    program: RAISF, chunk: list[dspy.Example], labels: Labels, teacher: dspy.LM | None, threads: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, tuple[int, int]], Counter[str]]:
    """Of some questions, the rows of each judge, how often teacher and gold agree, and by id how many calls failed.

    Who agrees is counted of the questions without a failed call: the others come again.
    """
    origin, known = {}, {}
    for example in chunk:
        for step in steps(example):
            origin.setdefault(step.question, question_id(example))
            known.setdefault(step.question, step.known)
    found: dict[str, list[dict[str, Any]]] = {judge: [] for judge in JUDGES}
    compared: list[tuple[str, str, Any, Any]] = []

    def add(
        judge: str, row: Any, outputs: dict[str, Any], labelled: str, lm: Any = None, signature: Any = None
    ) -> None:
        inputs = {name: row[name] for name in row.inputs().keys()}
        source = {"id": origin[row.question], "labelled": labelled}
        if lm is not None:
            source |= {"by": lm.model, "call": digest([signature.instructions, inputs, lm.model])}
        found[judge].append({**inputs, **outputs, "source": source})

    answerer: Any = program.answer_directly
    asked = know_examples(chunk, answerer=answerer, labels=labels, threads=threads)
    failed = Counter(origin[question] for question in origin.keys() - {row.question for row in asked})
    for row in asked:
        by_gold = labels == "gold" and known[row.question] is not None
        lm = None if by_gold else answerer.lm or dspy.settings.lm
        add("know", row, {"verdict": row.verdict}, "gold" if by_gold else "model", lm, DirectAnswer)
    if labels == "model":
        compared += [("know", row.question, known[row.question], row.verdict == "know") for row in asked]

    gold_relevance = relevance_examples(chunk, program.retriever, program.k) if program.retriever else []  # type: ignore[arg-type]
    gold_parts = decomposition_examples(chunk)
    for row in gold_relevance:
        add("relevance", row, {"verdict": row.verdict}, "gold")
    for row in gold_parts:
        add("decomposition", row, {"sub_questions": row.sub_questions}, "gold")
    if teacher is None:
        return found, _agreement(compared, origin, failed), failed

    judged, unjudged = _taught(PassageRelevance, "verdict", _passages(program, origin), teacher, threads)
    truth = {(row.question, row.passage): row.verdict for row in gold_relevance}
    for row, said in judged:
        compared.append(("relevance", row.question, truth.get((row.question, row.passage)), said))
        if (row.question, row.passage) not in truth and said is not None:
            add("relevance", row, {"verdict": said}, "teacher", teacher, PassageRelevance)
    plain = [dspy.Example(question=example.question).with_inputs("question") for example in chunk]
    split, unsplit = _taught(Decomposition, "sub_questions", plain, teacher, threads)
    parts = {row.question: row.sub_questions for row in gold_parts}
    for row, said in split:
        compared.append(("decomposition", row.question, parts.get(row.question), said))
        if row.question not in parts and said and len(said) > 1:
            add("decomposition", row, {"sub_questions": said}, "teacher", teacher, Decomposition)
    failed.update(origin[row.question] for row in [*unjudged, *unsplit])
    return found, _agreement(compared, origin, failed), failed


def _passages(program: RAISF, questions: Mapping[str, str]) -> list[dspy.Example]:
    """Each question with each of its k passages."""
    if program.retriever is None:
        return []
    shelves = program.retriever.search_many(list(questions), program.k)
    return [
        dspy.Example(question=question, passage=passage.prompt_text).with_inputs("question", "passage")
        for question, passages in zip(questions, shelves, strict=True)
        for passage in passages
    ]


def _taught(
    signature: Any, output: str, rows: list[dspy.Example], teacher: dspy.LM, threads: int
) -> tuple[list[tuple[dspy.Example, Any]], list[dspy.Example]]:
    """What the teacher says of each row, None where it cannot be read; and the rows whose call failed."""
    predictor = dspy.Predict(signature)
    predictor.lm = teacher

    said, _ = ask_each(plain(predictor), rows, list(signature.input_fields), threads, progress=False)
    answered = {id(row) for row, _ in said}
    failed = [row for row in rows if id(row) not in answered]
    return [(row, outputs[output] if outputs is not None else None) for row, outputs in said], failed


def _agreement(
    compared: list[tuple[str, str, Any, Any]], origin: Mapping[str, str], failed: Counter[str]
) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for judge, question, gold, said in compared:
        if gold is not None and said is not None and origin[question] not in failed:
            agree, n = found.get(judge, (0, 0))
            found[judge] = (agree + (gold == said), n + 1)
    return found


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(dump_line(row) for row in rows)


def _inputs(row: dict[str, Any]) -> str:
    return digest([row["question"], row.get("passage")])


def _class(row: dict[str, Any]) -> str:
    return row["verdict"] if "verdict" in row else f"{len(row['sub_questions'])} parts"
