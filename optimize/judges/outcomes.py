"""What a judge's verdicts are worth: each is tried both ways, and the final answers say which was right.

A question is answered again with one verdict forced and all others as the judges give them. Where a try ends is worth
its answer's score less the price of its calls and searches. The better end's verdict is the label, and by how much it
is better is the row's weight: rejection sampling weighted by advantage. Where both ends are right, or both wrong, the
cheaper verdict wins by what it saves.
"""

import contextvars
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import dspy

from raisf.evaluation.runner import Outcome, ask_all, progress_bar
from raisf.optimize.judges.judge_data import VERDICTS
from raisf.optimize.remembering import remembering
from raisf.optimize.traces import Patience, lacks_reply
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import Node, Trace
from raisf.utils.journal import Journal

# The root's verdicts are tried and those of its sub-questions. Deeper ones hardly ever change the final answer, and
# each level has some three times as many nodes.
DEPTH = 1
# Routes of nodes that no judge was asked about.
UNASKED = ("depth", "cycle", "reference", "duplicate", "budget")

Forced = Mapping[tuple[str, str | None], str]
"""Verdicts by what a judge is asked: a question, or a question and a passage."""

_NOTHING: Forced = MappingProxyType({})
_forced: contextvars.ContextVar[Forced] = contextvars.ContextVar("forced", default=_NOTHING)


@dataclass(slots=True)
class Outcomes:
    """What the tries of some questions have taught.

    Attributes:
        of: By judge, a row for each thing it was asked about: the better `verdict`, by how much (`weight`), whether the
            final answer's score `decided` it and not the price alone, and the training question (`origin`).
        even: By judge, how many verdicts made no difference at all; they give no row.
        questions: How many were tried.
        failed: How many of them failed.
        unreadable: Tries that ended as "unknown" for want of a reply that can be read; their verdicts give no row.
    """

    of: dict[str, list[dspy.Example]] = field(default_factory=lambda: {judge: [] for judge in VERDICTS})
    even: Counter[str] = field(default_factory=Counter)
    questions: int = 0
    failed: int = 0
    unreadable: int = 0


class Trying:
    """Tries both verdicts of RA-ISF's judges on questions.

    Know: answer from memory, against going on. Relevant: read this passage alone, against going on without it, by the
    other passages as they are judged or by decomposition. Passages are tried as if the judge had said unknown, and the
    sub-questions of the question asked as if no passage were relevant; all by the final answer. Equal calls are made
    once over all tries.

    Args:
        program: With its LMs and its retriever, pointwise; stays as it is.
        metric: Of the final answer, called as `metric(example, prediction, None)`.
        call_price: What an LM call costs, in right answers.
        search_price: The same of a search.
        threads: Questions tried at a time.
        progress: Show a bar on stderr.

    Attributes:
        program: A copy that remembers its calls.
    """

    def __init__(
        self, program: RAISF, metric: Any, call_price: float, search_price: float, threads: int, progress: bool
    ) -> None:
        self.program: RAISF = remembering(program)
        for judge in (self.program.know, self.program.relevant):
            _obey(judge)
        self._metric, self._call_price, self._search_price = metric, call_price, search_price
        self._threads, self._progress = threads, progress

    def outcomes(self, examples: Sequence[dspy.Example], journal: Journal, name: str) -> Outcomes:
        """What the tries of some questions teach.

        Args:
            examples: With what the metric wants.
            journal: Keeps what each question gave, and has that of an earlier call; one that failed is tried again.
            name: What the journal calls them.

        Raises:
            LMError: The LM failed on ten questions in a row.
        """
        keys = {id(example): f"{name} {place}" for place, example in enumerate(examples)}
        waiting = [example for example in examples if keys[id(example)] not in journal]
        found = Outcomes(questions=len(examples))
        patience = Patience()
        with progress_bar(self._progress) as bar:
            done = len(examples) - len(waiting)
            task = bar.add_task("trying verdicts", total=len(examples), completed=done, score="")

            def keep(outcome: Outcome) -> None:
                patience.saw(outcome)
                if outcome.prediction is not None:
                    journal.add(keys[id(outcome.example.question)], outcome.prediction.tried)
                bar.update(task, advance=1)

            # The metric wants the whole example, which travels as a question.
            ask_all(self._try, [dspy.Example(question=one) for one in waiting], keep, threads=self._threads)
        found.failed = patience.failed
        tried = [(example, journal.get(keys[id(example)])) for example in examples if keys[id(example)] in journal]
        found.unreadable = sum(made["unreadable"] for _, made in tried)
        _sort(found, [(example.question, row) for example, made in tried for row in made["rows"]])
        return found

    def _try(self, question: dspy.Example) -> dspy.Prediction:
        tries = _Tries(self, question)
        root = tries.end({}).trace.root
        tries.node(root.question, {})
        return dspy.Prediction(tried={"rows": tries.rows, "unreadable": tries.unreadable})

    def end(self, example: dspy.Example, forced: Forced) -> "_End":
        """Where the program ends with some verdicts forced."""
        token = _forced.set(forced)
        try:
            prediction = self.program(question=example.question)
        finally:
            _forced.reset(token)
        cost, score = prediction.trace.cost, float(self._metric(example, prediction, None))
        paid = self._call_price * cost.lm_calls + self._search_price * cost.retrievals
        return _End(prediction.trace, score, score - paid, lacks_reply(prediction))


