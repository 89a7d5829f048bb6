"""What a judge's verdicts are worth: each is tried both ways, and the final answers say which was right.

A question is answered again and again, with some verdicts forced and the others as the judges give them. Where a try
ends is worth its answer's score less the price of its calls and searches, and a verdict is worth the best end that was
reached with it: what comes after it is taken to be judged as well as it can be, since all judges learn at once. With
the verdicts after it as they are now, knowing would pay wherever reading still goes wrong. The better verdict is the
label, by how much is the row's weight: rejection sampling weighted by advantage. Where both are right at best, or both
wrong, the cheaper one wins by what it saves.
"""

import contextvars
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import dspy

from raisf.evaluation.identity import digest
from raisf.evaluation.outcome import Outcome
from raisf.evaluation.runner import Patience, ask_all, check_ran
from raisf.optimize.inner_traces import leave_traces, trace_of, with_traces
from raisf.optimize.judges.judge_data import VERDICTS
from raisf.optimize.remembering import remembering
from raisf.optimize.runs import marked, score_of
from raisf.optimize.traces import lacks_reply
from raisf.programs.questions import UNKNOWN
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import JudgedPassage, Node, Trace
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal
from raisf.utils.progress import progress_bar
from raisf.utils.usage import Calls, heard_by

# The root's verdicts are tried and those of its sub-questions. Each level deeper has some three times as many nodes.
DEPTH = 1
# Answers of a sub-question that are followed into those after it: from memory, and from the likeliest passages.
WIDTH = 2
# Tries a question at most: one of many sub-questions has thousands of ways.
TRIES = 100
# Times that a try is run which loses a call of the LM.
AGAIN = 3
# Routes of nodes that no judge was asked about.
UNASKED = ("depth", "cycle", "reference", "duplicate", "budget")

Forced = Mapping[tuple[str, str | None], str]
"""Verdicts by what a judge is asked: a question, or a question and a passage."""

_NOTHING: Forced = MappingProxyType({})
_forced: contextvars.ContextVar[Forced] = contextvars.ContextVar("forced", default=_NOTHING)


@dataclass(slots=True)
class Advantages:
    """What the tries of some questions have taught.

    Attributes:
        of: By judge, a row for each thing it was asked about: the better `verdict`, by how much (`weight`), whether the
            final answer's score `decided` it and not the price alone, and the training question (`origin`).
        even: By judge, how many verdicts made no difference at all; they give no row.
        questions: How many were tried.
        failed: How many of them failed.
        unreadable: Tries that ended as "unknown" for want of a reply that can be read: no verdict loses by them.
        seconds: That all of these tries took.
        seconds_before: That those took which the journal had.
    """

    of: dict[str, list[dspy.Example]] = field(default_factory=lambda: {judge: [] for judge in VERDICTS})
    even: Counter[str] = field(default_factory=Counter)
    questions: int = 0
    failed: int = 0
    unreadable: int = 0
    seconds: float = 0.0
    seconds_before: float = 0.0


