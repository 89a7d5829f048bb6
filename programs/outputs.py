"""What an LM's outputs must be beyond their types, so that nothing is taken for a verdict that is none."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import dspy
from pydantic.fields import FieldInfo

from raisf.lm.lists import ASKS
from raisf.programs.questions import refuses


def sensible(predictor: dspy.Predict, prediction: dspy.Prediction, inputs: Mapping[str, Any]) -> bool:
    """Whether the outputs of a call can be what was asked for.

    The last one that must say something is there, which an adapter of the user's own may leave out where it cannot
    read. Of the numbers of passages that are listed one must be a passage's that was shown ("2024" is none); a
    sub-question must not be a refusal to ask any, but at the end of a list of questions ("No further questions.").
    """
    signature: Any = predictor.signature
    outputs = signature.output_fields
    needed = [name for name, field in outputs.items() if field.is_required() and not _may_be_none(field)]
    if needed and prediction.get(needed[-1]) is None:
        return False
    passages = inputs.get("passages")
    for name, value in prediction.items():
        if not isinstance(value, list):
            continue
        if name == "sub_questions" and not _asks(value):
            return False
        numbers = [number for number in value if isinstance(number, int)]
        if passages is not None and numbers and not any(1 <= number <= len(passages) for number in numbers):
            return False
    return True


def _may_be_none(field: FieldInfo) -> bool:
    kind: Any = field.annotation
    return not {Any, None, type(None)}.isdisjoint((kind, *get_args(kind)))


def _asks(texts: Sequence[object]) -> bool:
    """Whether none of these declines to ask a question, but for what ends a list of questions."""
    refusals = [refuses(text) for text in texts]
    if not any(refusals):
        return True
    questions = texts[: refusals.index(True)]
    asked = bool(questions) and all(str(text).rstrip(" *`\"'").endswith(ASKS) for text in questions)
    return asked and all(refusals[len(questions) :])
