"""Which predictor of a program does what: told by its fields, as its instructions may have been changed."""

from typing import Any

import dspy

from raisf.signatures.answers import ComposedAnswer, DirectAnswer, GroundedAnswer, PassageAnswer
from raisf.signatures.judges import (
    AnswerTruth,
    Decomposition,
    ListwiseRelevance,
    PassageRelevance,
    PassagesSufficiency,
    SelfKnowledge,
)
from raisf.utils.errors import InputError

_KNOWN = (
    SelfKnowledge,
    AnswerTruth,
    PassageRelevance,
    ListwiseRelevance,
    PassagesSufficiency,
    Decomposition,
    DirectAnswer,
    GroundedAnswer,
    PassageAnswer,
    ComposedAnswer,
)
JUDGED = {
    SelfKnowledge: "know",
    AnswerTruth: "know",
    PassageRelevance: "relevance",
    ListwiseRelevance: "relevance",
    PassagesSufficiency: "sufficiency",
}
"""By signature of a judge that gives verdicts, what they are about."""


def judges_of(program: dspy.Module) -> set[str]:
    """What a program has judges for: "know", "relevance", "sufficiency", "decomposition"."""
    judged = {**JUDGED, Decomposition: "decomposition"}
    roles = [role_of(predictor) for _, predictor in program.named_predictors()]
    return {judged[role] for role in roles if role in judged}


def role_of(predictor: Any) -> Any:
    """The signature of ours whose fields the predictor has; None if there is none."""
    return next((known for known in _KNOWN if _fields(known) == _fields(predictor.signature)), None)


def predictor_of(program: dspy.Module, *roles: Any) -> Any:
    """The program's first predictor in one of the roles.

    Raises:
        InputError: It has none.
    """
    for _, predictor in program.named_predictors():
        if role_of(predictor) in roles:
            return predictor
    name = getattr(program, "system", type(program).__name__)
    more = " with --sufficiency" if roles == (PassagesSufficiency,) else ""
    raise InputError(f"{name} has no predictor of {roles[0].__name__}: take a program that has, such as ra-isf{more}")


def _fields(signature: Any) -> tuple[list[str], list[str]]:
    return list(signature.input_fields), list(signature.output_fields)
