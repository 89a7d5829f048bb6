"""`raisf compile`."""

import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from raisf.commands.calibrating import CalibrationChoice, calibration_options
from raisf.commands.command import command, option
from raisf.commands.optimizing import PromptChoice, WeightsChoice, prompt_options, weights_options
from raisf.commands.options import (
    ProgramChoice,
    TeacherChoice,
    labels_option,
    lm_options,
    program_options,
    seed_option,
    teacher_options,
    threads_option,
)
from raisf.commands.result import CommandResult, facts_view
from raisf.commands.values import FILE
from raisf.commands.ways import WaysChoice, ways_options
from raisf.experiments import own
from raisf.experiments.opening import ZERO_SHOT, LMChoice, given
from raisf.utils.errors import InputError, RaisfError

logger = logging.getLogger(__name__)

_FITTED = {  # by what a report calls it: the numbers, what they are, and the option that fits them
    "calibration": (
        ("know_threshold", "relevance_threshold", "sufficiency_threshold"),
        "thresholds were",
        "--calibrate",
    ),
    "confidence": (
        ("confidence_slope", "confidence_offset"),
        "slope and offset of the confidence were",
        "--calibrate-confidence",
    ),
}


@command(
    "compile",
    "  raisf compile --train worlds/home/train.jsonl --dev worlds/home/dev.jsonl \\\n"
    "      --index indexes/home --out artifacts/a\n"
    "  raisf compile --strategy random --train train.jsonl --dev dev.jsonl --index indexes/mine --out artifacts/b\n"
    "  raisf compile --how weights --train train.jsonl --dev dev.jsonl --index indexes/mine --out artifacts/c\n"
    "  raisf compile --how weights --train-predictors all --layers 20 --train train.jsonl --dev dev.jsonl \\\n"
    "      --index indexes/mine --out artifacts/d\n"
    "  raisf compile --how weights --program smollm2 --go-on --train-predictors relevant,answer_from --epochs 2 \\\n"
    "      --train train.jsonl --dev dev.jsonl --index indexes/mine --out artifacts/mine\n"
    "  raisf compile --how probe --train train.jsonl --dev dev.jsonl --index indexes/mine --out artifacts/e\n"
    "  raisf compile --how outcome --rows 200 --train train.jsonl --dev dev.jsonl --index indexes/mine \\\n"
    "      --out artifacts/f\n"
    "  raisf compile --how both --sequence 'p -> w' --train train.jsonl --dev dev.jsonl --index indexes/mine \\\n"
    "      --out artifacts/g",
    resume="no artifact was written; run the same command again to go on where it stopped",
)
@ways_options
@option(
    "--train", type=FILE, required=True, metavar="FILE", help="training questions (JSON or JSON Lines: docs/formats.md)"
)
@option("--dev", type=FILE, required=True, metavar="FILE", help="questions to select on; never trained on")
@option("--out", type=FILE, required=True, metavar="DIR", help="the artifact's folder")
@labels_option()
@threads_option
@seed_option
@prompt_options
@weights_options
@option(
    "--rows-from",
    type=FILE,
    multiple=True,
    metavar="DIR",
    help="a folder made by raisf collect; the judges learn from its rows instead of gold. Give it again for "
    "one made from --dev",
)
@teacher_options
@calibration_options
@program_options
@lm_options
def compile_command(
    train: Path,
    dev: Path,
    out: Path,
    labels: Any,
    threads: int,
    seed: int,
    rows_from: tuple[Path, ...],
    ways: WaysChoice,
    prompts: PromptChoice,
    weights: WeightsChoice,
    teacher: TeacherChoice,
    calibration: CalibrationChoice,
    choice: ProgramChoice,
    lm: LMChoice,
) -> CommandResult:
    """Compile a program on a training split, select on a dev split, and save the result as an artifact."""
    from raisf.data.questions import load_questions
    from raisf.optimize.adapters import check_bases_apart
    from raisf.optimize.artifact import check_folder
    from raisf.optimize.judges.judge_rows import JudgeRows, judged_program
    from raisf.optimize.optimizers.base import counting
    from raisf.optimize.optimizers.selection import metric_for
    from raisf.optimize.teaching import teach_for
    from raisf.utils.journal import ending_together

    check_folder(out)
    _check_rows(ways.how, rows_from, teacher)
    optimizer = _optimizer(ways, prompts, weights, calibration, {"labels": labels, "seed": seed, "threads": threads})
    _check_apart(out, optimizer.work)
    labeller = teacher.open()
    learners = [optimizer.p, optimizer.w] if ways.how == "both" else [optimizer]
    thresholds = calibration.optimizer(ways.how, labels, threads)
    trainset, valset = load_questions(train), load_questions(dev)
    calibration.check_confidence(valset)
    metric = metric_for([*trainset, *valset])
    for one in (optimizer, *learners, *([thresholds] if thresholds is not None else [])):
        one.metric = metric
    if choice.program is None:
        choice = replace(choice, program=ZERO_SHOT)  # what is compiled is not yet so
    program = choice.open(lm, questions=trainset)
    check_bases_apart(program, optimizer.bases(program), out)
    if thresholds is not None:
        found = thresholds.check(program, valset)
        thresholds.know = thresholds.know or calibration.by_default(found, choice.know)
    again = {"calibration": thresholds is not None, "confidence": calibration.scale_confidence}
    _tell_of_fitted(program, choice, again)
    rows = None
    if rows_from:
        judged_program(program)
        rows = JudgeRows.read(*rows_from)
    fits: dict[str, Callable[[Any], Any]] = {}
    if thresholds is not None:
        fits["thresholds are not fitted"] = partial(thresholds.compile, trainset=trainset, valset=valset)
    fits["confidence is not calibrated"] = partial(calibration.confident, valset=valset, threads=threads, metric=metric)
    with counting() as spent, ending_together():
        if labeller is not None:
            rows = teach_for(learners[-1], program, labeller, trainset, valset)
        for learner in learners if rows is not None else []:
            learner.judge_rows = rows
        compiled = optimizer.compile(program, trainset=trainset, valset=valset)
        compiled = _fitted(compiled, fits, out, spent)
    return _result(out, compiled.compile_report, str(choice.program))


