"""Which sentence an answer was read from: the one that the reader quoted, else one that is found afterwards."""

from collections.abc import Iterable, Iterator, Sequence

from raisf.programs.questions import UNKNOWN, YES_NO, bare, holds, is_yes_no, normal, sentences, spellings
from raisf.programs.trace import JudgedPassage, Node
from raisf.utils.text import clean

NONE = ("", "none", UNKNOWN)
"""What a reader that quotes nothing writes for the sentence; in the normal form of texts."""
SHARE = 2 / 3
"""Of a quotation's words that must stand in one place of a passage: it may have a name where that says "she"."""
_PRONOUNS = {"he", "she", "it", "they", "him", "her", "them", "his", "hers", "its", "their", "who", "which"}
_NEGATIONS = {"not", "no", "never", "none", "nor", "neither", "cannot", "without"}
_SHORT = 3
"""Letters of words that stand everywhere, such as "of" and "the"; a quotation is told by its longer ones."""


def cite(node: Node, quoted: object, read: Iterable[str]) -> None:
    """Fills in where a node's answer stands: `evidence`, `found_afterwards`, `cited` and `grounded`.

    Args:
        node: Concluded, with its passages.
        quoted: The sentence that the reader quoted; None, "" or "none" where it quoted none. Then, and where what it
            quoted stands in no passage, it is the sentence of the passages read that holds the answer and shares most
            words with the question.
        read: The passages that the reader saw, as they stood in its prompt. One that holds the answer in its title
            alone, and of which no sentence is about the question, is cited without a sentence.
    """
    shown = set(read)
    passages = [passage for passage in node.passages if passage.prompt_text in shown]
    quotation, answer = bare(clean(quoted)), bare(node.answer)
    source = None if normal(quotation) in NONE else _source(quotation, node, passages)
    node.evidence = quotation if source else None
    if node.answer == UNKNOWN:
        return
    holding = [passage for passage in passages if holds(passage.prompt_text, spellings(answer))]
    if normal(answer) not in YES_NO and not is_yes_no(node.question):
        node.grounded = bool(holding)
    if source is None:
        sentence, source = holding_sentence(node.question, answer, holding)
        node.evidence = sentence if sentence and _says(sentence, node.question, answer) else None
        node.found_afterwards = node.evidence is not None
    if source is not None:
        node.cited = source.citation or source.title or source.pid


def holding_sentence(
    question: str, answer: str, passages: Sequence[JudgedPassage]
) -> tuple[str | None, JudgedPassage | None]:
    """Of passages that hold an answer, the sentence that does and shares most words with the question, and whose it is.

    Where only a title holds it, the sentence below that title which shares most.
    """
    asked = set(normal(question).split())
    best: tuple[tuple[bool, int], str, JudgedPassage] | None = None
    for passage in passages:
        for sentence in sentences(passage.text):
            shared = len(asked & set(normal(f"{passage.title} {sentence}").split()))
            rank = (holds(sentence, spellings(answer)), shared)
            if best is None or rank > best[0]:
                best = (rank, sentence, passage)
    return (best[1], best[2]) if best else (None, None)


def _source(quotation: str, node: Node, passages: Sequence[JudgedPassage]) -> JudgedPassage | None:
    """The passage that a quotation is taken from, word for word or nearly; None where it is of the reader's making.

    The numbers that it says must stand in one place of the passage, and so must its names and what it says of the
    answer; or in the passage, where the place has a "she" for it. It says "not" where that place does.
    """
    words = set(normal(quotation).split())
    telling = _telling(words) or words
    numbers, named = set(filter(_is_number, words)), _telling(words & set(normal(node.answer).split()))
    named |= _names(quotation, node.question)
    best: tuple[float, JudgedPassage | None] = (0.0, None)
    for passage in passages:
        if holds(passage.prompt_text, [quotation]):
            return passage
        whole, title = (set(normal(text).split()) for text in (passage.prompt_text, passage.title))
        for said in _places(passage, len(sentences(quotation))):
            place = said | title
            known = place if place.isdisjoint(_PRONOUNS) else place | whole
            taken = numbers <= place and named <= known and _denies(words) == _denies(said)
            share = len(telling & place) / len(telling) if telling and taken else 0.0
            best = max(best, (share, passage), key=lambda found: found[0])
    return best[1] if best[0] >= SHARE else None


def _places(passage: JudgedPassage, length: int) -> Iterator[set[str]]:
    """The words of so many sentences in a row."""
    found = sentences(passage.text)
    for start in range(max(1, len(found) - length + 1)):
        yield set(normal(" ".join(found[start : start + length])).split())


def _names(quotation: str, question: str) -> set[str]:
    """The words of a quotation that are written with a capital, a sentence's first only where the question has it."""
    asked, found = set(normal(question).split()), set[str]()
    for sentence in sentences(quotation):
        for place, word in enumerate(sentence.split()):
            plain = normal(word)
            if any(letter.isupper() for letter in word[:2]) and (place or plain in asked):
                found.add(plain)
    return found


def _denies(words: Iterable[str]) -> bool:
    return any(word in _NEGATIONS or word.endswith(("n't", "n\u2019t")) for word in words)


def _says(sentence: str, question: str, answer: str) -> bool:
    """Whether a sentence holds an answer, or at least a word of its question that tells something."""
    words = _telling(normal(question).split())
    return holds(sentence, spellings(answer)) or not words.isdisjoint(normal(sentence).split())


def _telling(words: Iterable[str]) -> set[str]:
    """Of words those that do not stand everywhere."""
    return {word for word in words if len(word) > _SHORT or _is_number(word)}


def _is_number(word: str) -> bool:
    return any(character.isdigit() for character in word)
