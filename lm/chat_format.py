"""What one of DSPy's own adapters asks, read back into fields, for a model that knows another format.

`dspy.Predict` formats a call by DSPy's adapter, whatever the LM: the chat, JSON, BAML and XML adapters write a system
message with the fields and their types, demonstrations as turns, and the inputs between markers. A small model can't
follow that. So `raisf.lm.own_format.OwnFormat` reads the fields back, asks in the model's format, and answers in the
one that was asked for. Messages of any other form are left alone.
"""

import ast
import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import dspy
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.reading import may_be_list
from raisf.lm.streaming import CHAT, Markers

LONGEST_SYSTEM, MOST_FIELDS = 50_000, 100
"""Characters and fields of a system message at most: each becomes a class, and classes are kept."""

# What stands before each part of a system message: the input fields, the output fields, the form, the instruction.
_INPUTS, _OUTPUTS = "Your input fields are:\n", "\nYour output fields are:\n"
_FORM = "\nAll interactions will be structured in the following way, with the appropriate values filled in."
_TASK = "In adhering to this structure, your objective is:"
_JSON = ("\nOutputs will be a JSON object", "\nOutput field `")  # the second in BAMLAdapter's form
_REMINDER = "\n\nRespond with "  # of the form, at a turn's end
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.*?)\):", re.MULTILINE)
_ITEM = re.compile(r"(?:\[\d+\] )?(?:«««\n(.*?)\n»»»|«([^«»\n]*)»)(?:\n|$)", re.DOTALL)
# A list of texts or numbers, by itself or beside None. What holds such a list, a dict of them, is text.
_LIST = re.compile(r"(?:Union\[(?:NoneType, )?)?list\[(str|int|float|bool)\](?:(?:, NoneType)?\])?")
_ITEMS: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool}
# An output that a demonstration does not have, as DSPy's chat, XML and JSON adapters write it.
_MISSING = re.compile(
    r"^(?:\[\[ ## (\w+) ## \]\]\n|<(\w+)>\n|  \"(\w+)\": \")Not supplied for this particular example\.", re.MULTILINE
)

_WRITERS = {"chat": dspy.ChatAdapter(), "json": dspy.JSONAdapter(), "xml": dspy.XMLAdapter()}


@dataclass(frozen=True)
class ChatCall:
    """A call, maybe as one of DSPy's adapters wrote it.

    Attributes:
        signature: Its fields, with the types that matter here: labels, lists, and text for all others.
        demos: Demonstrations, and earlier turns of a conversation.
        inputs: By name; those that are None are absent.
        markers: The format of the answer.
    """

    signature: type[dspy.Signature]
    demos: list[dict[str, Any]]
    inputs: dict[str, Any]
    markers: Markers = CHAT

    def answer(self, fields: dict[str, Any]) -> str:
        """The answer in the format that was asked for; a field that was not found is left out."""
        signature = _without(
            self.signature, *(name for name in self.signature.output_fields if fields.get(name) is None)
        )
        return _WRITERS[self.markers.kind].format_assistant_message_content(signature, fields)

    def read(self, answer: str) -> dict[str, Any]:
        """The outputs of an answer in the format that was asked for; none where it cannot be read."""
        return _outputs(answer, self.signature, self.markers)


def chat_call(messages: Sequence[dict[str, Any]], bools: bool = False) -> ChatCall | None:
    """The call that DSPy's chat, JSON, BAML or XML adapter put into messages; None where none of them did.

    Args:
        messages: Of the call.
        bools: Whether a `bool` stays one, for who scores it; else it is text.
    """
    first, *turns = messages
    texts = [message.get("content") for message in messages]
    if first.get("role") != "system" or not turns or not all(isinstance(text, str) for text in texts):
        return None
    if len(first["content"]) > LONGEST_SYSTEM or (read := _signature(first["content"], bools)) is None:
        return None
    signature, markers = read
    pairs = zip(turns[:-1:2], turns[1:-1:2], strict=True) if len(turns) % 2 else ()
    last = turns[-1]["content"]
    reminder = _reminder_of(last)  # behind earlier turns of a conversation, too
    demos = []
    for asked, said in pairs:
        inputs = _inputs(asked["content"].removesuffix(reminder), signature, markers)
        demos.append({**inputs, **_outputs(said["content"], signature, markers)})
    return ChatCall(signature, demos, _inputs(last.removesuffix(reminder), signature, markers), markers)


