"""A recursive program of a user's own, with a judge of its own: it halves a number until it is small."""

from typing import Any, Literal

import dspy


class Count(dspy.Signature):
    """Say whether the number is small enough to count down at once."""

    number: int = dspy.InputField()
    verdict: Literal["small", "large"] = dspy.OutputField()


class Half(dspy.Signature):
    """Halve the number, rounding down."""

    whole: int = dspy.InputField()
    half: int = dspy.OutputField()


class Halving(dspy.Module):
    """Counts the steps; `least` is an option that it takes."""

    def __init__(self, least: int = 0) -> None:
        super().__init__()
        self.least = least
        self.judge = dspy.Predict(Count)
        self.halve = dspy.Predict(Half)

    def forward(self, number: int) -> dspy.Prediction:
        return dspy.Prediction(steps=self._steps(number))

    def _steps(self, number: int) -> int:
        if self.judge(number=number).verdict == "small":
            return 0
        return 1 + self._steps(self.halve(whole=number).half)


def counts(fields: dict[str, Any]) -> dict[str, Any]:
    """What a scripted LM says: all of it right."""
    if "whole" in fields:
        return {"half": int(fields["whole"]) // 2}
    return {"verdict": "small" if int(fields["number"]) < 4 else "large"}


def numbers(*given: int, wrong: tuple[int, ...] = ()) -> list[dspy.Example]:
    """Numbers and their steps, which are nobody's for those in `wrong`."""
    return [
        dspy.Example(number=n, steps=-1 if n in wrong else max(0, n.bit_length() - 2)).with_inputs("number")
        for n in given
    ]


def right(example: Any, prediction: Any, steps: Any = None) -> float:
    return float(prediction.steps == example.steps)
