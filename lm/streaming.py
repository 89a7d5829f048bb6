"""What `dspy.streamify` shows of an LM that writes in the compact format.

DSPy's stream listeners find a field by the markers of DSPy's own adapters. So the text of an LM in the compact format
is shown to them between such markers as it grows; the answer itself is read from the compact text, streamed or not.
"""

import copy
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import dspy

from raisf.lm.labels import Unreadable
from raisf.lm.reading import without_thinking

# The beginning of `<think>` or of a mark that ends a turn.
_TAG = re.compile(r"<[^\s<>]{0,20}$")
# A field, what there is of its value, and whether that is all of it.
Piece = tuple[str, Any, bool]


@dataclass(frozen=True)
class Markers:
    """How one of DSPy's adapters writes the fields of an answer.

    Args:
        kind: `chat`, `json` or `xml`.
    """

    kind: str

    def write(self, fields: Sequence[Piece], finished: bool) -> str:
        """The answer, or its beginning where it is not finished."""
        if self.kind == "json":
            parts = [f"{json.dumps(name)}: {_json(value, done)}" for name, value, done in fields]
            return "{" + ", ".join(parts) + "}" * finished
        if self.kind == "xml":
            return "\n\n".join(f"<{name}>\n{escape(_plain(v))}" + f"\n</{name}>" * done for name, v, done in fields)
        text = "\n\n".join(f"[[ ## {name} ## ]]\n{_plain(value)}" for name, value, _ in fields)
        return text + "\n\n[[ ## completed ## ]]\n" * finished


CHAT = Markers("chat")


def markers_of(adapter: Any) -> Markers:
    """Those that a stream's listener looks for under one of DSPy's adapters."""
    if isinstance(adapter, dspy.JSONAdapter):
        return Markers("json")
    return Markers("xml") if isinstance(adapter, dspy.XMLAdapter) else CHAT


def pieces(
    signature: type[dspy.Signature],
    sections: Callable[[type[dspy.Signature], str], dict[str, str]],
    read: Callable[[str, Any, str], Any],
    text: str,
    finished: bool,
) -> list[Piece]:
    """The fields of a text in the compact format, as far as what is still to come cannot change them.

    Args:
        signature: Its outputs are the fields.
        sections: Splits a text into the texts of fields.
        read: The value of a field's text, given its type and name; raises Unreadable where it has none.
        text: What the LM has written.
        finished: Whether that is all.
    """
    names = [line for name in signature.fields for line in (name.casefold(), name.casefold().removesuffix("s"))]
    try:
        text = without_thinking(text)
        found = list(sections(signature, text if finished else _settled(text, names)).items())
    except Unreadable:  # it is still thinking, or says two things
        return []
    known: list[Piece] = []
    for place, (name, written) in enumerate(found):
        done = finished or place + 1 < len(found)
        annotation = signature.output_fields[name].annotation
        if not done and (annotation is not str or written.startswith("`") or (written and not written.strip("*"))):
            break  # a list, a label or a block cannot be read before it is there, nor what is but marks
        try:
            known.append((name, read(written, annotation, name), done))
        except Unreadable:
            known.append((name, written, done))
    return known


class MarkedStream:
    """Stands before DSPy's stream of an LM call: takes chunks of compact text, and passes them on between markers.

    Args:
        stream: DSPy's.
        marked: Gives the text to show for what was written so far, and whether that is all.
    """

    def __init__(self, stream: Any, marked: Callable[[str, bool], str]):
        self._stream = stream
        self._marked = marked
        self._text, self._shown = "", ""

    async def send(self, chunk: Any) -> None:
        """Pass on what can be shown; what is no chunk of an LM (a status message) goes as it is."""
        try:
            choice = chunk.choices[0]
            self._text += choice.delta.content or ""
        except (AttributeError, IndexError, TypeError):
            await self._stream.send(chunk)
            return
        finished = choice.finish_reason is not None
        whole = self._marked(self._text, finished)
        new = whole[len(self._shown) :] if whole.startswith(self._shown) else ""
        self._shown += new
        if new:
            await self._stream.send(_changed(chunk, new, None))
        if finished:
            await self._stream.send(_changed(chunk, None, choice.finish_reason))


def _changed(chunk: Any, content: str | None, finish_reason: str | None) -> Any:
    chunk = copy.deepcopy(chunk)
    for part, name, value in (
        (chunk.choices[0].delta, "content", content),
        (chunk.choices[0], "finish_reason", finish_reason),
    ):
        if isinstance(part, dict):  # DSPy's own chunks; LiteLLM's are objects
            part[name] = value
        else:
            setattr(part, name, value)
    return chunk


def _settled(text: str, names: Iterable[str]) -> str:
    """The text without a last line that may yet turn out to begin another field, and without a tag's beginning."""
    text = _TAG.sub("", text)
    before, _, line = text.rpartition("\n")
    start = line.strip(" *").casefold()
    return before if ":" not in line and any(name.startswith(start) for name in names) else text


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json(value: Any, done: bool) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if done else text.removesuffix('"')
