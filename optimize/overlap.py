"""Whether two splits share a question, in the very words or nearly: a judge tuned on its test measures nothing."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

import dspy

from raisf.evaluation.examples import asked_text, check_examples
from raisf.evaluation.metrics import normalise
from raisf.optimize.judges.judge_data import steps
from raisf.optimize.within import programs_within
from raisf.utils.errors import InputError
from raisf.utils.learnt import learnt_by
from raisf.utils.text import print_of

# Two questions are near-duplicates when they share this much of their words (Jaccard index of their multisets) and all
# of their names and numbers: the same question about another person is another question.
NEAR = 0.9


def check_disjoint(trainset: Sequence[dspy.Example], others: Mapping[str, Sequence[dspy.Example]]) -> None:
    """Refuses a training split that holds questions of another split.

    Args:
        trainset: Questions to train on.
        others: By a name for the message, the splits that must stay unseen.

    Raises:
        InputError: An id is in both, or a question is, in the same words or nearly; or what is given holds no examples.
    """
    check_examples(trainset, "training")
    for name, other in others.items():
        check_examples(other, name)
        if shared := overlap(trainset, other):
            shown = "; ".join(f"{ours!r} and {theirs!r}" for ours, theirs in shared[:3])
            raise InputError(
                f"{len(shared)} of the {len(trainset)} training questions are in the {name} split too, by their id or "
                f"in nearly the same words: {shown}; a score on them says nothing: take them out of one of the two"
            )


def overlap(ours: Sequence[dspy.Example], theirs: Sequence[dspy.Example]) -> list[tuple[str, str]]:
    """The pairs of a question of ours and one of theirs that are the same or nearly, one pair a question of ours.

    Equal ids are one question, however it is worded; an id that is only a number is a place in a file, and every file
    has a first line.
    """
    # Where one of the two marks other inputs, the questions alone are compared.
    alike = len({frozenset(one._input_keys or ()) - {"id"} for one in (*ours, *theirs)}) == 1
    asks = asked_text if alike else lambda example: str(example.get("question", asked_text(example)))
    texts = [asks(example) for example in theirs]
    words = [Counter(normalise(text).split()) for text in texts]
    having: dict[str, list[int]] = defaultdict(list)
    for number, bag in enumerate(words):
        for word in bag:
            having[word].append(number)
    ids = {name: number for number, example in enumerate(theirs) if (name := _own_id(example)) is not None}
    found = []
    for example in ours:
        text = asks(example)
        bag = Counter(normalise(text).split())
        name = _own_id(example)
        match = None if name is None else ids.get(name)
        if match is None:
            # Of the words a near-duplicate lacks less than this many, so it has one of the rarest of them.
            rare = sorted(bag, key=lambda word: len(having.get(word, ())))[: 1 + floor((1 - NEAR) * bag.total() + 1e-9)]
            likely = {number for word in rare for number in having.get(word, ())}
            match = next((n for n in likely if _near(text, bag, texts[n], words[n])), None)
        if match is not None:
            found.append((text, texts[match]))
    return found


def learnt_from(learner: Any, *sets: Sequence[dspy.Example]) -> list[str]:
    """The prints of what a program or an index has learnt from already, and of what some sets ask.

    Their sub-questions too, as judges meet them.
    """
    prints = {print_of(text) for examples in sets for example in examples for text in asked_with_parts(example)}
    return sorted(prints | learnt_by(learner))


def note_learnt(made: dspy.Module, learner: dspy.Module, *sets: Sequence[dspy.Example]) -> None:
    """Writes what `learnt_from` gives into a compiled program and those within it, which may be used alone."""
    prints = learnt_from(learner, *sets)
    programs: list[Any] = [made, *programs_within(made)]
    for program in programs:
        program.learnt_from = prints


def asked_with_parts(example: dspy.Example) -> list[str]:
    """What an example asks, and its gold sub-questions: what judges alone are asked about it."""
    return [asked_text(example), *(step.question for step in steps(example)[1:])]


def _own_id(example: dspy.Example) -> str | None:
    name = example.get("id")
    return None if name is None or str(name).isdigit() else str(name)


def _near(text: str, bag: Counter[str], other_text: str, other_bag: Counter[str]) -> bool:
    together, shared = bag | other_bag, bag & other_bag
    if shared.total() < NEAR * together.total():
        return False
    return not set(together - shared) & (_names(text) | _names(other_text))


def _names(text: str) -> set[str]:
    """The words, but for the first, that begin with a capital or a digit."""
    return {normalise(word) for word in text.split()[1:] if word.lstrip("\"'(")[:1].isupper() or word[:1].isdigit()}
