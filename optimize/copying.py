"""Copies of programs to change."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import dspy


def copy_of(program: dspy.Module) -> dspy.Module:
    """A copy to change, with the very LMs of the original and none of DSPy's marks of having been compiled.

    What cannot be copied, such as a lock, is shared. `dspy.Module.deepcopy` would then take the module apart: what is
    reached by two paths, as a program and as the part of another one, would be two.
    """
    # A deep copy would load a local model a second time.
    lms = [part.lm for _, part in program.named_sub_modules(dspy.Predict) if isinstance(part, dspy.Predict)]
    try:
        made = copy.deepcopy(program, _shared(lms))
    except Exception:
        held = [_leaves(part.__getstate__(), set()) for _, part in program.named_sub_modules()]
        locks = [value for value in itertools.chain(*held) if not _copies(value)]
        made = copy.deepcopy(program, _shared([*lms, *locks]))
    made._compiled = False
    return made


def _shared(values: list[Any]) -> dict[int, Any]:
    """What lets a deep copy hold these very objects."""
    return {id(value): value for value in values if value is not None}


def _leaves(value: Any, seen: set[int]) -> Iterator[Any]:
    """What a module's attributes hold, but for modules."""
    if id(value) in seen or isinstance(value, dspy.Module):
        return
    seen.add(id(value))
    if isinstance(value, dict | list | tuple | set):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one, seen)
    else:
        yield value


def _copies(value: Any) -> bool:
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True
