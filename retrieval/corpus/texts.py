"""Texts from a program become passages."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from raisf.retrieval.corpus.splitting import split_text
from raisf.retrieval.passage import Passage, Value, cell, columns_of
from raisf.utils.errors import InputError
from raisf.utils.text import clean, composed

TextLike = str | Passage | Mapping[str, Any]


def passages_of_texts(texts: Iterable[TextLike]) -> Iterator[Passage]:
    """The passages of texts; see `raisf.retrieval.index.index`.

    Raises:
        InputError: They are one string or path, or something among them is no text.
    """
    if isinstance(texts, str | os.PathLike | Mapping):
        raise InputError(
            "give a list of texts; a folder or file of documents is indexed by raisf.build_index(path, out)"
        )
    for number, text in enumerate(texts):
        if isinstance(text, Passage):
            yield text
            continue
        row: Mapping[str, Any] = {"text": text} if isinstance(text, str) else text
        if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
            raise InputError(
                f"text {number} is {text!r:.80}: give a string, a Passage, or a mapping with a 'text' of type string"
            )
        pid = str(number) if cell(row, "id") in (None, "") else clean(str(row["id"]))
        yield from cut(pid, row["text"], clean(composed(str(cell(row, "title") or ""))), None, columns_of(row))


def cut(pid: str, text: str, title: str, source: str | None, metadata: Mapping[str, Value]) -> Iterator[Passage]:
    """The passages of a text: one with its id, else each with its number behind it, as `row_of` takes it off."""
    pieces = split_text(text)
    for number, piece in enumerate(pieces, start=1):
        own = pid if len(pieces) == 1 else f"{pid}#{number}"
        yield Passage(own, piece, title, source=source, metadata=metadata)
