"""How many of a run's LM outputs could be read: a run of which most could not measures the format, not the model."""

from collections.abc import Iterable, Mapping
from typing import Any

from raisf.utils.errors import LMError

REMEDY = "try another format (--adapter compact, or chat), more tokens (--max-tokens), or another model"
_NAMED = 8


def counts(records: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """How many LM outputs could not be read, and how many there were, over the records of an evaluation."""
    unreadable = read = 0
    for record in records:
        unreadable += record["unreadable"]
        # Records of earlier versions count calls, of which a second try in JSON is one more.
        read += record.get("read", max(0, record["cost"].get("lm_calls", 0) - record["unreadable"]))
    return unreadable, unreadable + read


def unreadable_line(found: Mapping[str, tuple[int, int]]) -> str:
    """Of which programs or judges most outputs could not be read, and what to do; empty where there is none.

    Args:
        found: By the name of a program or judge, how many of its outputs could not be read, and how many there were.
    """
    bad = [f"{part} of {whole} of {name}" for name, (part, whole) in found.items() if 2 * part > whole]
    more = f", and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    return f"most of the LM's outputs could not be read ({', '.join(bad[:_NAMED])}{more}): {REMEDY}" if bad else ""


def check_readable(found: Mapping[str, tuple[int, int]], kept: str = "") -> None:
    """Refuse to let a run pass for a measurement of which most outputs could not be read.

    Args:
        found: As for `unreadable_line`.
        kept: Where what was measured is to be found.

    Raises:
        LMError: More than half of the outputs of one of them could not be read.
    """
    if told := unreadable_line(found):
        raise LMError(told + (f"; what was measured is in {kept}" if kept else ""))
