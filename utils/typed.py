"""Whether what was read from a file has the types that its dataclass names: JSON may hold anything."""

import types
import typing
from typing import Any


def check_types(record: Any) -> None:
    """Makes sure that the fields of a dataclass have their types, as far down as lists, mappings and unions tell them.

    Raises:
        TypeError: One has another; the message names it.
    """
    for name, kind in typing.get_type_hints(type(record)).items():
        value = getattr(record, name)
        if not _fits(value, kind):
            raise TypeError(f"{name} is {value!r:.60}, not {kind if typing.get_args(kind) else kind.__name__}")


def _fits(value: object, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(_fits(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    return type(value) is kind  # True is no number
