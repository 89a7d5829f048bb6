"""The judges' training sets as files, each row with where it comes from (Liu et al. 2024, appendix A)."""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dspy

from raisf.evaluation.examples import check_trainset, describe_test, question_id
from raisf.evaluation.identity import describe, describe_lm, digest
from raisf.evaluation.runner import check_ran
from raisf.optimize.judges.agreement import Agreement
from raisf.optimize.judges.judge_data import JUDGES, asked_in, otherwise_supported, steps, steps_asked, tell_of_outside
from raisf.optimize.judges.labelling import Labelling, RowsOfOne
from raisf.optimize.judges.labels import Labels, check_asking, check_labelled
from raisf.optimize.overlap import check_disjoint
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.adapting import searched
from raisf.utils.errors import InputError
from raisf.utils.files import LOCK, locked, read_json, write_json, write_jsonl
from raisf.utils.journal import Journal
from raisf.utils.leftovers import strangers
from raisf.utils.predictors import require_lm
from raisf.utils.progress import progress_bar
from raisf.utils.usage import tell_resumed

# Questions after which what is collected is safe on disk.
CHUNK = 50
FORMAT = 3
"""Of a folder: another where rows are labelled or kept otherwise, as old and new ones in one file would not agree."""
_STATE, _JOURNAL = "collected.json", "journal.jsonl"
# The journal's key of what the teacher has cost; no question's id, which is a text without a line break here.
_COST, _MADE = "the teacher's cost\n", "made\n"


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

    A row holds the judge's inputs, its output, and `source`: the training question's `id`, who `labelled` it
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
        {"rows": {judge: {class: count}}, "agreement": {judge: {"agree": share, "low", "high": the ends of its interval,
        "kappa": Cohen's, "n": count}},
        "teacher": its calls, tokens and seconds, "errors": failed calls, "unreadable": replies that could not be read,
        "unfinished": training questions with one of either, whose missing rows the same call makes later}.

    Raises:
        InputError: No questions, answers missing, an overlapping split, unknown labels, or a folder of another
            collection, or one that another process is writing into.
        LMError: The LM failed on ten calls in a row; or, once what there is lies in the folder, on all there are, and
            gold gives no row, or most of its replies cannot be read.
    """
    check_trainset(trainset)
    check_asking(labels, threads)
    check_disjoint(trainset, others or {})
    _check_ids(trainset)
    require_lm(program)
    made = {"program": describe(program), "train": describe_test(trainset), "labels": labels}
    made |= {"teacher": describe_lm(teacher)}
    folder = Path(out)
    _check_own(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, f"another collect is writing into {folder}: wait for it, or give another folder"):
        journal = _open(folder, digest(made))
        origin = {step.question: question_id(one) for one in reversed(trainset) for step in reversed(steps(one))}
        asked = steps_asked(trainset)
        if (retriever := searched(program)) is not None:
            tell_of_outside(asked.values(), retriever)  # of all, as else each chunk would tell of its own
        once: dict[str, dspy.Example] = {}  # a question may stand there several times
        for example in trainset:
            once.setdefault(question_id(example), example)
        if any(identity in journal for identity in once):
            tell_resumed()
        labelling = Labelling(program, origin, asked, otherwise_supported(trainset), labels, teacher, threads)
        spent, partial = labelling.spent, dict[str, RowsOfOne]()
        spent.teacher.update(journal.get(_COST) or {})
        try:
            _label_missing(labelling, once, journal, partial, progress)
        finally:
            found = [journal.get(identity) or partial.get(identity) for identity in once]
            kept = [one for one in found if one]
            counts = _write(folder, kept)
    if not any(counts.values()):
        check_ran(spent.asked, spent.failed.total(), spent.error, "every question that was to be labelled")
    check_labelled(spent.asked, spent.unreadable.total())
    return {
        "rows": counts,
        "agreement": _agreement(kept),
        "teacher": {"lm": teacher.model, **{name: round(cost) for name, cost in spent.teacher.items()}}
        if teacher is not None
        else None,
        "errors": spent.failed.total(),
        "unreadable": spent.unreadable.total(),
        "unfinished": sum(identity not in journal for identity in once),
    }


def _label_missing(
    labelling: Labelling,
    once: Mapping[str, dspy.Example],
    journal: Journal,
    partial: dict[str, RowsOfOne],
    progress: bool,
) -> None:
    """Labels the questions that the journal lacks, and adds their rows to it.

    Rows of a question some of whose replies are missing go into `partial` instead, so that it is asked again.
    """
    waiting = [example for identity, example in once.items() if identity not in journal]
    spent = labelling.spent
    with progress_bar(progress) as bar:
        done = len(once) - len(waiting)
        task = bar.add_task("collecting", total=len(once), completed=done, score="")
        for start in range(0, len(waiting), CHUNK):
            chunk = waiting[start : start + CHUNK]
            for identity, rows in labelling.rows(chunk).items():
                if identity in spent.failed or identity in spent.unreadable:
                    partial[identity] = rows
                else:
                    journal.add(identity, rows)
            if labelling.teacher is not None:
                journal.add(_COST, spent.teacher)
            bar.update(task, advance=len(chunk))


def _check_ids(trainset: Sequence[dspy.Example]) -> None:
    """Of two questions with one id only one's rows would be kept."""
    asked: dict[str, str] = {}
    for example in trainset:
        if asked.setdefault(name := question_id(example), example.question) != example.question:
            raise InputError(
                f"two training questions share the id {name!r}, {asked[name]!r:.60} and {example.question!r:.60}: give "
                "each its own"
            )


def _check_own(folder: Path) -> None:
    if (folder / _STATE).is_file() or not folder.is_dir():
        return
    ours = (folder / LOCK).is_file() and (folder / _JOURNAL).is_file()
    rows = (_JOURNAL, *(f"{judge}.jsonl" for judge in JUDGES)) if ours else ()
    if strangers(folder, LOCK, *rows):
        raise InputError(f"{folder} holds other things: give a new folder")


def _open(folder: Path, made: str) -> Journal:
    """The folder's journal, begun if there is none."""
    ours = {"made": made, "format": FORMAT}
    journal = Journal(folder / _JOURNAL)
    found = _state(folder)
    if found is None:
        found = journal.get(_MADE) if journal.found else ours
        if found is None:
            raise InputError(f"{folder} has lost its {_STATE}, which said whose rows it holds: give a new folder")
    _check_format(folder, found, "give a new folder")
    if found.get("made") != made:
        raise InputError(f"{folder} holds rows of another program, LM, teacher or training file: give a new folder")
    write_json(folder / _STATE, ours)
    journal.once(_MADE, lambda: ours)
    return journal


def _state(folder: Path) -> dict[str, Any] | None:
    """What a folder says of its rows; None where it says nothing, or a power cut has damaged it."""
    with contextlib.suppress(InputError):
        found = read_json(folder / _STATE) if (folder / _STATE).is_file() else None
        return found if isinstance(found, dict) else None


def _check_format(folder: Path, found: dict[str, Any], remedy: str) -> None:
    if found.get("format") != FORMAT:
        raise InputError(
            f"{folder} was collected by an earlier version, which labelled or kept rows otherwise: {remedy}"
        )


def check_collected(folder: Path) -> None:
    """Makes sure that the rows of a folder are labelled as `collect` labels now, where it wrote them.

    Raises:
        InputError: They are not.
    """
    if found := _state(folder):
        _check_format(folder, found, "collect them anew, into a new folder")


def _write(folder: Path, kept: Sequence[RowsOfOne]) -> dict[str, dict[str, int]]:
    """Writes the judges' files, each row once, since questions share sub-questions; counts each class."""
    counts = {}
    for judge in JUDGES:
        rows = {asked_in(row): row for one in reversed(kept) for row in reversed(one["rows"][judge])}
        write_jsonl(folder / f"{judge}.jsonl", reversed(rows.values()))
        counts[judge] = dict(sorted(Counter(map(_class, rows.values())).items()))
    return counts


def _agreement(kept: Sequence[RowsOfOne]) -> dict[str, dict[str, Any]]:
    """By judge, how far teacher and gold agree; lists of sub-questions have no kappa, but a nearness."""
    found = {}
    for judge in JUDGES:
        pairs = [(pair, number) for number, one in enumerate(kept) for pair in one["agreement"].get(judge, [])]
        agreed = Agreement.of([(gold, said) for (gold, said), _ in pairs], [number for _, number in pairs])
        found |= {judge: agreed.as_dict()} if agreed.n else {}
    if "decomposition" in found:
        near = [f1 for one in kept for f1 in one["token_f1"]]
        found["decomposition"] |= {"kappa": None, "token_f1": sum(near) / len(near)}
    return found


def _class(row: dict[str, Any]) -> str:
    if "relevant_ids" in row:
        return "relevant" if row["relevant_ids"] else "irrelevant"
    return row["verdict"] if "verdict" in row else f"{len(row['sub_questions'])} parts"
