"""Question files: one form of example, read from this project's JSON Lines or from a public data set's own file."""

import json
import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.data.rows import read_rows
from raisf.data.schemas import question_row, schema_of
from raisf.data.tables import LISTS
from raisf.utils.errors import InputError
from raisf.utils.text import clean, composed, print_of

if TYPE_CHECKING:
    import dspy

logger = logging.getLogger(__name__)

_LIKE_A_LIST = re.compile(r"\[(.*,.*|\s*(['\"]).*\2\s*)\]", re.DOTALL)


def load_questions(path: Path | str) -> "list[dspy.Example]":
    """The questions of a file, as examples whose only input is `question`.

    Fields: id, question, answer, answers (aliases, the answer among them), kind, hops (int or None), gold_titles,
    gold_pids, sub_questions (may refer to an earlier answer as "#1"), sub_answers, sub_titles (of the passage behind
    each sub-question), gold_sentences (that support the answer; only where the data set names them), scoring
    ("triviaqa": answers are normalised as its script does), known (whether the shipped pocket Llama was taught every
    fact; None where nobody can say).

    Args:
        path: A .jsonl file with at least `question` and `answer` or `answers` a line (what `raisf world` and
            `raisf dataset` write), or a file of NQ-open, TriviaQA, PopQA, HotpotQA, 2WikiMultihopQA, MuSiQue,
            StrategyQA, BIG-bench or FlashRAG in its original schema or the hub's (see `raisf.data.schemas`), as .jsonl,
            .json, .tsv or .parquet.

    Raises:
        InputError: The file is missing, empty or broken, an id appears twice, or a question or answer is missing;
            the message names the place.
    """
    examples, seen = [], {}
    for number, row in enumerate(read_rows(path), start=1):
        example = _example(numbered_row(path, number, row))
        if example.id in seen:
            raise InputError(
                f"{path}: questions {seen[example.id]} and {number} share the id {example.id!r}; give each its own"
            )
        seen[example.id] = number
        examples.append(example)
    if not examples:
        raise InputError(f"{path} holds no questions; expected a JSON object a line with question and answer")
    if listed := sum(like_a_list(example.answers) for example in examples):
        told = "a text like a list, [a, b], which no LM gives: write a list of texts, or leave the question out"
        logger.warning("%s: of %d of the %d questions the answer is %s", path, listed, len(examples), told)
    if told := _asked_again(examples):
        logger.warning("%s: %s", path, told)
    return examples


def _asked_again(examples: "Sequence[dspy.Example]") -> str | None:
    """What to say of questions that come more than once and have no answer in common; None if there are none."""
    asked: dict[str, list[int]] = defaultdict(list)
    for place, example in enumerate(examples):
        asked[print_of(example.question)].append(place)
    known = [{clean(answer).casefold() for answer in example.answers} for example in examples]
    apart = [places for places in asked.values() if not set.intersection(*(known[place] for place in places))]
    if not apart:
        return None
    first, second, *_ = apart[0]
    return (
        f"{len(apart)} of its questions come more than once with other answers, so none is right for all: such as "
        f"questions {first + 1} and {second + 1}, {examples[first].question!r:.80}; mend or drop them"
    )


def like_a_list(answers: Sequence[str]) -> bool:
    """Whether each answer is one text that looks like a list, as some copies of data sets have them."""
    return all(_LIKE_A_LIST.fullmatch(answer) for answer in answers)


def numbered_row(place: Path | str, number: int, row: dict[str, Any]) -> dict[str, Any]:
    """A file's row as `schemas.question_row` reads it, in full: with an id, its number where it has none of its own.

    Raises:
        InputError: It is no question that can be scored; the message says which one and why.
    """
    place = f"{place}, question {number}"
    found = _read_as_question(place, row)
    _check_gold(place, found)
    identity = found.get("id")
    full = {
        "id": str(number if identity is None else identity),
        "question": found["question"],
        "answer": found["answers"][0],
        "answers": found["answers"],
        "kind": str(found.get("kind") or "question"),
        "hops": found.get("hops"),
        "gold_titles": [clean(composed(title)) for title in found.get("gold_titles") or []],  # as an index has them
        "gold_pids": found.get("gold_pids") or [],
        "sub_questions": found.get("sub_questions") or [],
        "sub_answers": found.get("sub_answers") or [],
        "sub_titles": [clean(composed(title)) for title in found.get("sub_titles") or []],
        "known": found.get("known"),
    }
    if found.get("gold_sentences"):
        full["gold_sentences"] = found["gold_sentences"]
    if found.get("scoring"):  # where answers are not compared as SQuAD's are
        full["scoring"] = found["scoring"]
    try:
        json.dumps(full, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        shown = ascii(error.object[error.start])
        raise InputError(f"{place}: not valid Unicode, it holds {shown} ({error.reason}); mend or drop it") from error
    return full


def _read_as_question(place: str, row: dict[str, Any]) -> dict[str, Any]:
    """What `schemas.question_row` makes of a row, and an InputError where it cannot."""
    if isinstance(asked := row.get("question"), list | dict) and (isinstance(asked, list) or "0" in asked):
        raise InputError(
            f"{place}: {len(asked)} questions in one row, as in a table by columns: write an object "
            'a question, in pandas to_json(orient="records", lines=True)'
        )
    row = {name: value for name, value in row.items() if value == value}  # without NaN, a table's gap in a column
    try:
        found = question_row(row)
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error
    except KeyError as error:
        has, like = ", ".join(map(str, row)) or "nothing", schema_of(row)
        raise InputError(f"{place}: no {error} in it, as {like} has; found {has}") from error
    except (TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{place}: not as {schema_of(row)} has it ({error!r})") from error
    hops = found.get("hops")
    if isinstance(hops, float) and hops.is_integer():  # as pandas writes a column of whole numbers that has gaps
        found["hops"] = int(hops)
    return found


def _check_gold(place: str, found: dict[str, Any]) -> None:
    """Raise InputError if an optional field is of a kind that would be misread in silence."""
    for name in LISTS:
        value = found.get(name) or []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InputError(f"{place}: {name} must be a list of texts, found {value!r:.60}")
    if found.get("known") not in (None, True, False):
        raise InputError(f"{place}: known must be true or false, found {found['known']!r:.60}")
    hops = found.get("hops")
    if hops is not None and (isinstance(hops, bool) or not isinstance(hops, int)):
        raise InputError(f"{place}: hops must be a whole number, found {hops!r:.60}")
    parts = len(found.get("sub_questions") or [])
    for name in ("sub_answers", "sub_titles"):
        if (given := found.get(name)) and len(given) != parts:
            raise InputError(f"{place}: {parts} sub_questions, but {len(given)} {name}; give one for each, or none")


def _example(row: dict[str, Any]) -> "dspy.Example":
    import dspy

    return dspy.Example(row).with_inputs("question")
