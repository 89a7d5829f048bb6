"""Questions labelled as known or unknown by what the LM answers; a reply that cannot be read labels nothing."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import dspy

from raisf.evaluation.identity import describe, digest
from raisf.evaluation.readability import REMEDY
from raisf.evaluation.runner import Patience, check_ran
from raisf.optimize.judges.judge_data import Step, steps_asked
from raisf.optimize.runs import results
from raisf.programs.baselines.direct import Direct
from raisf.utils.checks import check_count, check_named
from raisf.utils.errors import LMError
from raisf.utils.journal import Journal

Labels = Literal["model", "gold"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Questions with their verdict, and those that have none because the LM's reply is no evidence.

    Attributes:
        rows: Examples with `question` and `verdict`, each question once.
        asked: How many questions the LM was to answer, by an earlier call or by this one.
        unreadable: Those of them whose reply could not be read, or was cut off.
        failed: Those whose call failed.
        error: Of the last call that failed.
    """

    rows: list[dspy.Example]
    asked: int
    unreadable: list[str]
    failed: list[str]
    error: Exception | None = None

    def told(self) -> str | None:
        """What is missing, for a person; None where nothing is."""
        return missing_labels(self.asked, len(self.unreadable), len(self.failed), self.error)

    def checked(self) -> "Labelled":
        """These labels, with a warning where some are missing.

        Raises:
            LMError: All are, because the LM fails; or most, because its replies cannot be read.
        """
        if not self.rows:
            check_ran(self.asked, len(self.failed), self.error, "every question that was to be labelled")
        check_labelled(self.asked, len(self.unreadable))
        if told := self.told():
            logger.warning(told)
        return self


def missing_labels(asked: int, unreadable: int, failed: int, error: object = None) -> str | None:
    """How many of the questions asked have no label, and why, for a person; None where all have one."""
    parts = []
    if unreadable:
        parts.append(f"{unreadable} of {asked} questions gave no readable answer: not labelled")
    if failed:
        why = f" ({error})" if error is not None else ""
        parts.append(f"{failed} of {asked} questions failed{why}: not labelled")
    return "; ".join(parts) or None


def check_labelled(asked: int, unreadable: int, what: str = "questions gave no readable answer: not labelled") -> None:
    """Refuses to go on where the LM writes mostly what cannot be read: what is left is no fair sample.

    Raises:
        LMError: More than half cannot be read.
    """
    if unreadable > asked / 2:
        raise LMError(f"{unreadable} of {asked} {what}. That is most of them: {REMEDY}")


def know_labels(
    trainset: Sequence[dspy.Example],
    *,
    answerer: dspy.Predict | None = None,
    labels: Labels = "model",
    threads: int = 8,
    journal: Journal | None = None,
    gold: Mapping[str, Step] | None = None,
) -> Labelled:
    """Questions with the verdict `know` or `unknown`, and those that the LM gave no label for.

    A reply that cannot be read, or that was cut off, says nothing of what the LM knows: its question has no verdict.

    Args:
        trainset: With answers, and for `labels="gold"` with `known`.
        answerer: The program's predictor that answers from memory, with its LM and demonstrations; None: a plain one
            with the LM of DSPy's settings.
        labels: "model" asks the LM closed-book and calls known what it answers right, as the paper does:
            by exact match under the rule of the data set (`scoring`), yes/no questions by accuracy.
            "gold" takes `known` where the question has it (true of the LM that the data was made for, and of no other)
            and asks for the rest.
        threads: Questions asked at a time.
        journal: Keeps the verdicts, and has those of an earlier call; what has none there is asked again.
        gold: What `steps_asked` finds in a larger set that these questions are a part of, of those steps that are to
            be asked; None: all of theirs.

    Raises:
        InputError: No questions, one without a gold answer, or unknown labels.
        LMError: The LM failed on ten questions in a row.
    """
    check_asking(labels, threads)
    asked = steps_asked(trainset)
    if gold is not None:
        asked = {question: gold[question] for question in asked if question in gold}
    verdicts = {q: step.known for q, step in asked.items() if labels == "gold" and step.known is not None}
    total = len(asked) - len(verdicts)

    program, waiting = from_memory(answerer), [dspy.Example(question=q) for q in asked if q not in verdicts]
    kind = f"known by {digest(describe(program))}"  # a module's other programs have LMs of their own
    scored = scores(program, waiting, lambda one, answer: asked[one.question].accepts(answer), kind, threads, journal)
    verdicts |= scored.of
    rows = [
        dspy.Example(question=q, verdict="know" if verdicts[q] else "unknown").with_inputs("question")
        for q in asked
        if q in verdicts
    ]
    return Labelled(rows, total, sorted(scored.unreadable), sorted(scored.failed), scored.error)


class Scores(NamedTuple):
    """What answers are worth, by question; whose answer cannot be read, whose call failed, and the last one's error."""

    of: dict[str, Any]
    unreadable: set[str]
    failed: set[str]
    error: Exception | None


def scores(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    score: Callable[[dspy.Example, str], Any],
    kind: str,
    threads: int,
    journal: Journal | None,
) -> Scores:
    """Asks a program some questions and scores its answers; what the journal has of that kind is not asked again."""
    unreadable, patience = set[str](), Patience()

    def value(example: dspy.Example, prediction: dspy.Prediction) -> Any:
        if prediction.trace.unreadable:
            unreadable.add(example.question)
            return None
        return score(example, prediction.answer)

    keeping: Any = {"journal": journal, "key": lambda example: f"{kind} {example.question}"}
    made = results(program, examples, value, threads=threads, patience=patience, **keeping)
    of = {example.question: found for example, found in zip(examples, made, strict=True) if found is not None}
    failed = {example.question for example in examples} - of.keys() - unreadable
    return Scores(of, unreadable, failed, patience.error)


def from_memory(answerer: dspy.Predict | None) -> Direct:
    """What asks this predictor alone; None: a plain one, with the LM of DSPy's settings."""
    program = Direct()
    if answerer is not None:
        program.answer_directly = answerer
    return program


def know_examples(trainset: Sequence[dspy.Example], **options: Any) -> list[dspy.Example]:
    """The rows of `know_labels`, checked, without the count of questions that have none."""
    return know_labels(trainset, **options).checked().rows


def check_labels_option(labels: str) -> None:
    """Raise InputError for an unknown kind of labels."""
    check_named("labels", labels, get_args(Labels))


def check_asking(labels: str, threads: int) -> None:
    """Checks the options of labelling, for callers with other work to do before.

    Raises:
        InputError: Unknown labels, or no thread.
    """
    check_labels_option(labels)
    check_count("threads", threads)
