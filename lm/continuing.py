"""An answer in the compact format that was not whole is asked for again from where it ended."""

import copy
import itertools
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.adapter import CompactAdapter
from raisf.lm.chat import UnreadableReply
from raisf.lm.labels import Unreadable
from raisf.lm.reading import without_thinking


def rest_of(adapter: dspy.Adapter, error: AdapterParseError) -> CompactAdapter | None:
    """The adapter that asks for the outputs which a reply left out; None where it is of no use to ask again.

    A small model often ends after the first output, or never ends it: shown its own words and the next output's name,
    it goes on.

    Args:
        adapter: Of the call.
        error: Why its reply could not be read.
    """
    if not isinstance(adapter, CompactAdapter) or not isinstance(error, UnreadableReply):
        return None
    signature: Any = error.signature
    try:
        found = adapter.sections(signature, without_thinking(error.reply))
    except Unreadable:  # too long, or nothing but thinking: none of it is the answer's beginning
        return None
    given = list(itertools.takewhile(found.__contains__, signature.output_fields))
    if len(given) == len(signature.output_fields):
        return None
    rest = copy.copy(adapter)
    rest.said = {name: found[name] for name in given}
    return rest