class Trying:
    """Tries both verdicts of RA-ISF's judges on questions.

    Know: answer from memory, against going on. Relevant: read this passage alone, against going on without it, by
    other passages or by decomposition. The question asked and the sub-questions of its best decomposition are tried,
    all by the final answer. Equal calls are made once over all tries.

    The program stays as it is, and judges passages one by one. The metric is of the final answer, the prices are in
    right answers.

    Attributes:
        program: A copy that remembers its calls.
    """

    def __init__(
        self, program: RAISF, metric: Any, call_price: float, search_price: float, threads: int, progress: bool
    ) -> None:
        self.program: RAISF = remembering(program)
        self.program.max_calls = self.program.max_seconds = None  # each try must end with the same sub-questions
        leave_traces(self.program)
        for judge in (self.program.know, self.program.relevant):
            _obey(judge)
        self._metric, self._call_price, self._search_price = metric, call_price, search_price
        self._threads, self._progress = threads, progress

    def outcomes(self, examples: Sequence[dspy.Example], journal: Journal, name: str) -> Advantages:
        """What the tries of some questions teach.

        Args:
            examples: With what the metric wants.
            journal: Keeps what each question gave, and has that of an earlier call; one that failed is tried again.
            name: What the journal calls them.

        Raises:
            LMError: The LM failed on ten questions in a row.
        """
        # By what a question is, so that others who try it find it.
        keys = {id(example): f"{name} {digest(dict(example))}" for example in examples}
        waiting = [example for example in examples if keys[id(example)] not in journal]
        found = Advantages(questions=len(examples))
        found.seconds_before = sum(journal.get(key)["seconds"] for key in set(keys.values()) if key in journal)
        patience, last = Patience(), time.perf_counter()
        with progress_bar(self._progress) as bar:
            done = len(examples) - len(waiting)
            task = bar.add_task("trying verdicts", total=len(examples), completed=done, score="")

            def keep(outcome: Outcome) -> None:
                nonlocal last
                patience.saw(outcome)
                if outcome.prediction is not None:
                    now = time.perf_counter()  # several are under way: what one took is the time since the one before
                    tried = {**outcome.prediction.tried, "seconds": round(now - last, 3)}
                    last = now
                    journal.add(keys[id(outcome.example.question)], tried)
                bar.update(task, advance=1)

            # The metric wants the whole example, which travels as a question.
            ask_all(self._try, [dspy.Example(question=one) for one in waiting], keep, threads=self._threads)
        found.failed = patience.failed
        check_ran(len(examples), found.failed, patience.error, "every question that was tried")
        tried = [(example, journal.get(keys[id(example)])) for example in examples if keys[id(example)] in journal]
        found.unreadable = sum(made["unreadable"] for _, made in tried)
        found.seconds = sum(made["seconds"] for _, made in tried)
        _sort(found, [(example.question, row) for example, made in tried for row in made["rows"]])
        return found

    def _try(self, question: dspy.Example) -> dspy.Prediction:
        tries = _Tries(self, question)
        tries.make()
        return dspy.Prediction(tried={"rows": tries.rows(), "unreadable": tries.unreadable})

    def end(self, example: dspy.Example, forced: Forced) -> "_End":
        """Where the program ends with some verdicts forced.

        Raises:
            InputError: A `forward` of a subclass's own does not say how it came to its answer.
        """
        token, run, times = _forced.set(forced), None, 0
        try:
            while run is None:
                with heard_by(calls := Calls()):
                    run = with_traces(self.program, **marked(example).inputs())
                times += 1
                if calls.failure is not None:  # what was answered is remembered: only what failed is asked again
                    run = None
                    if times == AGAIN:
                        raise calls.failure
        finally:
            _forced.reset(token)
        if (trace := trace_of(run)) is None:
            name, many = type(self.program).__name__, len(run.traces)
            raise InputError(
                f"the forward of {name} asked RA-ISF's {many} times, so no verdict can be told to lead to its answer: "
                "let it ask once, or hand on the trace of its answer"
            )
        score = score_of(self._metric, example, run.prediction)
        paid = self._call_price * trace.cost.lm_calls + self._search_price * trace.cost.retrievals
        unread = lacks_reply(dspy.Prediction(answer=trace.root.answer, trace=trace))
        return _End(trace, score, score - paid, unread)


class _End(NamedTuple):
    """Where a try ended: its trace, the metric, that less the price, and whether a reply is missing."""

    trace: Trace
    score: float
    worth: float
    unread: bool