def earlier_turns(
    call: ChatCall, between: Sequence[dict[str, Any]], last: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Inputs and outputs of a call's earlier turns (`dspy.History`), without its demonstrations.

    Outputs are read as DSPy's adapters write them, in no more time than their length takes.

    Args:
        call: What the first message and the last were read as.
        between: The messages between these.
        last: The last one's text.
    """
    reminder = _reminder_of(last)
    for asked, said in zip(between[::2], between[1::2], strict=False):
        if reminder and asked["content"].endswith(reminder):
            inputs = _inputs(asked["content"].removesuffix(reminder), call.signature, call.markers)
            yield inputs, _written_outputs(said["content"], call)


def _reminder_of(last: str) -> str:
    _, found, form = last.rpartition(_REMINDER)
    return found + form if found else ""


def _written_outputs(text: str, call: ChatCall) -> dict[str, Any]:
    if call.markers.kind != "json":
        return _marked(text, [*call.signature.output_fields, "completed"], call.markers.kind == "xml")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@functools.lru_cache(256)
def _signature(system: str, bools: bool) -> tuple[type[dspy.Signature], Markers] | None:
    start, opened, rest = system.strip().partition(_INPUTS)
    inputs, listed, rest = rest.partition(_OUTPUTS)
    outputs, formed, rest = rest.partition(_FORM)
    form, told, task = rest.rpartition(_TASK)
    if start or not (opened and listed and formed and told):
        return None
    parts = ((inputs, dspy.InputField), (outputs, dspy.OutputField))
    found = [(*field, kind) for part, kind in parts for field in _FIELD.findall(part)]
    if len(found) > MOST_FIELDS:
        return None
    fields: dict[str, Any] = {name: (_type(written, bools), kind()) for name, written, kind in found}
    in_json = any(said in form for said in _JSON)
    kind = "json" if in_json else "chat" if "## completed ##" in form else "xml"
    task = "\n".join(line.strip() for line in task.strip().splitlines())
    try:
        signature: Any = dspy.Signature(fields, task)  # type: ignore[call-arg]
    except Exception:  # of many kinds: a name that begins with "_", or that a signature has already ("instructions")
        return None
    return (signature, Markers(kind)) if signature.output_fields else None


def _type(written: str, bools: bool) -> Any:
    if bools and written == "bool":
        return bool
    if written.startswith("Literal["):
        try:
            labels = ast.literal_eval(written.removeprefix("Literal"))
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: brackets or signs too deep
            return str
        return Literal[tuple(labels)] if labels and all(isinstance(label, str) for label in labels) else str
    item = _LIST.fullmatch(written)
    kind: Any = list[_ITEMS[item[1]]] if item else str
    return kind | None if re.search("None|Optional", written) else kind


def _inputs(text: str, signature: type[dspy.Signature], markers: Markers) -> dict[str, Any]:
    found = _marked(text, list(signature.input_fields), markers.kind == "xml")
    return {name: _value(text, signature.input_fields[name].annotation) for name, text in found.items()}


def _outputs(text: str, signature: type[dspy.Signature], markers: Markers) -> dict[str, Any]:
    """The outputs of a demonstration, without those that it lacks; none where it cannot be read."""
    lacking = ("".join(names) for names in _MISSING.findall(text))
    try:
        return _WRITERS[markers.kind].parse(_without(signature, *lacking), text)
    except (AdapterParseError, ValueError, RecursionError):  # the last two: JSON that is nested too deeply
        return {}


def _without(signature: Any, *outputs: str) -> type[dspy.Signature]:
    for name in outputs:
        signature = signature.delete(name)
    return signature


def _marked(text: str, names: list[str], xml: bool) -> dict[str, str]:
    """The texts behind the markers of these fields, in their order.

    A marker stands at the beginning of a line, that of the first field before all others; where it stands twice, any
    other field's is the last: a text may hold the marker of a field behind it, and is text all the same.
    """
    found: dict[str, str] = {}
    text, end = f"\n{text}", len(text) + 1
    for name in reversed(names):
        marker = f"\n<{name}>\n" if xml else f"\n[[ ## {name} ## ]]\n"
        place = (text.find if name == names[0] else text.rfind)(marker, 0, end)
        if place >= 0:
            value = text[place + len(marker) : end]
            found[name] = (value.rpartition(f"</{name}>")[0] if xml else value).strip()
            end = place
    return {name: found[name] for name in names if name in found}


def _value(text: str, annotation: Any) -> Any:
    """A field's value from its text; None where that says None."""
    if text == "None" and type(None) in get_args(annotation):
        return None
    if may_be_list(annotation):
        try:
            return list(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            return text
    return _items(text) or text


def _items(text: str) -> list[str]:
    """The items of a list that DSPy wrote as text; none where that is no such list from end to end."""
    items: list[str] = []
    place = 0
    while place < len(text):
        item = _ITEM.match(text, place)
        if item is None:  # at once: who went on to look for one further on would take hours over a megabyte
            return []
        items.append(item[2] if item[1] is None else item[1])
        place = item.end()
    return items
