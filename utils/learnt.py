"""What a program, a part of one, or an index's encoder has learnt from: prints of questions, never their words."""

from typing import Any


def learnt_by(learner: Any) -> frozenset[str]:
    """The prints (`raisf.utils.text.print_of`) in an object's `learnt_from`; of a module also those of its parts.

    Something else under that name, as an object of the user's own may have, counts as none.
    """
    within = getattr(learner, "named_sub_modules", None)  # of a dspy.Module, whose import would slow whoever has none
    parts = [learner] if within is None else [part for _, part in within()]
    told = [getattr(part, "learnt_from", None) for part in parts]
    return frozenset(
        one
        for given in told
        if isinstance(given, list | tuple | set | frozenset)
        for one in given
        if isinstance(one, str)
    )
