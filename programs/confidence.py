"""How sure an answer is, worked out along the way that it came, and how sure it must be to be given."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import dspy

from raisf.evaluation.confidence import log_odds, path_confidence
from raisf.lm.likelihood import ASKED, gives_logprobs
from raisf.programs.questions import UNKNOWN

if TYPE_CHECKING:
    from raisf.programs.trace import Node

Source = Literal["judges", "path"]

# What a probability of 0 or 1 counts as where log-odds are taken: an answer that no passage holds is not impossible.
EDGE = 1e-4


@dataclass(frozen=True, slots=True)
class Confidence:
    """How a program's answers get their confidence, and which of them it keeps back.

    Attributes:
        source: "judges": the weakest judgement on the way. "path": the product of the judgements and of the LM's own
            probability of each answer on the way; see `raisf.evaluation.confidence`.
        slope: Of Platt's scaling, in log-odds: the confidence is sigmoid(slope * log-odds + offset).
        offset: Likewise. 1 and 0 leave it as it is.
        least: An answer with less confidence is kept back; one whose confidence nobody knows is given.

    Source:
        Platt 1999 for the scaling. Geifman and El-Yaniv 2017 for keeping answers back.
    """

    source: Source = "judges"
    slope: float = 1.0
    offset: float = 0.0
    least: float = 0.0

    def asks(self, lm: dspy.BaseLM) -> dict[str, Any]:
        """The arguments of a call, besides its inputs, that have the LM tell how likely it finds its answer."""
        return {"config": ASKED} if self.source == "path" and gives_logprobs(lm) else {}

    def conclude(self, root: "Node") -> None:
        """Give the question that was asked its confidence, and keep its answer back where that is too low."""
        if root.answer == UNKNOWN:
            return
        if (self.source, self.slope, self.offset) != ("judges", 1.0, 0.0):
            found = path_confidence(root) if self.source == "path" else root.confidence
            root.computed_confidence = None if found is None else self.scaled(found)
        if (found := root.confidence) is not None and found < self.least:
            reason = f"withheld: {found:.2f} confident of {root.answer!r} ({root.reason}), below {self.least:g}"
            root.end("withheld", reason)

    def scaled(self, confidence: float) -> float:
        """The confidence as a share of right answers, in [0, 1]."""
        if (self.slope, self.offset) == (1.0, 0.0):
            return confidence
        # A steep scaling of a small confidence is 0, and no number too large for a float.
        return 1 / (1 + math.exp(min(-(self.slope * log_odds(confidence, EDGE) + self.offset), 700.0)))
