"""What an LM's outputs must be beyond their types, so that nothing is taken for a verdict that is none."""

import re
from collections.abc import Mapping
from typing import Any

import dspy

from raisf.lm.labels import normal

# A reply that declines where sub-questions were asked for; one that ends in a question mark is a question.
_REFUSAL = re.compile(
    r"(?:sorry|unfortunately|unable|as an? (?:ai|language)|i(?:'m| am| can| could| do| will| would| was| have|'d)"
    r"|cannot|can'?t|n/?a\b|none\b|null\b|nothing|not (?:applicable|possible|needed|necessary|decomposable)"
    r"|no (?:sub|further|additional|other|follow|decomposition|need|more|questions?\b)|there (?:is|are) no"
    r"|(?:it|this|that|the (?:given )?question)\b.*"
    r"(?:cannot|can't|can not|n't|not |no |impossible|already|simple|atomic))",
    re.IGNORECASE,
)


def sensible(prediction: dspy.Prediction, inputs: Mapping[str, Any]) -> bool:
    """Whether the outputs of a call can be what was asked for.

    Of the numbers of passages that are listed one must be a passage's that was shown ("2024" is none); a sub-question
    must not be a refusal to ask any.
    """
    passages = inputs.get("passages")
    for name, value in prediction.items():
        if not isinstance(value, list):
            continue
        if name == "sub_questions" and any(refuses(text) for text in value):
            return False
        numbers = [number for number in value if isinstance(number, int)]
        if passages is not None and numbers and not any(1 <= number <= len(passages) for number in numbers):
            return False
    return True


def refuses(text: object) -> bool:
    """Whether a text in the place of a question declines to ask one."""
    said = normal(str(text)).strip(" \"'*`([])")
    return not said.endswith("?") and _REFUSAL.match(said) is not None
