"""Compiling by name: which optimizer each way and strategy is."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from raisf.optimize.optimizers.calibrate import Calibrate
from raisf.optimize.optimizers.few_shot import BootstrapJudges, LabeledJudges, RandomSearch
from raisf.optimize.optimizers.finetune import FinetuneJudges
from raisf.optimize.optimizers.fit_skr import FitSKR
from raisf.optimize.optimizers.gepa import GEPA
from raisf.optimize.optimizers.lsr import TuneRetriever
from raisf.optimize.optimizers.mipro import MIPRO
from raisf.optimize.optimizers.outcome import OutcomeJudges
from raisf.optimize.optimizers.probe import ProbeJudges
from raisf.optimize.optimizers.together import Together
from raisf.utils.checks import check_named
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
    "outcome": OutcomeJudges,
    "both": Together,
    "probe": ProbeJudges,
    "thresholds": Calibrate,
    "retriever": TuneRetriever,
    "skr": FitSKR,
}
_KINDS: dict[str, Any] = {**PROMPTS, **OTHERS}


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
        valset: What the result is chosen or stopped by; shares no question with the training set. What compares
            nothing does without: "labeled", "bootstrap" and "skr".
        how: "prompts", "weights" (`FinetuneJudges`), "probe" (`ProbeJudges`), "outcome" (`OutcomeJudges`), "both"
            (`Together`), "thresholds" (`Calibrate`), "retriever" (`TuneRetriever`), or "skr" (`FitSKR`).
        strategy: Of both: the steps, such as "p -> w"; what compiles to prompts is then `prompts=`, a strategy of
            these. Of prompts: "labeled" (`LabeledJudges`, the default), "bootstrap" (`BootstrapJudges`), "random"
            (`RandomSearch`), "mipro" (`MIPRO`) or "gepa" (`GEPA`).
        teacher: See `raisf.optimize.optimizers.base.Optimizer.compile`.
        **options: The optimizer's own; of both, those of the two optimizers, each where it is known.

    Raises:
        InputError: Unknown how or strategy, an option that the optimizer does not have; and what that complains of.
        LMError: The LM failed on ten questions in a row, or most of its replies cannot be read.
    """
    optimizer: Any = optimizer_named(how, strategy, **options)
    return optimizer.compile(program, trainset=trainset, valset=valset, teacher=teacher)


def optimizer_named(how: str = "prompts", strategy: str | None = None, /, **options: Any) -> Teleprompter:
    """The optimizer of a way and a strategy.

    Raises:
        InputError: There is none of that name, or it has no such option.
    """
    check_named("how", how, ["prompts", *OTHERS])
    if how == "both":
        return _together(options if strategy is None else {"strategy": strategy, **options})
    if how != "prompts" and strategy is not None:
        raise InputError(f"strategy (--strategy) is for how='prompts', not for {how}: leave it out")
    name = how if how != "prompts" else _strategy(strategy)
    _check(name, options, _options_of(name))
    return _KINDS[name](**options)


def _together(options: dict[str, Any]) -> Together:
    """What compiles both ways, its options sorted into its own and those of its two parts."""
    prompts, own = _strategy(options.pop("prompts", None)), _options_of("both")
    parts = {letter: name for letter, name in {"p": prompts, "w": "weights"}.items() if letter not in options}
    _check("both", options, own.union(*(_options_of(name) for name in parts.values())))
    made = {
        letter: _KINDS[name](**{option: options[option] for option in options.keys() & _options_of(name)})
        for letter, name in parts.items()
    }
    return Together(**{option: options[option] for option in options.keys() & own}, **made)


def _strategy(name: str | None) -> str:
    if name is not None:
        check_named("strategy", name, PROMPTS)
    return name or "labeled"


def _options_of(name: str) -> set[str]:
    return {field.name for field in fields(_KINDS[name])}


def _check(name: str, options: dict[str, Any], known: set[str]) -> None:
    for option in options:
        if option in known:
            continue
        of = [other for other in _KINDS if option in _options_of(other)]
        if not of:
            raise InputError(f"{name} has no option {option!r}: choose {', '.join(sorted(known))}")
        told = " and ".join(filter(None, (", ".join(of[:-1]), of[-1])))
        raise InputError(f"{option} (--{option.replace('_', '-')}) is for {told}, not for {name}: leave it out")
