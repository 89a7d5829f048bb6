"""Which sentence an answer was read from: the one that the reader quoted, else one that is found afterwards."""

from collections.abc import Iterable, Sequence

from raisf.programs.questions import UNKNOWN, YES_NO, clean, holds, is_yes_no, normal, sentences
from raisf.programs.trace import JudgedPassage, Node

NONE = ("", "none", UNKNOWN)
"""What a reader that quotes nothing writes for the sentence; in the normal form of texts."""
SHARE = 0.5
"""Of a quotation's words that a passage must have to be cited for it: names may stand where it says "she"."""


def cite(node: Node, quoted: object, read: Iterable[str]) -> None:
    """Fills in where a node's answer stands: `evidence`, `found_afterwards`, `cited` and `grounded`.

    Args:
        node: Concluded, with its passages.
        quoted: The sentence that the reader quoted; None, "" or "none" where it quoted none. Then it is the sentence
            of the passages read that holds the answer and shares most words with the question.
        read: The passages that the reader saw, as they stood in its prompt.
    """
    shown = set(read)
    passages = [passage for passage in node.passages if passage.prompt_text in shown]
    quotation = clean(quoted)
    node.evidence = quotation if normal(quotation) not in NONE else None
    if node.answer == UNKNOWN:
        return
    holding = [passage for passage in passages if holds(passage.prompt_text, [node.answer])]
    if normal(node.answer) not in YES_NO and not is_yes_no(node.question):
        node.grounded = bool(holding)
    if node.evidence is not None:
        source = _most_alike(node.evidence, passages)
    else:
        node.evidence, source = holding_sentence(node.question, node.answer, holding)
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
            rank = (holds(sentence, [answer]), shared)
            if best is None or rank > best[0]:
                best = (rank, sentence, passage)
    return (best[1], best[2]) if best else (None, None)


def _most_alike(sentence: str, passages: list[JudgedPassage]) -> JudgedPassage | None:
    words = set(normal(sentence).split())
    shares = [len(words & set(normal(passage.prompt_text).split())) / len(words) for passage in passages if words]
    best = max(range(len(shares)), key=shares.__getitem__, default=None)
    return passages[best] if best is not None and shares[best] >= SHARE else None
