"""A compiled program's options with others in the place of some: what was fitted to these goes with them."""

import logging
from collections.abc import Mapping
from typing import Any

from raisf.programs.registry import PROGRAMS, defaults, options

logger = logging.getLogger(__name__)

# By choice, the numbers that are fitted to it: each kind of judge, and each confidence, has a scale of its own.
_SCALE = ("confidence_slope", "confidence_offset")
_FITTED = {
    "know": ("know_threshold", *_SCALE),
    "relevance": ("relevance_threshold", *_SCALE),
    "confidence": _SCALE,
}


def fitted_to_others(kept: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, str]:
    """By name, the numbers among a program's options that say nothing of what takes the place of some, and of which."""
    changed = [choice for choice in _FITTED if choice in changes and changes[choice] != kept[choice]]
    return {number: choice for choice in reversed(changed) for number in _FITTED[choice]}


def with_changes(compiled: Any, changes: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The options of a compiled program with the caller's in their place.

    A number that was fitted to what the caller changes is the default again, unless she gives it, which is told.

    Args:
        compiled: A program of the registry, as its artifact has it.
        changes: The caller's options.
        folder: The artifact's, for the message.
    """
    usual = defaults(PROGRAMS[compiled.system])
    kept = {**usual, **options(compiled)}
    for number, choice in fitted_to_others(kept, changes).items():
        if number not in changes and kept[number] != usual[number]:
            logger.warning(
                "%s has %s %.3g for %s %s, which says nothing of %s: %s holds; give your own, or fit it "
                "(raisf compile --calibrate, --calibrate-confidence)",
                *(folder, number, kept[number], choice, kept[choice], changes[choice], usual[number]),
            )
        kept[number] = usual[number]
    return {**kept, **changes}
