"""What the three judges should have said, worked out from training questions (Liu et al. 2024, appendix A).

A training question stands for itself and, where it comes with a gold decomposition, for each of its sub-questions: the
judges meet both kinds when the program runs.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy

from raisf.evaluation.examples import check_answered, check_trainset, gold_answers, is_gap
from raisf.evaluation.gold import Wanted, warn_of_outside
from raisf.evaluation.metrics import NORMALISERS, accuracy
from raisf.lm.labels import compatible
from raisf.programs.questions import filled, holds
from raisf.retrieval.passage import Passage, Retriever, called_by
from raisf.signatures.judges import ListwiseRelevance, PassageRelevance
from raisf.utils.text import composed
from raisf.utils.wording import apart

JUDGES = ("know", "relevance", "decomposition")
"""RA-ISF's, as gold and a teacher speak of them."""
VERDICTS = {
    "know": ("know", "unknown"),
    "relevance": ("relevant", "irrelevant"),
    "sufficiency": ("sufficient", "insufficient"),
}
# Questions searched for, for each row that is wanted, where a question gives one; and as many as cost nothing.
SEARCHES_A_ROW = 2
FEW_SEARCHES = 200


@dataclass(frozen=True, slots=True)
class Step:
    """A question as a judge meets it: a training question, or one of its sub-questions with earlier answers filled in.

    Attributes:
        question: Its text.
        answers: Its gold answers.
        gold: Ids (`by_id`) or titles of the passages that support it; empty where gold says nothing. An empty id
            stands for a fact that no passage states.
        by_id: Which of the two.
        decomposed: Its sub-questions are steps of their own, each with its passage.
        known: Whether gold says that the LM knows it; None where gold says nothing.
        scoring: The rule that its answers are compared by; None for SQuAD's.
    """

    question: str
    answers: tuple[str, ...]
    gold: frozenset[str]
    by_id: bool
    decomposed: bool = False
    known: bool | None = None
    scoring: str | None = None

    def accepts(self, answer: str) -> bool:
        """Whether an answer is right, one of yes or no by accuracy."""
        return accuracy(answer, self.answers, self.scoring) == 1.0

    def all_among(self, passages: Sequence[Passage]) -> bool:
        """Whether these are passages of all its gold, and of nothing else."""
        return {self.key(passage) for passage in passages} == self.gold

    def key(self, passage: Passage) -> str:
        """What gold calls a passage: its id or that of the row it was cut from, or its title."""
        return called_by(self.gold, passage.pid) if self.by_id else composed(passage.title)


def steps(example: dspy.Example) -> list[Step]:
    """The training question and its gold sub-questions, as the judges meet them; none where something else is asked."""
    if "question" not in example:  # by a module of the user's own
        return []
    by_id = bool(example.get("gold_pids"))
    gold = list(map(composed, example.get("gold_pids") or example.get("gold_titles") or []))
    asked, found = list(example.get("sub_questions") or []), [str(a) for a in example.get("sub_answers") or []]
    # The titles of the steps' passages, empty where one is not known, or passages in the order of the steps. With
    # fewer, nobody says whose they are.
    ordered = list(map(composed, example.get("sub_titles") or [])) if not by_id else []
    ordered = ordered or gold
    paired = bool(asked) and len(asked) == len(found) == len(ordered)
    decomposed = paired and (by_id or all(ordered))
    if decomposed and not by_id and len(set(ordered)) < len(ordered):
        gold = []  # of two passages under one title nobody can say whether both were found
    known, scoring = example.get("known"), example.get("scoring")
    known = None if is_gap(known) else bool(known)
    aliases = tuple(gold_answers(example))
    found_steps = [Step(example.question, aliases, frozenset(gold), by_id, decomposed, known, scoring)]
    if asked and len(asked) == len(found):
        named = [[one] if one or by_id else [] for one in ordered] if paired else [[]] * len(asked)
        for text, answer, passages in zip(filled(asked, found), found, named, strict=True):
            # `known` says of all facts together that they are; where they are not, each may still be.
            own = frozenset[str](passages)
            accepted = tuple(dict.fromkeys((answer, *aliases))) if answer in aliases else (answer,)
            found_steps.append(Step(text, accepted, own, by_id, known=known or None, scoring=scoring))
    return found_steps


def steps_asked(trainset: Sequence[dspy.Example]) -> dict[str, Step]:
    """All steps of some questions by their words: of equal ones the first that gold calls known or not.

    Equal words may be asked about different things ("Who is the author of Legacy?"): what any accepts is an answer.

    Raises:
        InputError: No questions, or one without a gold answer.
    """
    asked: dict[str, Step] = {}
    for example in checked(trainset):
        for step in steps(example):
            other = asked.get(step.question, step)
            first = step if other.known is None and step.known is not None else other
            asked[step.question] = replace(first, answers=tuple(dict.fromkeys((*other.answers, *step.answers))))
    return asked


