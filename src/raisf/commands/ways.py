"""The options of `raisf compile` that say which way of compiling it is."""

from dataclasses import dataclass
from typing import Any

import click

from raisf.commands.command import option
from raisf.commands.options import as_one
from raisf.experiments.opening import given
from raisf.utils.errors import InputError


@dataclass(frozen=True, slots=True)
class WaysChoice:
    """Which way of compiling it is; None: not given."""

    how: Any
    by: str | None
    sequence: str | None

    def options(self, strategy: str | None) -> tuple[str | None, dict[str, Any]]:
        """The strategy of the way, and the options that are its own.

        Raises:
            InputError: An option of another way.
        """
        for name, value, way in (("by", self.by, "outcome"), ("sequence", self.sequence, "both")):
            if value is not None and self.how != way:
                raise InputError(f"--{name} is for --how {way}: leave it out, or add that")
        if self.how == "both":
            return self.sequence, given({"prompts": strategy})
        return strategy, given({"by": self.by})


ways_options = as_one(
    "ways",
    WaysChoice,
    option(
        "--how",
        type=click.Choice(("prompts", "weights", "probe", "outcome", "both")),
        default="prompts",
        help="prompts: few-shot demonstrations; weights: one LoRA adapter per judge, on one base; probe: one "
        "logistic regression per judge on the base's hidden states, in seconds; outcome: the judges learn "
        "from what their verdicts lead to, right answers less their cost; both: prompts and weights in "
        "turn; default: prompts",
    ),
    option(
        "--by",
        type=click.Choice(("weights", "probe", "prompts")),
        help="--how outcome: what the judges learn in; default: weights",
    ),
    option(
        "--sequence",
        metavar="STEPS",
        help="--how both: p for prompts and w for weights, such as 'p -> w'; default: 'p -> w -> p'",
    ),
)
"""Which way it is; a command takes it as `ways`."""