class _End(NamedTuple):
    """Where a try ended: its trace, the metric, that less the price, and whether a reply is missing."""

    trace: Trace
    score: float
    worth: float
    unread: bool


class _Tries:
    """The tries of one question, each end reached once."""

    def __init__(self, trying: Trying, example: dspy.Example) -> None:
        self.rows: list[dict[str, Any]] = []
        self.unreadable = 0
        self._trying, self._example = trying, example
        self._ends: dict[frozenset[Any], _End] = {}

    def end(self, forced: Forced) -> _End:
        key = frozenset(forced.items())
        if key not in self._ends:
            self._ends[key] = self._trying.end(self._example, forced)
        return self._ends[key]

    def node(self, question: str, above: Forced) -> None:
        """Both verdicts of all that is judged at a node, and below it where it is broken down.

        Args:
            question: The node's.
            above: The verdicts that lead to it.
        """
        program = self._trying.program
        going_on = {**above, (question, None): "unknown"}
        if program.use_know:
            self._compare("know", {"question": question}, {**above, (question, None): "know"}, going_on)
        met = _met(self.end(going_on).trace.root, question)
        if met is None:
            return
        texts = list(dict.fromkeys(passage.prompt_text for passage in met.passages))
        for text in texts:
            alone = {(question, other): "relevant" if other == text else "irrelevant" for other in texts}
            without = {(question, text): "irrelevant"}
            asked = {"question": question, "passage": text}
            self._compare("relevance", asked, {**going_on, **alone}, {**going_on, **without})
        if met.depth < DEPTH:
            # As soon as no passage misleads it, the program comes here: also where it does not yet.
            broken_down = {**going_on, **{(question, text): "irrelevant" for text in texts}}
            whole = _met(self.end(broken_down).trace.root, question)
            subs = [sub.question for sub in whole.sub_questions if sub.route not in UNASKED] if whole else []
            for sub in dict.fromkeys(subs):
                self.node(sub, broken_down)

    def _compare(self, judge: str, asked: dict[str, str], affirmed: Forced, denied: Forced) -> None:
        yes, no = self.end(affirmed), self.end(denied)
        if yes.unread or no.unread:
            self.unreadable += yes.unread + no.unread
            return
        made = {"better": round(yes.worth - no.worth, 6), "decided": yes.score != no.score}
        self.rows.append({"judge": judge, "asked": asked, **made})


def _obey(judge: Any) -> None:
    """Let a judge say what is forced, where something is."""
    judged = vars(judge)["forward"]  # the remembering one

    def forward(**inputs: Any) -> Any:
        verdict = _forced.get().get((inputs["question"], inputs.get("passage")))
        return judged(**inputs) if verdict is None else dspy.Prediction(verdict=verdict)

    judge.forward = forward


def _met(root: Node, question: str) -> Node | None:
    return next((node for node in root.walk() if node.question == question and node.route not in UNASKED), None)


def _sort(found: Outcomes, tried: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Differences become rows; what is met on the ways of several questions is one row with their mean."""
    seen: dict[tuple[str, ...], list[tuple[str, Mapping[str, Any]]]] = {}
    for origin, row in tried:
        seen.setdefault((row["judge"], *row["asked"].values()), []).append((origin, row))
    for rows in seen.values():
        origin, row = rows[0]
        better = sum(row["better"] for _, row in rows) / len(rows)
        judge, asked = row["judge"], row["asked"]
        if abs(better) < 1e-6:
            found.even[judge] += 1
            continue
        decided = any(row["decided"] for _, row in rows)
        verdict = VERDICTS[judge][better < 0]
        made = dspy.Example(**asked, verdict=verdict, weight=abs(better), decided=decided, origin=origin)
        found.of[judge].append(made.with_inputs(*asked))


def heaviest(rows: Sequence[dspy.Example], n: int, rng: random.Random) -> list[dspy.Example]:
    """Up to n rows, as evenly over the verdicts as can be had, those of the greatest weight.

    The verdicts keep the shares of the whole weight that they had among all rows, since these are what leaning to the
    one or the other costs; the mean weight becomes 1.

    Args:
        rows: With `verdict` and `weight`.
        n: At least 2.
        rng: Chooses among rows of equal weight.
    """
    of: dict[str, list[dspy.Example]] = {}
    for row in sorted(rng.sample(list(rows), len(rows)), key=lambda row: -row.weight):
        of.setdefault(row.verdict, []).append(row)
    total = sum(row.weight for row in rows)
    drawn: list[tuple[dspy.Example, float]] = []
    for taken, same in enumerate(sorted(of.values(), key=len)):
        picked = same[: (n - len(drawn)) // (len(of) - taken)]
        share = sum(row.weight for row in same) / total
        mass = sum(row.weight for row in picked)
        drawn += [(row, share * row.weight / mass) for row in picked]
    rng.shuffle(drawn)
    return [row.copy(weight=share * len(drawn)) for row, share in drawn]


def accepted(rows: Sequence[dspy.Example], rng: random.Random) -> list[dspy.Example]:
    """Rejection sampling for who cannot weigh rows: each is taken with the share of its verdict's greatest weight."""
    most: dict[str, float] = {}
    for row in rows:
        most[row.verdict] = max(most.get(row.verdict, 0.0), row.weight)
    return [row for row in rows if rng.random() < row.weight / most[row.verdict]]