def otherwise_supported(trainset: Sequence[dspy.Example]) -> dict[str, list[dspy.Example]]:
    """By the words of steps for which gold names other passages each time, a question for each gold."""
    found: dict[str, dict[frozenset[str], dspy.Example]] = {}
    for example in trainset:
        for step in (step for step in steps(example) if step.gold):
            found.setdefault(step.question, {}).setdefault(step.gold, example)
    return {question: list(asking.values()) for question, asking in found.items() if len(asking) > 1}


def relevance_examples(
    trainset: Sequence[dspy.Example], retriever: Retriever, k: int, most: int | None = None
) -> list[dspy.Example]:
    """Pairs of question and retrieved passage with the verdict `relevant` or `irrelevant`.

    A passage is relevant if it is gold (see `gold_among`) and suffices to answer: the only gold passage of the question
    or sub-question. A question of several gold passages has none that suffices, and is decomposed; where it comes
    without a decomposition, the gold passage that holds the answer's words counts, unless the question has them too.
    Of equal questions with other gold passages each, what is relevant to any of them is so.

    Args:
        trainset: With `gold_pids` (in the order of `sub_questions`, where these are given) or `gold_titles`.
        retriever: The program's own, so that the judge learns on what it will see.
        k: Passages a question.
        most: Questions and sub-questions searched for at most, drawn by a fixed seed; None: all.

    Returns:
        Examples with `question`, `passage` and `verdict`; questions without gold passages give none.

    Raises:
        InputError: No questions, or one without a gold answer.
    """
    return [
        dspy.Example(
            question=alike[0].question,
            passage=passage.prompt_text,
            verdict="relevant" if "relevant" in verdicts else "irrelevant",
        ).with_inputs("question", "passage")
        for alike, passages in _searched(trainset, retriever, k, most)
        for passage, *verdicts in zip(passages, *(gold_verdicts(step, passages) for step in alike), strict=True)
    ]


def listwise_examples(
    trainset: Sequence[dspy.Example], retriever: Retriever, k: int, most: int | None = None
) -> list[dspy.Example]:
    """Questions with their k retrieved passages and the numbers, from 1, of those that suffice as a set.

    These are the gold passages where all of them were retrieved; else, as for `relevance_examples`, the one that
    suffices alone. The arguments and errors are the same; `verdict` tells whether there is any, for balancing.
    """
    rows = []
    for step, passages in searched_steps(trainset, retriever, k, most):
        gold = gold_among(step, passages)
        whole = step.all_among(gold)
        ids = [n for n, passage in enumerate(passages, 1) if passage in gold and (whole or _suffices(step, passage))]
        row = dspy.Example(
            question=step.question,
            passages=[passage.prompt_text for passage in passages],
            relevant_ids=ids,
        )
        rows.append(with_verdict(row).with_inputs("question", "passages"))
    return rows


def sufficiency_examples(
    trainset: Sequence[dspy.Example], retriever: Retriever, k: int, most: int | None = None
) -> list[dspy.Example]:
    """Questions with passages as a relevance judge lets them through, and whether these suffice by gold.

    Where all gold passages were retrieved, they suffice; those that are left without one of them, or, of a question
    with one, the first retrieved that are none, do not. The arguments and errors are those of `relevance_examples`.
    """
    rows = []

    def add(step: Step, passages: Sequence[Passage], verdict: str) -> None:
        if passages:
            texts = [passage.prompt_text for passage in passages]
            row = dspy.Example(question=step.question, passages=texts, verdict=verdict)
            rows.append(row.with_inputs("question", "passages"))

    for step, passages in searched_steps(trainset, retriever, k, most):
        gold = gold_among(step, passages)
        if step.all_among(gold):
            add(step, gold, "sufficient")
        others = [passage for passage in passages if passage not in gold]
        lacking = [one for one in gold if step.key(one) != step.key(gold[-1])] if step.all_among(gold) else gold
        add(step, lacking if len(step.gold) > 1 else others[:1], "insufficient")
    return rows


def passage_examples(
    role: Any, trainset: Sequence[dspy.Example], retriever: Retriever, k: int, rows: int | None = None
) -> list[dspy.Example]:
    """What a judge of passages should have said, in the form of its signature: each alone, listed, or sufficient.

    Of `rows` that are wanted half are to be of each verdict; no more is searched for than that takes. None: all.
    """
    make = {PassageRelevance: relevance_examples, ListwiseRelevance: listwise_examples}.get(role, sufficiency_examples)
    # Of the k passages of a question one is relevant at most, and half of the rows are to be: some searches are vain.
    # Lists give a row a question, and these are not of both verdicts in like number.
    most = None if rows is None else rows if make is relevance_examples else SEARCHES_A_ROW * rows
    return make(trainset, retriever, k, most and max(most, FEW_SEARCHES))


