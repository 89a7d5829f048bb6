"""A judge asked alone about rows whose right verdict is known: to measure it, and to calibrate it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import dspy
from rich.progress import Progress

from raisf.evaluation.decomposition import aligned_f1, same_decomposition
from raisf.evaluation.identity import digest
from raisf.evaluation.intervals import bootstrap
from raisf.evaluation.judges import JudgeReport, auroc_score, ece_score, reliability, verdict_scores
from raisf.evaluation.risk import risk_coverage
from raisf.optimize.judges.judge_data import VERDICTS, decomposition_examples, passage_examples
from raisf.optimize.judges.labels import Labels, know_labels
from raisf.optimize.judges.predictor_roles import JUDGED, predictor_of, role_of
from raisf.optimize.runs import results
from raisf.optimize.within import programs_within
from raisf.programs.calls import Run
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.adapting import searched
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import Decomposition
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal
from raisf.utils.predictors import require_lm
from raisf.utils.progress import progress_bar
from raisf.utils.text import clean

Judge = Literal["know", "relevance", "sufficiency"]

# The number of rows is in the report, and a judge of one class only cannot be told from a constant.
NO_ROWS = {
    "know": "no question could be labelled: the LM answered none of them",
    "relevance": "no question names gold passages of the index: add gold_pids or gold_titles",
    "sufficiency": "no question names gold passages of the index: add gold_pids or gold_titles",
    "decomposition": "no question has several gold sub_questions: add them, or take a file that has them",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One verdict beside gold.

    Attributes:
        question: What was judged, or whose passage.
        passage: The passage, or passages, as the LM reads them; None for self-knowledge.
        gold: Whether it is known (relevant, sufficient) by gold.
        said: Whether the judge said so, at the program's threshold; False where it could not be read, which is what
            the program goes on with, and no evidence of the judge.
        probability: Of yes, where the LM gives probabilities.
        readable: False where the LM's output could not be read.
    """

    question: str
    passage: str | None
    gold: bool
    said: bool
    probability: float | None = None
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Judgements:
    """What a judge said on all rows, in their order.

    Attributes:
        rows: Also those whose verdict could not be read; `report` leaves them out.
        errors: Rows whose LM call failed, which are not among them.
        unlabelled: How many questions have no gold label, and why; None where all have one.
    """

    rows: list[Judged]
    errors: int = 0
    unlabelled: str | None = None

    @property
    def unreadable(self) -> int:
        """How many verdicts could not be read."""
        return sum(not row.readable for row in self.rows)

    @property
    def scored(self) -> list[Judged]:
        """The rows with a probability."""
        return [row for row in self.rows if row.probability is not None]

    def report(self) -> JudgeReport:
        """The judge's measures on the rows that could be read; without AUROC and ECE where there is no probability."""
        rows = [row for row in self.rows if row.readable]
        if not rows:
            return JudgeReport({})
        groups, gold = [row.question for row in rows], [row.gold for row in rows]
        report = JudgeReport(verdict_scores(gold, [row.said for row in rows], groups))
        if scored := self.scored:
            groups, gold = [row.question for row in scored], [row.gold for row in scored]
            probabilities = [row.probability or 0.0 for row in scored]
            report.scores["auroc"] = auroc_score(gold, probabilities, groups)
            report.scores["ece"] = ece_score(gold, probabilities, groups)
            report.bins.extend(reliability(gold, probabilities))
            if all(row.passage is None for row in scored):
                risk = risk_coverage([float(known) for known in gold], probabilities, groups)
                report = replace(report, scores={**report.scores, "aurc": risk.aurc}, risk=risk)
        return report


@dataclass(frozen=True, slots=True)
class Decomposed:
    """A question with its gold sub-questions and those that the judge listed; none where it could not be read."""

    question: str
    gold: list[str]
    listed: list[str]
    readable: bool = True


def judgements_of(
    program: dspy.Module,
    judge: Judge,
    examples: Sequence[dspy.Example],
    *,
    labels: Labels = "model",
    threads: int = 8,
    progress: bool | Progress = True,
    journal: Journal | None = None,
) -> Judgements:
    """Ask a program's judge about every row that `raisf.optimize.judges.judge_data` makes of the examples.

    Args:
        program: With its LMs, and for relevance its retriever; asked as it is compiled, at its own threshold. Where it
            is a module that contains an RA-ISF, that one is asked.
        judge: "know"; "relevance": of each passage alone, or of the list if that is how the program judges; or
            "sufficiency", of the gold passages, whole and with one missing.
        examples: Questions with gold; the judge also meets their gold sub-questions.
        labels: See `know_labels`.
        threads: Questions asked at a time.
        progress: Show a bar on stderr; or the bars to show it among.
        journal: Keeps labels and verdicts, and has those of an earlier call with the same program; what failed or could
            not be read is asked again.

    Raises:
        InputError: The program has no such judge, no LM or no retriever, or gold gives no rows.
        LMError: The LM failed on ten rows in a row.
    """
    require_lm(program)
    asked = judging(program)
    predictor = predictor_of(asked, *(role for role, name in JUDGED.items() if name == judge))
    if judge == "relevance" and isinstance(asked, RAISF) and asked.relevance == "score":
        raise InputError("the retriever's score tells passages apart and no judge is asked: its answers measure it")
    with progress_bar(progress) as bar:
        labelling = bar.add_task("labelling", total=None, score="")
        rows, unlabelled = _rows(asked, predictor, judge, examples, labels, threads, journal)
        bar.remove_task(labelling)
    if not rows:
        raise InputError(NO_ROWS[judge])
    threshold = getattr(asked, f"{judge}_threshold", 0.5)
    yes = VERDICTS[judge][0]

    def ask(**inputs: Any) -> dspy.Prediction:
        run = Run()
        if judge == "know" and isinstance(asked, RAISF):
            judged = asked.judge_knowledge(run, **inputs)
        else:
            judged = run.judge(predictor, threshold, **inputs)
        return dspy.Prediction(said=[judged.verdict, judged.probability] if judged.readable else None)

    lists = "relevant_ids" in predictor.signature.output_fields
    said, errors = ask_each(listing(predictor) if lists else ask, rows, threads, progress, journal=journal, name=judge)
    if lists:
        return Judgements([one for row, outputs in said for one in _of_list(row, outputs)], errors, unlabelled)
    judged = []
    for row, one in said:
        verdict, probability = one or (None, None)
        shown = "\n".join(row.passages) if "passages" in row else row.get("passage")
        judged.append(Judged(row.question, shown, row.verdict == yes, verdict == yes, probability, one is not None))
    return Judgements(judged, errors, unlabelled)


