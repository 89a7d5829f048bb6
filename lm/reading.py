"""What an LM's text says, or that nothing can be read from it: one reader of values for all formats.

It is strict about what is not there and lenient about how it is dressed: case, punctuation, emphasis, code fences and
quotation marks are no reason to refuse a reply; a negation, a second label, an open bracket or a refusal is. Refusing
costs a call, a wrong verdict costs the result. Every function takes time linear in the text, whose length is bounded.
"""

import enum
import json
import re
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from dspy.adapters.utils import find_enum_member
from pydantic import TypeAdapter

from raisf.lm.labels import Unreadable, choices, compatible, doubts, label, named, shown
from raisf.lm.lists import MAX_NUMBERS_CHARACTERS, NONE, numbers, texts, unmarked

# Some twenty pages: no output of a signature is as long, and nothing longer is looked at.
MAX_CHARACTERS = 64_000
_THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINKING = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_OBJECT = re.compile(r"\s*\{")
# What chat templates end a turn with, where a server lets it through.
END = re.compile(r"(?:<\|[\w ]{1,30}\|>|</s>|<end_of_turn>)\s*$")
_HEADER = re.compile(r"[ \t*`#>]*\[\[ {0,2}#{1,3} {0,2}(\w+) {0,2}#{1,3} {0,2}\]\][*`]*")
_COMPLETED = re.compile(r"\[\[ {0,2}## {0,2}completed {0,2}## {0,2}\]\]", re.IGNORECASE)


def without_thinking(completion: object) -> str:
    """The part of a completion that is meant to be read: without its thinking and its end-of-turn marks.

    Raises:
        Unreadable: It is no text, still thinking, or longer than `MAX_CHARACTERS`.
    """
    if not isinstance(completion, str):
        raise Unreadable("the reply holds no text")
    start = 0
    if not _OBJECT.match(completion):  # there, a value may hold thinking of its own
        for end in _THOUGHT.finditer(completion):
            start = end.end()
    text = completion[start:]
    if len(text) > MAX_CHARACTERS:
        raise Unreadable(f"the reply has {len(text):,} characters, the limit is {MAX_CHARACTERS:,}")
    if _THINKING.match(text):
        raise Unreadable("the reply ends before its thinking does")
    for _ in range(3):
        if ended := END.search(text, max(0, len(text) - 100)):
            text = text[: ended.start()]
    return text


def read(text: str, annotation: Any, name: str = "") -> Any:
    """The value that a text says.

    Args:
        text: An output field's, as the LM wrote it.
        annotation: The field's type.
        name: The field's name, which the LM may repeat before the value.

    Raises:
        Unreadable: It says no such value, or not only that one.
    """
    text = _unfenced(without_thinking(text))
    try:
        if annotation is str:
            return _text(text, name)
        if get_origin(annotation) is Literal:
            return label(text, get_args(annotation), name)
        if annotation is list or get_origin(annotation) is list:
            return _list(text, *get_args(annotation))
        return _other(text, annotation, name)
    except Unreadable:
        raise
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise Unreadable(f"found {shown(text)}, which is no {_type_name(annotation)}") from error


def read_value(value: Any, annotation: Any, name: str = "") -> Any:
    """The same for a value out of a JSON object, which may already be of the wanted type.

    Raises:
        Unreadable: It is not, or says no such value; null is a value only where the type allows it.
    """
    kind, items = get_origin(annotation), get_args(annotation)
    if isinstance(value, str):
        return read(value, annotation, name)
    if value is None and not may_be_none(annotation):
        raise Unreadable("found null")
    if annotation is str and isinstance(value, bool | int | float):
        return json.dumps(value)
    if kind is Literal:
        said = [one for one in items if type(one) is type(value) and one == value]
        if not said and isinstance(value, int) and not isinstance(value, bool):
            said = [one for one in items if one == str(value)]
        if not said:
            raise Unreadable(f"expected {choices(items)}, found {shown(value)}")
        return said[0]
    if items == (int,) and isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if items == (int,) and isinstance(value, list):
        if any(isinstance(one, bool) for one in value):
            raise Unreadable(f"expected numbers, found {shown(value)}")
        return [one if isinstance(one, int) else _number(one) for one in value]
    if items == (str,) and isinstance(value, list):
        return _strings(value)
    try:
        return TypeAdapter(annotation).validate_python(value)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"found {shown(value)}, which is no {_type_name(annotation)}") from error


