"""Which predictor of a program does what: told by its fields, as its instructions may have been changed."""

from typing import Any, get_args

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

JUDGED = {
    SelfKnowledge: "know",
    AnswerTruth: "know",
    PassageRelevance: "relevance",
    ListwiseRelevance: "relevance",
    PassagesSufficiency: "sufficiency",
}
"""By signature of a judge that gives verdicts, what they are about."""
JUDGE_ROLES = {**JUDGED, Decomposition: "decomposition"}
"""By signature of a predictor that judges or decomposes, what its rows are called."""
_KNOWN = (*JUDGE_ROLES, DirectAnswer, GroundedAnswer, PassageAnswer, ComposedAnswer)


def judges_of(program: dspy.Module) -> set[str]:
    """What a program has judges for: "know", "relevance", "sufficiency", "decomposition"; also where they reason."""
    signatures = [predictor.signature for _, predictor in program.named_predictors()]
    judges = JUDGE_ROLES.items()
    return {judge for role, judge in judges for one in signatures if _alike(one, role) or _reasons(one, role)}


def decomposes_first(program: Any) -> bool:
    """Whether a program's decomposer is asked before any judge, and so about single questions, too."""
    return getattr(program, "decomposition", None) == "chains"


def role_of(predictor: Any) -> Any:
    """The signature of ours whose fields, and whose verdicts, the predictor has; None if there is none."""
    return next((known for known in _KNOWN if _alike(predictor.signature, known)), None)


def reasoned_role(predictor: Any) -> Any:
    """The signature of ours that a predictor answers after a reasoning, as its ChainOfThought does; None if none."""
    return next((known for known in _KNOWN if _reasons(predictor.signature, known)), None)


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
        if reasoned_role(predictor) in roles:
            raise InputError(
                f"{place} of {name} reasons first: measured and compiled is a dspy.Predict of {roles[0].__name__}"
            )
    more = " with --sufficiency" if roles == (PassagesSufficiency,) else ""
    raise InputError(f"{name} has no predictor of {roles[0].__name__}: take a program that has, such as ra-isf{more}")


def _reasons(signature: Any, role: Any) -> bool:
    """Whether a predictor has a role's fields and verdicts, and a reasoning before its output."""
    return list(signature.output_fields)[:1] == ["reasoning"] and _alike(signature.delete("reasoning"), role)


def _alike(signature: Any, role: Any) -> bool:
    return _fields(signature) == _fields(role) and _verdicts(role) in (set(), _verdicts(signature))


def _fields(signature: Any) -> tuple[list[str], list[str]]:
    return list(signature.input_fields), list(signature.output_fields)


def _verdicts(signature: Any) -> set[Any]:
    """The labels of a verdict: with others it is about something else, whatever it is called."""
    verdict = signature.output_fields.get("verdict")
    return set(get_args(verdict.annotation)) if verdict is not None else set()