def judging(program: dspy.Module) -> Any:
    """The RA-ISF that a program is or contains, whose thresholds and passages its judges have; else the program."""
    return next((one for one in programs_within(program) if isinstance(one, RAISF)), program)


def decompositions_of(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    *,
    threads: int = 8,
    progress: bool | Progress = True,
    journal: Journal | None = None,
) -> tuple[list[Decomposed], int]:
    """Let a program break down every question that has gold sub-questions; for the arguments see `judgements_of`.

    Returns:
        A row a question, in their order, and how many LM calls failed.

    Raises:
        InputError: The program does not decompose, has no LM, or no question has gold sub-questions.
        LMError: The LM failed on ten questions in a row.
    """
    require_lm(program)
    predictor = predictor_of(program, Decomposition)
    rows = decomposition_examples(examples)
    if not rows:
        raise InputError(NO_ROWS["decomposition"])
    asks = listing(predictor)
    said, errors = ask_each(asks, rows, threads, progress, journal=journal, name="decomposition")
    found = []
    for row, listed in said:
        texts = [clean(text) for text in listed or []]
        found.append(Decomposed(row.question, row.sub_questions, texts, listed is not None))
    return found, errors


def decomposition_report(rows: Sequence[Decomposed]) -> JudgeReport:
    """Exact match of the list up to wording, share with the right number, and token F1 of aligned sub-questions.

    Rows that could not be read are left out.
    """
    measures: dict[str, Callable[[Decomposed], float]] = {
        "exact_match": lambda row: same_decomposition(row.listed, row.gold),
        "right_number": lambda row: float(len(row.listed) == len(row.gold)),
        "token_f1": lambda row: aligned_f1(row.listed, row.gold),
    }
    found = [row for row in rows if row.readable]
    if not found:
        return JudgeReport({})
    return JudgeReport({name: bootstrap([measure(row) for row in found]) for name, measure in measures.items()})


def _rows(
    program: Any,
    predictor: Any,
    judge: Judge,
    examples: Sequence[dspy.Example],
    labels: Labels,
    threads: int,
    journal: Journal | None,
) -> tuple[list[dspy.Example], str | None]:
    """The rows with gold, and what is said of questions that have none."""
    if judge == "know":
        answerer = predictor_of(program, DirectAnswer)
        options: Any = {"labels": labels, "threads": threads, "journal": journal}
        made = know_labels(examples, answerer=answerer, **options).checked()
        return made.rows, made.told()
    if (retriever := searched(program)) is None:
        raise InputError(f"the {judge} judge is measured on retrieved passages: give --index (program.retriever)")
    return passage_examples(role_of(predictor), examples, retriever, getattr(program, "k", 5)), None


def asking(predictor: Any) -> Callable[..., dspy.Prediction]:
    """Asks the predictor in the program's way; the outputs, or None where they could not be read, are `said`."""
    return lambda **inputs: dspy.Prediction(said=Run().ask(predictor, **inputs))


def listing(predictor: Any) -> Callable[..., dspy.Prediction]:
    """Asks the predictor in the program's way; the list that is its last output is `said`, None if it is unreadable."""
    output = [*predictor.signature.output_fields][-1]

    def ask(**inputs: Any) -> dspy.Prediction:
        outputs = Run().ask(predictor, **inputs)
        return dspy.Prediction(said=None if outputs is None else list(outputs[output] or []))

    return ask


def ask_each(
    ask: Callable[..., dspy.Prediction],
    rows: Sequence[dspy.Example],
    threads: int,
    progress: bool | Progress,
    what: str = "judging",
    *,
    journal: Journal | None = None,
    name: str = "",
) -> tuple[list[tuple[dspy.Example, Any]], int]:
    """Each row whose call did not fail with what was `said` of its inputs, in the rows' order, and how many failed.

    With a journal, under the `name`, what was said before is not asked again; JSON-able, and None is asked again.
    """
    unreadable = set[int]()

    def said(row: dspy.Example, prediction: dspy.Prediction) -> Any:
        if prediction.said is None:
            unreadable.add(id(row))
        return prediction.said

    keeping: Any = {"journal": journal, "key": lambda row: f"{name} {digest([*row.inputs().values()])}"}
    with progress_bar(progress) as bar:
        task = bar.add_task(what, total=len(rows), score="")
        found = results(ask, rows, said, threads=threads, tell=lambda _: bar.update(task, advance=1), **keeping)
    read = [(row, one) for row, one in zip(rows, found, strict=True) if one is not None or id(row) in unreadable]
    return read, len(rows) - len(read)


def _of_list(row: dspy.Example, listed: list[int] | None) -> list[Judged]:
    return [
        Judged(row.question, text, number in row.relevant_ids, number in (listed or []), readable=listed is not None)
        for number, text in enumerate(row.passages, 1)
    ]