def decomposition_examples(trainset: Sequence[dspy.Example], simple: bool = False) -> list[dspy.Example]:
    """Questions of several hops with their gold `sub_questions`; those without give none.

    With `simple` those of one hop as well, each its own only part: for a decomposer that is asked before any judge.

    Raises:
        InputError: No questions, or one without a gold answer.
    """
    parts = ((e, list(e.get("sub_questions") or [])) for e in checked(trainset))
    return [
        dspy.Example(question=e.question, sub_questions=listed if several else [e.question]).with_inputs("question")
        for e, listed in parts
        if (several := len(listed) > 1) or (simple and e.get("hops") == 1)
    ]


def with_verdict(row: dspy.Example) -> dspy.Example:
    """A row with the verdict that it is balanced by: of lists, whether any passage is relevant."""
    if "relevant_ids" not in row:
        return row
    return row.copy(verdict="relevant" if row["relevant_ids"] else "irrelevant")


def asked_in(row: Mapping[str, Any] | dspy.Example) -> tuple[Any, ...]:
    """What a judge is asked in a row: questions share sub-questions."""
    return row["question"], row.get("passage"), *(row.get("passages") or ())


def searched_steps(
    trainset: Sequence[dspy.Example], retriever: Retriever, k: int, most: int | None = None
) -> list[tuple[Step, list[Passage]]]:
    """The steps that gold passages support, at most so many, each with the k passages that the retriever finds.

    Steps of whose gold passages none is in the index are left out, and told: what is found may answer them or not.
    So are equal questions with other gold passages each: which of them suffice together, nobody says.
    """
    searched = _searched(trainset, retriever, k, most)
    return [(alike[0], passages) for alike, passages in searched if len(alike) == 1]


def _searched(
    trainset: Sequence[dspy.Example], retriever: Retriever, k: int, most: int | None
) -> list[tuple[list[Step], list[Passage]]]:
    """As `searched_steps`, with all steps of the same words, one for each gold; what any accepts is an answer."""
    with_gold: dict[str, dict[frozenset[str], Step]] = {}
    for step in (step for example in checked(trainset) for step in steps(example) if step.gold):
        alike = with_gold.setdefault(step.question, {})
        others = alike[step.gold].answers if step.gold in alike else ()
        alike[step.gold] = replace(step, answers=tuple(dict.fromkeys((*step.answers, *others))))
    for question, gold, _ in tell_of_outside(
        [one for alike in with_gold.values() for one in alike.values()], retriever
    ):
        del with_gold[question][frozenset(gold)]
    found = {question: list(alike.values()) for question, alike in with_gold.items() if alike}
    if most is not None and len(found) > most:
        found = dict(random.Random(0).sample(list(found.items()), most))
    searched = zip(found.values(), retriever.search_many(list(found), k), strict=True)
    return [(alike, _once(alike, passages)) for alike, passages in searched]


def _once(alike: Sequence[Step], passages: Sequence[Passage]) -> list[Passage]:
    """The passages, and of those that say the same, as copies of a page do, one: the one that gold names, if any."""
    said: dict[str, Passage] = {}
    for passage in sorted(passages, key=lambda one: not any(step.key(one) in step.gold for step in alike)):
        said.setdefault(passage.prompt_text, passage)
    return [passage for passage in passages if said[passage.prompt_text] is passage]


def tell_of_outside(asked: Iterable[Step], retriever: Retriever) -> list[Wanted]:
    """The steps whose gold the index does not hold, with a warning; see `raisf.evaluation.gold`."""
    wanted = [(step.question, step.gold, step.by_id) for step in asked]
    return warn_of_outside(retriever, wanted, "judges and readers learn nothing of passages from them")


def gold_verdicts(step: Step, passages: Sequence[Passage]) -> list[str]:
    """What gold says of each passage for a step whose gold passages are named: relevant or irrelevant."""
    gold = gold_among(step, passages)
    return ["relevant" if one in gold and _suffices(step, one) else "irrelevant" for one in passages]


def gold_among(step: Step, passages: Sequence[Passage]) -> list[Passage]:
    """The passages that support a step, of those that were found for it.

    Several may stand under one title or id, as the parts of an article do: of those under a step's only one it is
    those with the answer's words, if there are any.
    """
    gold = [passage for passage in passages if step.key(passage) in step.gold - {""}]
    if len(step.gold) > 1:
        return gold
    return [passage for passage in gold if _holds_answer(step, passage.text)] or gold


def _suffices(step: Step, passage: Passage) -> bool:
    if len(step.gold) == 1 or step.decomposed:
        return len(step.gold) == 1
    # "Ada" is in any text about Ada, whether or not that tells who of "Ada or Bob" is older.
    return _holds_answer(step, passage.text) and not _holds_answer(step, step.question)


def _holds_answer(step: Step, text: str) -> bool:
    normal = NORMALISERS[step.scoring or "squad"]
    return holds(text, step.answers, lambda said: normal(apart(compatible(said))))


def checked(trainset: Sequence[dspy.Example]) -> Sequence[dspy.Example]:
    """The questions, each with a gold answer.

    Raises:
        InputError: There are none, or one has no answer.
    """
    check_trainset(trainset)
    check_answered(trainset, "training")
    return trainset
