"""Rows for RA-ISF's judges that were collected before, or are by a teacher now, for the optimizers to learn from."""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from raisf.evaluation.examples import describe_test
from raisf.evaluation.identity import describe, describe_lm, digest
from raisf.optimize.judges.collect import check_collected, collect
from raisf.optimize.judges.judge_data import JUDGES, VERDICTS, asked_in, steps, with_verdict
from raisf.optimize.judges.labels import Labels
from raisf.optimize.within import program_within, programs_within
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from raisf.utils.files import read_jsonl
from raisf.utils.sampling import up_to

logger = logging.getLogger(__name__)

# The share of the questions whose rows are kept for validation where no row is of a validation question.
HELD_OUT = 0.1
MOST_WEIGHT = 1_000_000
"""Of a row in the loss; an average row's is 1."""
_OUTPUTS = {"verdict", "relevant_ids", "sub_questions"}


@dataclass(frozen=True)
class JudgeRows:
    """What judges are to learn, by judge; with gold's or a teacher's verdicts.

    Attributes:
        of: By judge, its rows as examples; those of relevance with a `verdict` for balancing. A row may have a `weight`
            among those of its verdict (1 without), and an `origin`, the training question on whose way it was met.
        report: Who labelled them, at what cost, and how far that agrees with gold; for a compilation's report.
    """

    of: Mapping[str, Sequence[dspy.Example]]
    report: Mapping[str, Any]

    @classmethod
    def read(cls, *folders: Path | str) -> "JudgeRows":
        """The rows that `raisf collect` wrote, of all folders together; what several say is said by the first.

        Raises:
            InputError: A folder holds no such rows, rows that an earlier version labelled by other rules, or one that
                its judge cannot learn from; the message says which.
        """
        rows: dict[str, list[dspy.Example]] = {judge: [] for judge in JUDGES}
        known_by, otherwise = set[str](), 0
        for folder in map(Path, folders):
            check_collected(folder)
            for judge in JUDGES:
                path = folder / f"{judge}.jsonl"
                if not path.is_file():
                    raise InputError(f"{folder} has no {path.name}: give a folder that `raisf collect` wrote")
                found = list(read_jsonl(path))
                read = [_example(path, n, judge, row) for n, row in enumerate(found, start=1)]
                before = {asked_in(row): _said(row) for row in rows[judge]}
                own: dict[Any, list[Any]] = {}
                for row in read:
                    asked, said = asked_in(row), _said(row)
                    first = own.setdefault(asked, said) if judge != "decomposition" else said  # there are several ways
                    otherwise += said != before.get(asked, first)
                    rows[judge] += [row] if asked not in before and said == first else []
                known_by |= {lm for row in found if judge == "know" and (lm := _asked_lm(row))}
        if otherwise:
            logger.warning(
                "%d rows say something else than rows before them: what the first one says is learnt", otherwise
            )
        return cls(rows, {"folders": [str(folder) for folder in folders], "known_by": sorted(known_by)})

    def parts(
        self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example], *, hold_out: bool = True
    ) -> list[dict[str, list[dspy.Example]]]:
        """By judge, the rows to learn from, and those to validate on.

        A row belongs to the split of its `origin`, else to the one whose question, or sub-question, it is about. Where
        none is of the validation questions, those of a tenth of the training questions are held out, unless nobody
        validates.

        Raises:
            InputError: Most rows are of other questions, or none is of a training question.
        """
        asked, texts = self._questions(trainset, valset)
        if len(texts & (asked[0] | asked[1])) < len(texts) / 2:
            raise InputError(
                f"most of the rows in {self._folders} are of questions that the training file does not hold: give the "
                "file that they were collected from"
            )
        learnt = texts & asked[0]
        validated = (texts & asked[1]) - learnt
        if not learnt:  # else gold would take their place without a word
            raise InputError(
                f"no row in {self._folders} is of a training question: give the folder that was collected from --train"
            )
        if hold_out and not validated:
            validated = _held_out(learnt, trainset)
            learnt -= validated
        return [
            {judge: [row for row in rows if _origin(row) in part] for judge, rows in self.of.items()}
            for part in (learnt, validated)
        ]

    def holds_out(self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> bool:
        """Whether none is of the validation questions, so that `parts` holds out some of the training questions."""
        asked, texts = self._questions(trainset, valset)
        return not texts & asked[1] - asked[0]

    def tell_of_others(
        self, student: dspy.Module, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]
    ) -> None:
        """Warns of rows that `parts` leaves out, and of another LM's of what is known: it knows other things."""
        asked, _ = self._questions(trainset, valset)
        every = [row for rows in self.of.values() for row in rows]
        if left := sum(_origin(row) not in asked[0] | asked[1] for row in every):
            logger.warning(
                "%d of the %d rows in %s are about questions that neither the training nor the validation questions "
                "hold, and are left out: give the files that they were collected from",
                left,
                len(every),
                self._folders,
            )
        for program in programs_within(student):
            lm: Any = isinstance(program, RAISF) and (program.answer_directly.lm or dspy.settings.lm)
            others = [name for name in self.report.get("known_by", []) if lm and not _same(name, lm.model)]
            if others:
                logger.warning(
                    "the rows in %s say what %s knows, and %s answers, which may know other things: collect them with "
                    "it (raisf collect --lm)",
                    self._folders,
                    ", ".join(others),
                    lm.model,
                )

    def _questions(
        self, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]
    ) -> tuple[list[set[str]], set[str]]:
        """What the training and what the validation questions ask, and what the rows are about."""
        asked = [{step.question for example in examples for step in steps(example)} for examples in (trainset, valset)]
        return asked, {_origin(row) for rows in self.of.values() for row in rows}

    @property
    def _folders(self) -> str:
        return ", ".join(self.report.get("folders", ["the rows"]))

    def identity(self) -> str:
        """A hash of all rows."""
        return digest({judge: [dict(row) for row in rows] for judge, rows in self.of.items()})


