"""What training questions give the judges to learn from: gold where it speaks, else what the LM or a teacher says."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import dspy

from raisf.evaluation.decomposition import aligned_f1, same_decomposition
from raisf.evaluation.examples import question_id
from raisf.evaluation.identity import digest
from raisf.optimize.judges.judge_data import (
    JUDGES,
    Step,
    asked_in,
    decomposition_examples,
    passage_examples,
    steps_asked,
)
from raisf.optimize.judges.judgements import ask_each, asking
from raisf.optimize.judges.labels import Labels, know_labels
from raisf.programs.questions import listed
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.adapting import searched
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import Decomposition, ListwiseRelevance, PassageRelevance
from raisf.utils.usage import Calls, heard_by, metered_calls, telling, tokens_of

SAME, DIFFERENT = "same", "different"


class RowsOfOne(TypedDict):
    """What one training question gives.

    `rows` are each judge's. `agreement` holds by judge pairs of what gold and the teacher (or, of what is known, the
    LM's own answer) say; `token_f1` how near the teacher's sub-questions are to gold's.
    """

    rows: dict[str, list[dict[str, Any]]]
    agreement: dict[str, list[list[str]]]
    token_f1: list[float]


_COSTS = ("calls", "unmetered_calls", "prompt_tokens", "completion_tokens", "seconds")


@dataclass(slots=True)
class LabellingCost:
    """What labelling has cost, and what it missed.

    Attributes:
        asked: Calls made in labelling.
        failed: By training question's id, how many calls failed.
        unreadable: By training question's id, how many replies could not be read.
        error: Of the last question whose label was asked for in vain.
        teacher: Calls, tokens and seconds of the teacher; `unmetered_calls` are those of which nobody told the tokens:
            DSPy's cache answered them, they failed, or the endpoint tells none.
    """

    asked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None
    teacher: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COSTS, 0))


@dataclass(slots=True)
class Labelling:
    """Makes the rows of some training questions after others.

    Args:
        program: With the LM whose knowledge is judged, and the retriever whose passages are.
        origin: By a step's text, which training question its rows belong to: questions share sub-questions.
        gold: All steps of the training questions (`steps_asked`): what gold says of one may stand at another question.
        supported: Likewise the questions of steps with several golds (`otherwise_supported`).
        labels: See `raisf.optimize.judges.labels.know_labels`.
        teacher: Judges relevance and decomposes, as in Liu et al. 2024, appendices A.2 and A.3.
        threads: Questions asked at a time.
    """

    program: RAISF
    origin: Mapping[str, str]
    gold: Mapping[str, Step]
    supported: Mapping[str, Sequence[dspy.Example]]
    labels: Labels
    teacher: dspy.LM | None
    threads: int
    spent: LabellingCost = field(default_factory=LabellingCost)

    def rows(self, chunk: Sequence[dspy.Example]) -> dict[str, RowsOfOne]:
        """What some questions give, by their id; calls that failed or could not be read are counted in `spent`."""
        kept: dict[str, RowsOfOne] = {
            question_id(example): {"rows": {judge: [] for judge in JUDGES}, "agreement": {}, "token_f1": []}
            for example in chunk
        }
        self._know(chunk, kept)
        self._relevance(chunk, kept)
        self._decomposition(chunk, kept)
        return kept

    def _know(self, chunk: Sequence[dspy.Example], kept: dict[str, RowsOfOne]) -> None:
        answerer: Any = self.program.answer_directly
        own = {question: step for question, step in self.gold.items() if self.origin[question] in kept}
        made = know_labels(chunk, answerer=answerer, labels=self.labels, threads=self.threads, gold=own)
        self.spent.asked += made.asked
        self.spent.failed.update(self.origin[question] for question in made.failed)
        self.spent.error = made.error or self.spent.error
        self.spent.unreadable.update(self.origin[question] for question in made.unreadable)
        for row in made.rows:
            gold = self.gold[row.question].known
            by_gold = self.labels == "gold" and gold is not None
            lm = None if by_gold else answerer.lm or dspy.settings.lm
            self._add(kept, "know", row, {"verdict": row.verdict}, "gold" if by_gold else "model", lm, DirectAnswer)
            if self.labels == "model" and gold is not None:
                self._compare(kept, "know", row.question, [("know" if gold else "unknown", row.verdict)])

    def _relevance(self, chunk: Sequence[dspy.Example], kept: dict[str, RowsOfOne]) -> None:
        if (retriever := searched(self.program)) is None:
            return
        together = self.program.relevance == "listwise"
        signature, output = (ListwiseRelevance, "relevant_ids") if together else (PassageRelevance, "verdict")
        alike = [one for asked, asking in self.supported.items() if self.origin[asked] in kept for one in asking]
        by_gold = passage_examples(signature, [*chunk, *alike], retriever, self.program.k)
        for row in by_gold:
            self._add(kept, "relevance", row, {output: row[output]}, "gold")
        if self.teacher is None:
            return
        truth = {asked_in(row): row[output] for row in by_gold}
        asked = [question for question in steps_asked(chunk) if self.origin[question] in kept]
        found = retriever.search_many(asked, self.program.k)
        rows = []
        for question, passages in zip(asked, found, strict=True):
            texts = [passage.prompt_text for passage in passages]
            for inputs in [{"passages": texts}] if together else [{"passage": text} for text in texts]:
                rows.append(dspy.Example(question=question, **inputs).with_inputs("question", *inputs))
        for row, said in self._taught(signature, output, rows, self.origin):
            gold = truth.get(asked_in(row))
            if gold is None:
                self._add(kept, "relevance", row, {output: said}, "teacher", self.teacher, signature)
            elif together:
                pairs = [(_verdict(n in gold), _verdict(n in said)) for n in range(1, len(row.passages) + 1)]
                self._compare(kept, "relevance", row.question, pairs)
            else:
                self._compare(kept, "relevance", row.question, [(gold, said)])

    def _decomposition(self, chunk: Sequence[dspy.Example], kept: dict[str, RowsOfOne]) -> None:
        # A whole question's rows are its own, also where it is a sub-question of another.
        own = {example.question: question_id(example) for example in chunk}
        by_gold = decomposition_examples(chunk)
        for row in by_gold:
            self._add(kept, "decomposition", row, {"sub_questions": row.sub_questions}, "gold", of=own)
        if self.teacher is None:
            return
        parts = {row.question: row.sub_questions for row in by_gold}
        whole = [dspy.Example(question=example.question).with_inputs("question") for example in chunk]
        for row, said in self._taught(Decomposition, "sub_questions", whole, own):
            gold = parts.get(row.question)
            if gold is not None:
                alike = SAME if same_decomposition(said, gold) else DIFFERENT
                self._compare(kept, "decomposition", row.question, [(SAME, alike)], of=own)
                kept[own[row.question]]["token_f1"].append(aligned_f1(said, gold))
            elif len(said) > 1:
                outputs = {"sub_questions": said}
                self._add(kept, "decomposition", row, outputs, "teacher", self.teacher, Decomposition, of=own)

    def _taught(
        self, signature: Any, output: str, rows: list[dspy.Example], of: Mapping[str, str]
    ) -> list[tuple[dspy.Example, Any]]:
        """What the teacher says of each row, as far as it can be read; the others are counted, `of` says at whom.

        Lists are read as a program reads them: without numbers that no passage has, and without empty sub-questions.
        """
        predictor = dspy.Predict(signature)
        predictor.lm = self.teacher
        started, spent, made = time.monotonic(), self.spent, Calls()
        with dspy.track_usage() as usage, heard_by(made):
            said, _ = ask_each(asking(predictor), rows, self.threads, False, "asking the teacher")
        calls = metered_calls(usage)
        # A reply that could not be read was asked for again; calls in other processes are not seen.
        asked = max(len(rows), made.lm_calls, len(calls))
        spent.teacher["calls"] += asked
        spent.teacher["unmetered_calls"] += asked - telling(calls)
        for name, tokens in tokens_of(calls).items():
            spent.teacher[name] += tokens
        spent.teacher["seconds"] += time.monotonic() - started
        spent.asked += len(rows)
        answered = {id(row) for row, _ in said}
        spent.failed.update(of[row.question] for row in rows if id(row) not in answered)
        read = [(row, _read(row, output, outputs[output]) if outputs is not None else None) for row, outputs in said]
        spent.unreadable.update(of[row.question] for row, value in read if value is None)
        return [(row, value) for row, value in read if value is not None]

    def _add(
        self,
        kept: dict[str, RowsOfOne],
        judge: str,
        row: Any,
        outputs: dict[str, Any],
        labelled: str,
        lm: Any = None,
        signature: Any = None,
        of: Mapping[str, str] | None = None,
    ) -> None:
        identity = (of or self.origin)[row.question]
        if identity not in kept:  # the row of a training question of another chunk
            return
        inputs = {name: row[name] for name in row.inputs().keys()}
        source = {"id": identity, "labelled": labelled}
        if lm is not None:
            source |= {"by": lm.model, "call": digest([signature.instructions, inputs, lm.model])}
        kept[identity]["rows"][judge].append({**inputs, **outputs, "source": source})

    def _compare(
        self,
        kept: dict[str, RowsOfOne],
        judge: str,
        question: str,
        pairs: Sequence[tuple[str, str]],
        of: Mapping[str, str] | None = None,
    ) -> None:
        if (identity := (of or self.origin)[question]) in kept:
            kept[identity]["agreement"].setdefault(judge, []).extend(map(list, pairs))


def _verdict(relevant: bool) -> str:
    return "relevant" if relevant else "irrelevant"


def _read(row: dspy.Example, output: str, said: Any) -> Any:
    if output == "relevant_ids" and said is not None:
        return [number for number in said if 1 <= number <= len(row.passages)]
    return listed(said) if output == "sub_questions" and said is not None else said