class _Tries:
    """The tries of one question, each end reached once, and what each verdict came to at best."""

    def __init__(self, trying: Trying, example: dspy.Example) -> None:
        self.unreadable = 0
        self._trying, self._example = trying, example
        self._ends: dict[frozenset[Any], _End] = {}
        self._best: dict[tuple[str, tuple[str, ...], str], _End] = {}
        self._lost: set[tuple[str, tuple[str, ...], str]] = set()
        self._about: list[str] = []

    def make(self) -> None:
        """Tries the ways of the question, and of its sub-questions."""
        root = self.end({}).trace.root.question
        ways = self._ways(root, {})
        for way in ways:
            self.end(way)
        judged = self._judged(root, ways[-1])
        relevant = [passage.prompt_text for passage in judged if passage.relevant]
        for text in relevant if len(relevant) > 1 else []:  # the others together may do
            self.end({(root, None): "unknown", (root, text): "irrelevant"})
        denied = {(root, passage.prompt_text): "irrelevant" for passage in judged}
        best = self._down({(root, None): "unknown", **denied}, 0)
        below = self.end(best).trace.root.sub_questions
        self._about = [root, *(sub.question for sub in below if sub.route not in UNASKED)]

    def rows(self) -> list[dict[str, Any]]:
        """The verdicts of which both have been given, with how much better the affirmative one is."""
        found = []
        for judge, asked in dict.fromkeys((judge, asked) for judge, asked, _ in self._best if asked[0] in self._about):
            yes, no = (self._best.get((judge, asked, verdict)) for verdict in VERDICTS[judge])
            if yes is not None and no is not None:
                loser = VERDICTS[judge][yes.worth > no.worth]
                if (judge, asked, loser) in self._lost:  # it might have been the better one
                    continue
                better, decided = round(yes.worth - no.worth, 6), yes.score != no.score
                inputs = dict(zip(("question", "passage"), asked, strict=False))
                found.append({"judge": judge, "asked": inputs, "better": better, "decided": decided})
        return found

    def end(self, forced: Forced) -> _End:
        """Where a try ends; its verdicts are noted."""
        key = frozenset(forced.items())
        if key not in self._ends:
            end = self._ends[key] = self._trying.end(self._example, forced)
            self.unreadable += end.unread
            self._note(end)
        return self._ends[key]

    def _note(self, end: _End) -> None:
        for node in end.trace.root.walk():
            if node.depth > DEPTH or node.route in UNASKED:
                continue
            said: list[tuple[str, tuple[str, ...], str | None]] = []
            if node.know is not None:
                said.append(("know", (node.question,), node.know.verdict))
            relevant = sum(passage.relevant for passage in node.passages)
            for passage in node.passages:
                # Of several that are read together nobody knows which it was.
                if passage.judgement is not None and not (passage.relevant and relevant > 1):
                    said.append(("relevance", (node.question, passage.prompt_text), passage.judgement.verdict))
            for judge, asked, verdict in said:
                if verdict is not None and end.unread:
                    self._lost.add((judge, asked, verdict))
                elif verdict is not None:
                    before = self._best.get((judge, asked, verdict))
                    self._best[judge, asked, verdict] = end if before is None or end.worth > before.worth else before

    def _ways(self, question: str, above: Forced) -> list[Forced]:
        """The ways from a node: by memory, by each passage alone, the likeliest first, by none, and as it is judged.

        Args:
            question: The node's.
            above: The verdicts that lead to it.
        """
        program = self._trying.program
        going_on: Forced = {**above, (question, None): "unknown"}
        texts = [passage.prompt_text for passage in self._judged(question, going_on)]
        alone: list[Forced] = [
            {(question, text): "relevant" if text == one else "irrelevant" for text in texts} for one in texts
        ]
        none: list[Forced] = [{(question, text): "irrelevant" for text in texts}]
        known: list[Forced] = [{**above, (question, None): "know"}] if program.use_know else []
        return [*known, *({**going_on, **way} for way in [*alone, *none]), going_on]

    def _judged(self, question: str, forced: Forced) -> list[JudgedPassage]:
        """The passages of a node, each text once, those first that its judge thinks relevant."""
        met = _met(self.end(forced).trace.root, question)
        passages = {passage.prompt_text: passage for passage in met.passages} if met else {}
        return sorted(passages.values(), key=_likely, reverse=True)

    def _down(self, above: Forced, place: int) -> Forced:
        """The best of the ways of the sub-questions from a place on, with all verdicts that lead there."""
        subs = self.end(above).trace.root.sub_questions
        left = (n for n in range(place, len(subs)) if subs[n].route not in UNASKED)
        place = next((n for n in left if (subs[n].question, None) not in above), len(subs))
        if place == len(subs) or len(self._ends) >= TRIES:
            return above
        ways = self._ways(subs[place].question, above)
        # A verdict on words that stand below an earlier part, too, may end a stepwise decomposition before this one.
        parts = [self.end(way).trace.root.sub_questions[place:] for way in ways]
        answers = [left[0].answer if left else UNKNOWN for left in parts]
        followed: dict[str, Forced] = {}
        for way, answer in zip(ways, answers, strict=True):
            if answer != UNKNOWN and answer not in followed and len(followed) < WIDTH:
                best = self._down(way, place + 1)
                followed[answer] = {asked: verdict for asked, verdict in best.items() if asked not in way}
        whole = [{**way, **followed.get(answer, {})} for way, answer in zip(ways, answers, strict=True)]
        return max(whole, key=lambda way: self.end(way).worth)


def _obey(judge: Any) -> None:
    """Let a judge say what is forced, where something is."""
    judged = vars(judge)["forward"]  # the remembering one

    def forward(**inputs: Any) -> Any:
        verdict = _forced.get().get((inputs["question"], inputs.get("passage")))
        return judged(**inputs) if verdict is None else dspy.Prediction(verdict=verdict)

    judge.forward = forward


def _met(root: Node, question: str) -> Node | None:
    return next((node for node in root.walk() if node.question == question and node.route not in UNASKED), None)


def _likely(passage: JudgedPassage) -> float:
    judged = passage.judgement
    return float(passage.relevant) if judged is None or judged.probability is None else judged.probability


def _sort(found: Advantages, tried: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
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