def judged_program(student: dspy.Module) -> RAISF:
    """The program whose judges can learn from such rows: the student, or one within it.

    Raises:
        InputError: It has no judges of RA-ISF.
    """
    return program_within(student, RAISF, f"{type(student).__name__} has no judges of RA-ISF to teach")


def teach(
    student: dspy.Module,
    teacher: dspy.LM,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example] = (),
    *,
    questions: int,
    validation: int = 0,
    labels: Labels = "model",
    seed: int = 0,
    threads: int = 8,
    work: Path | str = "runs/compile",
    progress: bool = True,
) -> JudgeRows:
    """Lets a teacher label retrieved passages and write decompositions where gold says nothing (appendix A.2, A.3).

    What is known is labelled by the student's own LM, as always. `questions` of the training set are labelled at most,
    and `validation` of the other, drawn by the seed. The rows lie in folders below `work`, which `JudgeRows.read`
    takes; a second call with the same arguments asks only for what is missing.

    Raises:
        InputError: The student has no such judges, or as `collect` does.
        LMError: As `collect`.
    """
    program = judged_program(student)
    made: dict[str, Any] = {}
    folders = []
    for name, examples, n in (("train", trainset, questions), ("dev", valset, validation)):
        sample = up_to(examples, n, random.Random(seed))
        if not sample:
            continue
        identity = digest([describe(program), describe_test(sample), labels, describe_lm(teacher)])
        folders.append(Path(work) / f"rows-{name}-{identity}")
        made[name] = collect(
            program, sample, folders[-1], labels=labels, teacher=teacher, threads=threads, progress=progress
        )
    rows = JudgeRows.read(*folders)
    return JudgeRows(rows.of, {**rows.report, "lm": teacher.model, "splits": made})


def _held_out(texts: set[str], trainset: Sequence[dspy.Example]) -> set[str]:
    """Of the texts, those that a tenth of the training questions ask; drawn by the questions' words, and never all."""
    whose: dict[str, str] = {}
    for example in trainset:
        for step in steps(example):
            whose.setdefault(step.question, example.question)
    asking = sorted({whose[text] for text in texts}, key=digest)
    held = set(asking[: max(len(asking) > 1, round(HELD_OUT * len(asking)))])
    return {text for text in texts if whose[text] in held}


def _origin(row: dspy.Example) -> str:
    return row.get("origin") or row.question


def _said(row: dspy.Example) -> list[Any]:
    return [row.get(output) for output in sorted(_OUTPUTS)]


def _asked_lm(row: dict[str, Any]) -> str | None:
    """Which LM a collected row comes of; None where gold labelled it."""
    source = row.get("source")
    lm = source.get("by") if isinstance(source, dict) else None
    return lm if isinstance(lm, str) else None


def _same(one: str, other: str) -> bool:
    """Whether two names are those of one LM: of a local one the hash behind the # decides, wherever its weights lie."""
    return one == other or ("#" in one and one.rpartition("#")[2] == other.rpartition("#")[2])


def weight_of(row: Mapping[str, Any] | dspy.Example) -> float:
    """How much a row counts in the loss, 1 where it does not say.

    Raises:
        InputError: It is no number, not finite, or less than 0.
    """
    weight = row.get("weight")
    if weight is None:
        return 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= MOST_WEIGHT:
        raise InputError(
            f"the row of {row.get('question')!r:.60} has the weight {weight!r:.20}: give 0 to {MOST_WEIGHT:,}"
        )
    return float(weight)


def _example(path: Path, number: int, judge: str, row: dict[str, Any]) -> dspy.Example:
    for field, wanted, right in _expected(judge, row):
        if not right:  # a verdict in other letters would be left out, and a text learnt letter by letter
            found = repr(row[field])[:60] if field in row else f"no {field!r} in it"
            raise InputError(f"{path}, row {number}: {field!r} must be {wanted}; found {found}")
    try:
        weight_of(row)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    fields = {name: value for name, value in row.items() if name != "source"}
    return with_verdict(dspy.Example(fields)).with_inputs(*(fields.keys() - _OUTPUTS))


def _expected(judge: str, row: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """What a row of a judge needs: a field, what it must be, and whether it is."""
    yield "question", "a text", _is_text(row.get("question"))
    yield "origin", "a text, or left out", isinstance(row.get("origin"), str | None)
    if judge == "decomposition":
        yield "sub_questions", "a list of texts", _are_texts(row.get("sub_questions"))
    elif judge == "relevance" and "relevant_ids" in row:
        yield "passages", "a list of texts", _are_texts(row.get("passages"))
        ids, n = row["relevant_ids"], len(row["passages"])
        counted = isinstance(ids, list) and all(type(one) is int and 0 < one <= n for one in ids)
        yield "relevant_ids", "a list of the passages' numbers, from 1", counted
    else:
        if judge == "relevance":
            yield "passage", "a text", _is_text(row.get("passage"))
        yield "verdict", " or ".join(map(repr, VERDICTS[judge])), row.get("verdict") in VERDICTS[judge]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))