def json_object(text: str) -> dict[str, Any] | None:
    """The one JSON object that a text consists of, in a code fence or after a word of introduction; keys in lower case.

    Raises:
        Unreadable: There is more than that, or a key twice with different values.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    around = compatible(f"{text[:start]} {text[end + 1 :]}").casefold().replace("`", " ")
    if doubts(around) or "[" in around:
        return None
    try:
        found = json.loads(text[start : end + 1], strict=False, object_pairs_hook=_unique, parse_constant=_constant)
    except Unreadable:
        raise
    except (ValueError, RecursionError, MemoryError):
        return None
    return _unique([(key.strip().casefold(), value) for key, value in found.items()])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise Unreadable(f"the reply gives {shown(key)} twice")
    return found


def _constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _text(text: str, name: str) -> str:
    text = text.strip()
    # What the prompt shows in the value's place, repeated, is no value.
    if text.casefold() in ("null", "{" + name.casefold() + "}"):
        raise Unreadable(f"found {shown(text)}")
    return text


def _list(text: str, item: Any = str) -> list[Any]:
    if item is int:
        found = numbers(compatible(text).casefold()) if len(text) <= MAX_NUMBERS_CHARACTERS else None
        if found is None:
            raise Unreadable(f"expected numbers, found {shown(text)}")
        return found
    if item is not str:
        kind: Any = list
        return TypeAdapter(kind[item]).validate_json(text)
    if NONE.fullmatch(text.casefold()):
        return []
    if text.lstrip().startswith("["):
        try:
            return _strings(json.loads(text, strict=False))
        except Unreadable:
            raise
        except (ValueError, RecursionError, MemoryError):
            pass  # in Python's spelling, or no list after all: `[1] first ; [2] second`
    items = texts(text)
    if not items:
        raise Unreadable(f"expected a list, found {shown(text)}")
    return items


def _strings(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise Unreadable(f"expected a list of texts, found {shown(values)}")
    return unmarked([" ".join(one.split()) for one in values])


def _other(text: str, annotation: Any, name: str) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        if may_be_none(annotation) and text.strip().casefold() in ("", "null", "none"):
            return None
        if len(kinds) == 1:
            return read(text, kinds[0], name)
    if annotation is bool:
        return label(text, ("True", "False"), name) == "True"
    bare = named(compatible(text).casefold(), name).strip(" *_`\"'\n.")
    if annotation in (int, float):
        return annotation(bare)
    if isinstance(annotation, enum.EnumMeta):
        return find_enum_member(annotation, text.strip())
    adapter = TypeAdapter(annotation)
    try:
        return adapter.validate_json(text)
    except ValueError:
        return adapter.validate_python(text.strip())


def _number(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,6}\s*", value):
        return int(value)
    raise Unreadable(f"expected a number, found {shown(value)}")


def _unfenced(text: str) -> str:
    """A text without the one code fence that it stands in."""
    bare = text.strip()
    if len(bare) > 6 and bare.startswith("```") and bare.endswith("```") and "```" not in bare[3:-3]:
        first, newline, rest = bare[3:-3].partition("\n")
        return rest.strip() if newline and re.fullmatch(r"\s*\w*\s*", first) else bare[3:-3].strip()
    return text


def _type_name(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)


def may_be_list(annotation: Any) -> bool:
    """Whether a field of this type may hold a list."""
    return any((get_origin(kind) or kind) in (list, tuple) for kind in (annotation, *get_args(annotation)))


def may_be_none(annotation: Any) -> bool:
    """Whether None is a value of this type."""
    return get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation)


def has_value(values: Any, name: str, annotation: Any) -> bool:
    """Whether a dict or an example has a value of this type under a name."""
    return values.get(name) is not None or (name in values and may_be_none(annotation))


def has_outputs(values: Any, signature: Any) -> bool:
    """Whether it has one for each output of a signature."""
    return all(has_value(values, name, field.annotation) for name, field in signature.output_fields.items())


def read_field(said: Any, annotation: Any, name: str, *, may_be_empty: bool) -> Any:
    """A field's value out of its section, or out of a JSON object.

    Raises:
        Unreadable: It holds none, or is empty where it may not be.
    """
    if annotation is str and isinstance(said, str) and not said.strip():
        if may_be_empty:
            return ""
        raise Unreadable("it is empty")
    return read_value(said, annotation, name)


def sections_of(text: str, outputs: dict[str, str]) -> tuple[dict[str, Any], str]:
    """The text below each output's header, and what follows the mark that ends the reply."""
    body, after = text, ""
    if completed := _COMPLETED.search(text):
        body, after = text[: completed.start()], text[completed.end() :]
    found: list[tuple[str | None, list[str]]] = [(None, [])]
    for line in body.splitlines():
        if header := _HEADER.match(line):
            found.append((outputs.get(header[1].casefold()), []))
            line = line[header.end() :]
        found[-1][1].append(line)
    return once((name, "\n".join(lines).strip()) for name, lines in found if name is not None), after


def once(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The outputs of a reply by their names. A name with nothing below it does not count, nor does a value's case.

    Raises:
        Unreadable: One is there twice, with different values.
    """
    sections: dict[str, str] = {}
    for name, said in found:
        sections[name] = sections.get(name) or said
        if said and sections[name].casefold() != said.casefold():
            raise Unreadable(f"`{name}` is there twice, with different values")
    return sections
