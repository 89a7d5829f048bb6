"""Copies of programs to change."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import dspy


def copy_of(program: dspy.Module) -> dspy.Module:
    """A copy to change, with the original's very LMs and embeddings and none of DSPy's marks of having been compiled.

    What cannot be copied, such as a lock, is shared. `dspy.Module.deepcopy` would then take the module apart: what is
    reached by two paths, as a program and as the part of another one, would be two.
    """
    # Also those that a module asks by itself: a deep copy of an LM of the user's own may hold its weights once more.
    # Nor is an index of embeddings copied, whose thread cannot be: each attempt prints a traceback.
    shared = {id(one): one for _, one in program.named_sub_modules((dspy.BaseLM, dspy.Embeddings))}  # pyright: ignore[reportArgumentType]
    try:
        made = copy.deepcopy(program, dict(shared))
    except Exception:
        parts = [part for _, part in program.named_sub_modules()]
        ids = set(map(id, parts))  # a method of one of them is to be its copy's
        bound = {id(one) for part in parts for one in vars(part).values() if id(getattr(one, "__self__", None)) in ids}
        held = itertools.chain(*(_leaves(part.__getstate__(), set(shared) | bound) for part in parts))
        locks = {id(value): value for value in held if not _copies(value)}
        made = copy.deepcopy(program, shared | locks)
    made._compiled = False
    return made


def _leaves(value: Any, seen: set[int]) -> Iterator[Any]:
    """What a module's attributes hold, but for modules and what has been seen."""
    if id(value) in seen or isinstance(value, dspy.Module):
        return
    seen.add(id(value))
    if isinstance(value, dict | list | tuple | set):
        for one in itertools.chain(*value.items()) if isinstance(value, dict) else value:
            yield from _leaves(one, seen)
    else:
        yield value


def _copies(value: Any) -> bool:
    try:
        copy.deepcopy(value)
    except Exception:
        return False
    return True
