"""Compiling by name: which optimizer each way and strategy is."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import dspy
from dspy.teleprompt import Teleprompter

from raisf.optimize.optimizers.calibrate import Calibrate
from raisf.optimize.optimizers.few_shot import BootstrapJudges, LabeledJudges, RandomSearch
from raisf.optimize.optimizers.finetune import FinetuneJudges
from raisf.optimize.optimizers.fit_skr import FitSKR
from raisf.optimize.optimizers.gepa import GEPA
from raisf.optimize.optimizers.lsr import TuneRetriever
from raisf.optimize.optimizers.mipro import MIPRO
from raisf.optimize.optimizers.probe import ProbeJudges
from raisf.utils.errors import InputError

PROMPTS: dict[str, type[Teleprompter]] = {
    "labeled": LabeledJudges,
    "bootstrap": BootstrapJudges,
    "random": RandomSearch,
    "mipro": MIPRO,
    "gepa": GEPA,
}
OTHERS: dict[str, type[Teleprompter]] = {
    "weights": FinetuneJudges,
    "probe": ProbeJudges,
    "thresholds": Calibrate,
    "retriever": TuneRetriever,
    "skr": FitSKR,
}


def compile(
    program: dspy.Module,
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example] | None = None,
    how: str = "prompts",
    strategy: str | None = None,
    teacher: dspy.Module | None = None,
    **options: Any,
) -> Any:
    """A copy of the program that has learnt from the training set, with a `compile_report`.

    The same as making the optimizer and calling its `compile`.

    Args:
        program: With its LMs (or DSPy's settings) and its retriever; stays as it is.
        trainset: What is learnt comes from it alone.
        valset: What the result is chosen or stopped by; shares no question with the training set. Only "skr" does
            without.
        how: "prompts", "weights" (`FinetuneJudges`), "probe" (`ProbeJudges`), "thresholds" (`Calibrate`), "retriever"
            (`TuneRetriever`), or "skr" (`FitSKR`).
        strategy: Of prompts: "labeled" (`LabeledJudges`, the default), "bootstrap" (`BootstrapJudges`), "random"
            (`RandomSearch`), "mipro" (`MIPRO`) or "gepa" (`GEPA`).
        teacher: See `raisf.optimize.optimizers.base.Optimizer.compile`.
        **options: The optimizer's own.

    Raises:
        InputError: Unknown how or strategy, an option that the optimizer does not have; and what that complains of.
        LMError: The LM failed on ten questions in a row, or most of its replies cannot be read.
    """
    optimizer: Any = optimizer_named(how, strategy, **options)
    if not valset and how != "skr":
        raise InputError("the validation set is missing or empty: what is learnt is judged on questions of its own")
    return optimizer.compile(program, trainset=trainset, valset=valset, teacher=teacher)


def optimizer_named(how: str = "prompts", strategy: str | None = None, /, **options: Any) -> Teleprompter:
    """The optimizer of a way and a strategy.

    Raises:
        InputError: There is none of that name, or it has no such option.
    """
    if how != "prompts" and how not in OTHERS:
        raise InputError(f"unknown how {how!r}: choose {', '.join(['prompts', *OTHERS])}")
    if how != "prompts" and strategy is not None:
        raise InputError(f"strategy (--strategy) is for how='prompts', not for {how}: leave it out")
    name = (strategy or "labeled") if how == "prompts" else how
    if how == "prompts" and name not in PROMPTS:
        raise InputError(f"unknown strategy {name!r}: choose {', '.join(PROMPTS)}")
    kinds = PROMPTS | OTHERS
    has = {name: {field.name for field in fields(cast(Any, kind))} for name, kind in kinds.items()}
    for option in options:
        if option not in has[name]:
            of = [other for other in kinds if option in has[other]]
            if not of:
                raise InputError(f"{name} has no option {option!r}: choose {', '.join(sorted(has[name]))}")
            raise InputError(
                f"{option} (--{option.replace('_', '-')}) is for {' and '.join(of)}, not for {name}: leave it out"
            )
    kind: Any = kinds[name]
    return kind(**options)
