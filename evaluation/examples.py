"""Questions that programs are asked: their ids, their gold, and whether they can be used."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Number
from pathlib import PurePath
from typing import Any

import dspy
import numpy as np

from raisf.data.schemas import SCORINGS
from raisf.data.tables import LISTS
from raisf.evaluation.identity import digest
from raisf.utils.errors import InputError
from raisf.utils.text import answer_text, composed, text_of

# What answers and judges are held to, or counted by, besides the answers.
GOLD = ("kind", "hops", "gold_pids", "gold_titles", "sub_questions", "sub_answers", "known")
_TEXTS = tuple(name for name in LISTS if name != "sub_answers")  # which may be numbers


def question_id(example: dspy.Example) -> str:
    """The example's id; a hash of its question, or other inputs, where the user gave none."""
    given = example.get("id")
    if not is_gap(given):
        return str(given)
    return digest(example.question if "question" in example else asked_text(example))


def describe_test(examples: Sequence[dspy.Example]) -> dict[str, Any]:
    """A test set's size and hash: of each question its id, its text and all of its gold, in any order."""
    told = (
        [
            question_id(e),
            e.question,
            sorted(gold_answers(e)),
            *(gold_field(e, field) for field in GOLD),
            *(gold_field(e, "sub_titles") or []),
            *([e.scoring] if e.get("scoring") else []),
        ]
        for e in examples
    )
    return {"n": len(examples), "sha256": digest(sorted(map(digest, told)))}


def asked_text(example: dspy.Example) -> str:
    """What a program is asked: its question, with the other inputs that are marked, in one order; an id is not one."""
    question = example.get("question")
    others = sorted((example._input_keys or set()) - {"question", "id"})
    return " ".join([*([str(question)] if question is not None else []), *(str(example.get(name)) for name in others)])


def listed(value: Any) -> list[Any]:
    """The values in a field of gold: a single one, or those of a list, a tuple, a set or an array (a column's cell).

    None of a mapping, which some data sets have there: it does not say which of its values is meant.
    """
    if isinstance(value, Mapping):
        return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    return list(value) if isinstance(value, list | tuple) else [value]


def gold_answers(example: dspy.Example) -> list[str]:
    """All gold answers of an example, what it calls `answer` first, then `answers`; see `answer_text`."""
    given = [listed(one) for one in map(example.get, ("answer", "answers"))]
    said = (one for one in itertools.chain(*given) if not (is_gap(one) or one == ""))
    return list(dict.fromkeys(map(answer_text, said)))


def gold_field(example: dspy.Example, name: str) -> Any:
    """A field of gold as JSON has it: what NumPy or pandas made as Python's own, a set in order, a date as text.

    None where it has none, see `is_gap`.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple | set | frozenset | np.ndarray):
            return [plain(one) for one in listed(value)]
        value = value.item() if isinstance(value, np.generic) else value
        if is_gap(value):
            return None
        return value if isinstance(value, str | Number | Mapping | None) else text_of(value)

    return plain(example.get(name))


def is_gap(value: Any) -> bool:
    """Whether a value is none: None, or what pandas has in a cell without one (NaN, NA)."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def check_examples(examples: Sequence[dspy.Example], of: str) -> None:
    """Makes sure that questions are DSPy's examples; see `check_answered`.

    Raises:
        InputError: One is something else, or all of them are, such as a file's name; or gold that is to be a list of
            texts is none: a text would be taken for a list of letters, and no passage is called by a number.
    """
    single = isinstance(examples, str | PurePath | Mapping) or not hasattr(examples, "__len__")
    given: Any = [examples] if single else examples
    if strange := [one for one in given if not isinstance(one, dspy.Example)]:
        raise InputError(
            f"the {of} questions hold {strange[0]!r:.60}: give a list of dspy.Example(question=..., answer=...)"
            ".with_inputs('question'), such as raisf.load_questions(FILE) reads"
        )
    for example in given:
        known, scoring, asked = example.get("known"), example.get("scoring"), example.get("question", "")
        if scoring not in (None, *SCORINGS):
            told = f"scoring must be {' or '.join(SCORINGS)}, found {scoring!r:.60}"
            raise InputError(f"the {of} question {asked!r:.80}: {told}")
        if not is_gap(known) and known not in (True, False):
            raise InputError(f"the {of} question {asked!r:.80}: known must be true or false, found {known!r:.60}")
    for example, name in itertools.product(given, _TEXTS):
        value = example.get(name)
        several = isinstance(value, list | tuple | set | frozenset | None)
        if not several or not all(isinstance(one, str | None) for one in value or ()):
            asked = example.get("question", "")
            raise InputError(f"the {of} question {asked!r:.80}: {name} must be a list of texts, found {value!r:.60}")


def check_trainset(trainset: Sequence[dspy.Example]) -> None:
    """Raise InputError where there is nothing to learn from."""
    check_examples(trainset, "training")
    if not trainset:
        raise InputError("the training set is empty: give a file with a question and its answer a line")


def check_answered(examples: Sequence[dspy.Example], of: str) -> None:
    """Makes sure that each example has a gold answer.

    Args:
        examples: Questions, or what else a module takes.
        of: What the message calls them, such as "validation".

    Raises:
        InputError: One has none, or is no example.
    """
    check_examples(examples, of)
    for example in examples:
        if not gold_answers(example):
            asked = example.get("question", f"with {', '.join(example.keys())}")
            raise InputError(
                f"the {of} question {asked!r} has no gold answer: add `answer` or `answers`, or leave it out"
            )


def gold_passages(example: dspy.Example) -> tuple[list[str], bool]:
    """The ids of an example's gold passages, or where it has none the titles, and whether they are ids.

    An empty one names no passage: none states the fact, or nobody knows which does. Letters are one with their accents,
    as `raisf.retrieval.passage.called_by` has passages.
    """
    by_id = bool(example.get("gold_pids"))
    return [composed(name) for name in example.get("gold_pids" if by_id else "gold_titles") or [] if name], by_id


def answer_of(prediction: object, program: object = None, answers: Collection[str] = ()) -> str:
    """The answer in what a program gave.

    Args:
        prediction: What it gave; a module of the user's own may give anything.
        program: The program, for the error; None: it is not known.
        answers: The gold answers that it is held to, which decide how True and False are read.

    Raises:
        InputError: It gave something else than a prediction with an answer.
    """
    if isinstance(prediction, dspy.Prediction) and "answer" in prediction:
        return answer_text(prediction.answer, answers)
    given = f"a {type(prediction).__name__}"
    if isinstance(prediction, dspy.Prediction):
        given = f"a prediction with {', '.join(prediction.keys()) or 'nothing in it'}"
    who = "the program" if program is None else type(program).__name__
    raise InputError(f"{who} gave {given}: let its forward return dspy.Prediction(answer=...)")
