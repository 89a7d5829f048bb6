"""The options of `raisf compile` that fit thresholds and the confidence, after whatever else was learnt."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from raisf.commands.command import option
from raisf.commands.options import as_one
from raisf.commands.values import names, not_negative
from raisf.experiments.opening import given
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.optimize.optimizers.calibrate import Calibrate


@dataclass(frozen=True, slots=True)
class CalibrationChoice:
    """What `--calibrate` was told; no aim and no kinds: not to calibrate. Kinds of know to try; (): all of them."""

    aim: Any
    kinds: tuple[Any, ...] | None
    call_price: float | None
    search_price: float | None
    scale_confidence: bool

    @property
    def prices(self) -> dict[str, Any]:
        """What calls and searches cost, as far as it was given."""
        return given({"call_price": self.call_price, "search_price": self.search_price})

    def optimizer(self, how: str, labels: Any, threads: int) -> "Calibrate | None":
        """What calibrates; None where nothing does.

        Raises:
            InputError: There is a price, and nothing that weighs costs.
        """
        if self.prices and self.aim != "cost" and how != "outcome":
            shown = next(iter(self.prices)).replace("_", "-")
            raise InputError(f"--{shown} is for --calibrate cost and --how outcome: leave it out, or take one of them")
        if self.aim is None and self.kinds is None:
            return None
        from raisf.optimize.optimizers.calibrate import Calibrate
        from raisf.optimize.optimizers.kinds_of_know import KINDS

        prices = self.prices if self.aim == "cost" else {}
        know = () if self.kinds is None else self.kinds or KINDS
        return Calibrate(aim=self.aim or "answer", know=know, labels=labels, threads=threads, **prices)

    def by_default(self, program: Any, asked: str | None) -> tuple[Any, ...]:
        """Which kinds of self-knowledge are tried where nobody says so: the paper's, and the answer's own probability.

        Neither was better on all data (docs/results/judges.md), so the dev split decides. Who asks for a kind, or has a
        program of another, has chosen; and thresholds that are fitted on verdicts compare no answers.

        Args:
            program: An RA-ISF.
            asked: The kind on the command line.
        """
        free = self.kinds is None and asked is None and self.aim in ("answer", "cost")
        return ("verbal", "confidence") if free and program.use_know and program.self_knowledge == "verbal" else ()

    def check_confidence(self, valset: Any) -> None:
        """Tells, before anything is learnt, of too few questions to calibrate the confidence on."""
        if self.scale_confidence:
            from raisf.optimize.confidence import check_enough

            check_enough(valset)

    def confident(self, compiled: Any, valset: Any, threads: int, metric: Any) -> Any:
        """The program with a confidence that says how often it is right, where that is wanted.

        Raises:
            InputError: Its confidence cannot be calibrated.
        """
        if not self.scale_confidence:
            return compiled
        from raisf.optimize.confidence import fit_confidence

        return fit_confidence(compiled, valset=valset, threads=threads, metric=metric)


_calibration = functools.partial(option, heading="calibration")
calibration_options = as_one(
    "calibration",
    CalibrationChoice,
    _calibration(
        "--calibrate",
        "aim",
        type=click.Choice(("answer", "cost", "accuracy", "balanced")),
        is_flag=False,
        flag_value="answer",
        metavar="[AIM]",
        help="afterwards fit the judges' thresholds on the dev split: for right answers (answer, the default "
        "AIM), for right answers less their cost (cost), or for right verdicts if that costs no answers "
        "(accuracy, or balanced over both verdicts). A threshold is changed only if the gain is beyond "
        "chance. Without --know, answer and cost try verbal and confidence and keep the better one",
    ),
    _calibration(
        "--choose-know",
        "kinds",
        type=names,
        is_flag=False,
        flag_value="",
        metavar="[KINDS]",
        help="also try each kind of --know, or those named (such as verbal,truth), each with its own thresholds; "
        "keep the one with the best answers on the dev split (less their cost with AIM cost), or of equally "
        "good ones the cheaper. Kinds that the LM cannot do are left out. AIM is answer if --calibrate is "
        "not given",
    ),
    _calibration(
        "--call-price",
        type=not_negative,
        metavar="P",
        help="for --calibrate cost and --how outcome: what an LM call costs, in right answers; default: 0.01",
    ),
    _calibration(
        "--search-price",
        type=not_negative,
        metavar="P",
        help="for --calibrate cost and --how outcome: what a search costs, in right answers; default: 0",
    ),
    _calibration(
        "--calibrate-confidence",
        "scale_confidence",
        is_flag=True,
        help="afterwards scale the answers' confidence so that on the dev split it equals the share of right answers",
    ),
)
"""What is fitted after compiling; a command takes it as `calibration`."""