def _check_apart(out: Path, work: Path | str) -> None:
    """Tells at once of a folder that could not be replaced in the end, as what is found on the way lies in it."""
    if Path(work).resolve().is_relative_to(out.resolve()):
        raise InputError(f"{out} is where compiling keeps what it finds on its way ({work}): give another folder")


def _tell_of_fitted(program: Any, choice: ProgramChoice, again: Mapping[str, bool]) -> None:
    """Warns of numbers that were fitted to judges that will be others, and are neither given nor fitted again."""
    from raisf.optimize.within import programs_within
    from raisf.programs.ra_isf import RAISF
    from raisf.programs.registry import defaults

    report = getattr(program, "compile_report", None) or {}
    usual, told = defaults(RAISF), given({**asdict(choice), **dict(choice.switches)})
    within = [one for one in programs_within(program) if isinstance(one, RAISF)]
    for kept, (numbers, what, remedy) in _FITTED.items():
        fitted = any(kept in one for one in (report, *report.get("earlier", ())))
        stay = any(getattr(one, name) != usual[name] for one in within for name in set(numbers) - told.keys())
        if fitted and stay and not again[kept]:
            logger.warning("the program's %s fitted to what it was before, and stay so: add %s", what, remedy)


def _check_rows(how: str, rows_from: tuple[Path, ...], teacher: TeacherChoice) -> None:
    """Tells of rows that are asked for twice, or of a way that makes its own."""
    if rows_from and teacher.teacher is not None:
        raise InputError("--rows-from and --teacher: rows come from the one or the other; leave one out")
    if how == "outcome" and (rows_from or teacher.teacher is not None):
        raise InputError("--rows-from and --teacher give rows, and --how outcome makes its own: leave them out")


def _optimizer(
    ways: WaysChoice,
    prompts: PromptChoice,
    weights: WeightsChoice,
    calibration: CalibrationChoice,
    common: dict[str, Any],
) -> Any:
    """The optimizer that the command line asks for.

    Raises:
        InputError: It has an option that this way of compiling does not have.
    """
    from raisf.optimize.compile import optimizer_named

    strategy, options = ways.options(prompts.strategy)
    options |= {**prompts.options, **weights.options(ways.how, ways.by, common["seed"]), **common}
    if ways.how == "outcome":
        options |= calibration.prices
    return optimizer_named(ways.how, strategy, **options)


def _fitted(compiled: Any, fits: Mapping[str, Callable[[Any], Any]], out: Path, spent: Any) -> Any:
    """The compiled program with all that is to be fitted, saved; stopped, it is saved as far as that came.

    Args:
        compiled: With its `compile_report`.
        fits: By what to say where that fails, what makes a fitted program of one; in order.
        out: The artifact's folder.
        spent: Counts what all of it costs.
    """
    from raisf.optimize.artifact import save

    for missing, fit in fits.items():
        try:
            compiled = fit(compiled)
        except (KeyboardInterrupt, RaisfError) as error:
            compiled.compile_report |= spent.told()
            save(compiled, out)  # what was paid for is kept
            if isinstance(error, RaisfError):
                raise RaisfError(f"{out} holds the program as it was compiled, but its {missing}: {error}") from error
            held = f"stopped while calibrating: {out} holds the program as it was compiled"
            raise KeyboardInterrupt(f"{held}; run the same command again to calibrate it") from None
    compiled.compile_report |= spent.told()
    save(compiled, out)
    return compiled


def _result(out: Path, report: dict[str, Any], program: str) -> CommandResult:
    """What compiling `program` came to."""
    from rich.console import Group, RenderableType

    from raisf.reports import compiled as told

    view: list[RenderableType] = told.compiled_view(report)
    if "calibration" in report:
        view.append(told.calibration_view(report["calibration"]))
    if "confidence" in report:
        view.append(told.confidence_view(report["confidence"]))
    view += [*told.judge_rows_view(report), *told.unlabelled_lines(report)]
    facts = {"out": str(out), "seconds": report["seconds"], "LM calls": report["lm_calls"]}
    if report.get("resumed"):
        facts["counted"] = "the rest alone: an earlier run had made a part of it, which is not among them"
    view.append(facts_view(facts, f"raisf eval --program {shlex.quote(own.artifact_name(program, out))} --test FILE"))
    return CommandResult({"out": str(out), **report}, Group(*view))
