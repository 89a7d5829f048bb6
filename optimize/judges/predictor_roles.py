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
    """What a program has judges for: "know", "relevance", "sufficiency", "decomposition"; also where they reason."""
    judged = {**JUDGED, Decomposition: "decomposition"}
    signatures = [predictor.signature for _, predictor in program.named_predictors()]
    alike = (role for role in judged for one in signatures if _fields(one) == _fields(role) or _reasons(one, role))
    return {judged[role] for role in alike}


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
    for place, predictor in program.named_predictors():
        if any(_reasons(predictor.signature, role) for role in roles):
            raise InputError(
                f"{place} of {name} reasons first: measured and compiled is a dspy.Predict of {roles[0].__name__}"
            )
    more = " with --sufficiency" if roles == (PassagesSufficiency,) else ""
    raise InputError(f"{name} has no predictor of {roles[0].__name__}: take a program that has, such as ra-isf{more}")


def _reasons(signature: Any, role: Any) -> bool:
    """Whether a predictor has a role's fields, and a reasoning before its output."""
    inputs, outputs = _fields(signature)
    return outputs[:1] == ["reasoning"] and (inputs, outputs[1:]) == _fields(role)


def _fields(signature: Any) -> tuple[list[str], list[str]]:
    return list(signature.input_fields), list(signature.output_fields)
