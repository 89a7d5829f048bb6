"""`raisf compile`."""

import functools
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from raisf.commands.calibrating import CalibrationChoice, calibration_options
from raisf.commands.command import command, option
from raisf.commands.options import (
    ProgramChoice,
    TeacherChoice,
    as_one,
    labels_option,
    lm_options,
    program_options,
    seed_option,
    teacher_options,
    threads_option,
)
from raisf.commands.result import CommandResult, facts_view
from raisf.commands.values import FILE, at_least, not_negative
from raisf.commands.ways import WaysChoice, ways_options
from raisf.experiments import own
from raisf.experiments.opening import ZERO_SHOT, LMChoice, given
from raisf.utils.errors import InputError, RaisfError

WRITES = ("mipro", "gepa")
PROBED = ("base", "train_predictors", "rows")
"""The options of `--how weights` that a probe has too."""


@dataclass(frozen=True, slots=True)
class PromptChoice:
    """What `--how prompts` was told; None: not given."""

    strategy: str | None
    demos: int | None
    candidates: int | None
    trials: int | None
    reflection_lm: str | None
    reflection_api_base: str | None

    @property
    def options(self) -> dict[str, Any]:
        """The options of the optimizers that compile to prompts, as far as they were given.

        Raises:
            InputError: An option that the strategy does not have, or an LM that cannot be opened.
        """
        written = {
            "trials": self.trials,
            "reflection_lm": self.reflection_lm,
            "reflection_api_base": self.reflection_api_base,
        }
        if (told := given(written)) and self.strategy not in WRITES:
            shown = next(iter(told)).replace("_", "-")
            raise InputError(f"--{shown} is for --strategy {' and '.join(WRITES)}: leave it out, or take one of them")
        if self.reflection_api_base is not None and self.reflection_lm is None:
            raise InputError("--reflection-api-base without --reflection-lm: give openai/MODEL too")
        return given(
            {"demos": self.demos, "candidates": self.candidates, "trials": self.trials, "reflection_lm": self._writer()}
        )

    def _writer(self) -> Any:
        if self.reflection_lm is None:
            return None
        from raisf.optimize.optimizers.few_shot import REFLECTION_TOKENS

        return LMChoice(self.reflection_lm, self.reflection_api_base, max_tokens=REFLECTION_TOKENS).open()


@dataclass(frozen=True, slots=True)
class WeightsChoice:
    """What `--how weights` or `--how probe` was told; None: not given."""

    base: str | None
    train_predictors: str | None
    rows: int | None
    layers: int | None
    learning_rate: float | None
    epochs: int | None
    batch_size: int | None
    rank: int | None
    full: bool
    processes: int | None
    go_on: bool

    def options(self, how: str, by: str | None, seed: int) -> dict[str, Any]:
        """The options of `raisf.FinetuneJudges` or `raisf.ProbeJudges`, as far as they were given.

        Raises:
            InputError: One of them was given for another way, or cannot be used.
        """
        told = given(asdict(self) | {"full": self.full or None, "go_on": self.go_on or None})
        if how == "prompts" or by == "prompts":
            rows = given({"rows": told.pop("rows", None)}) if how == "outcome" else {}
            if told:
                name = next(iter(told))
                ways = f"weights{' and --how probe' * (name in PROBED)}"
                raise InputError(f"--{name.replace('_', '-')} is for --how {ways}: leave it out, or add that")
            return rows
        shared = given({"base": self.base, "predictors": self._predictors(), "rows": self.rows})
        if how == "probe" or by == "probe":
            if strange := [name for name in told if name not in PROBED]:
                raise InputError(f"--{strange[0].replace('_', '-')} is for --how weights: leave it out, or add that")
            return shared | {"seed": seed}
        from raisf.lm.finetune.training import Training

        if self.full and self.rank is not None:
            raise InputError("--rank is LoRA's, and --full trains all weights: leave one out")
        if self.full and self.layers is not None:
            raise InputError("--layers is LoRA's, and --full trains all weights: leave one out")
        if self.go_on and (kept := [one for one in ("full", "rank", "layers", "base") if one in told]):
            raise InputError(
                f"--go-on keeps the adapters that the program has, and --{kept[0]} asks for others: leave one out"
            )
        names = ("rank", "layers", "learning_rate", "epochs", "batch_size", "processes", "go_on")
        settings = {name: told[name] for name in names if name in told}
        training = Training(method="full" if self.full else "lora", seed=seed, **settings)
        return shared | {"training": training}

    def _predictors(self) -> list[str] | str | None:
        if self.train_predictors in (None, "judges", "all"):
            return self.train_predictors
        return [name.strip() for name in self.train_predictors.split(",") if name.strip()]


_prompts = functools.partial(option, heading="prompts")
prompt_options = as_one(
    "prompts",
    PromptChoice,
    _prompts(
        "--strategy",
        type=click.Choice(("labeled", "bootstrap", "random", "mipro", "gepa")),
        help="demonstrations from gold labels, from the program's own right runs, or the best of several such "
        "draws on the dev split; mipro: with instructions that an LM proposes; gepa: instructions that an LM "
        "rewrites by what gold says was wrong; default: labeled",
    ),
    _prompts(
        "--demos",
        type=at_least(2),
        metavar="N",
        help="demonstrations a predictor at most; default: 4",
    ),
    _prompts(
        "--candidates",
        type=at_least(1),
        metavar="N",
        help="draws of random; draws and instructions that mipro chooses from; default: 6",
    ),
    _prompts(
        "--trials",
        type=at_least(1),
        metavar="N",
        help="what mipro and gepa may spend, in runs over the dev split; default: 20",
    ),
    _prompts(
        "--reflection-lm",
        metavar="SPEC",
        help="the LM that writes instructions for mipro and gepa, a strong one at best; default: the --lm",
    ),
    _prompts("--reflection-api-base", metavar="URL", help="its endpoint, as --api-base is the --lm's"),
)
_weights = functools.partial(option, heading="weights")
weights_options = as_one(
    "weights",
    WeightsChoice,
    _weights(
        "--base",
        metavar="SPEC",
        help="the local LM to train on, or whose states a probe reads: smollm2, pocket, pocket-tiny, pocket-t5, "
        "local/PATH_OR_HUB_ID or local/FILE.gguf; default: the --lm",
    ),
    _weights(
        "--train-predictors",
        metavar="NAMES",
        help="which learn: judges, as in the paper; all, the answerers too, from gold answers and passages; or names "
        "such as know,relevant,answer_from; probes are for those that give a label; default: judges",
    ),
    _weights(
        "--rows",
        type=at_least(2),
        metavar="N",
        help="examples per predictor at most; default: 1000, the paper's",
    ),
    _weights("--learning-rate", type=not_negative, metavar="R", help="default: 5e-4, the paper's"),
    _weights("--epochs", type=at_least(1), metavar="N", help="at most, early stopping ends it; default: 10"),
    _weights("--batch-size", type=at_least(1), metavar="N", help="rows a step; default: 16"),
    _weights("--rank", type=at_least(1), metavar="N", help="LoRA's; default: 16"),
    _weights(
        "--layers",
        type=at_least(1),
        metavar="N",
        help="only the upper N layers learn, which is faster: the backward pass ends below them; default: all",
    ),
    _weights("--full", is_flag=True, help="train all weights, a whole model a judge, instead of LoRA"),
    _weights(
        "--processes",
        type=at_least(1),
        metavar="N",
        help="that share the training through accelerate, a GPU each where there are GPUs; default: 1",
    ),
    _weights(
        "--go-on",
        is_flag=True,
        help="train the LoRA adapters that --program has further, instead of new ones on their base: such as those of "
        "smollm2 on questions of your own",
    ),
)


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
@option("--train", type=FILE, required=True, metavar="FILE", help="training questions (JSON or JSON Lines)")
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
    help="a folder made by raisf collect, whose rows the judges learn from instead of gold; again for one of --dev",
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
    """Compile a program against a training split, selecting on a dev split, and save it as an artifact."""
    from rich.console import Group, RenderableType

    from raisf.data.questions import load_questions
    from raisf.optimize.artifact import save
    from raisf.optimize.compile import optimizer_named
    from raisf.optimize.judges.judge_rows import JudgeRows, judged_program
    from raisf.optimize.optimizers.base import counting
    from raisf.optimize.optimizers.selection import metric_for
    from raisf.optimize.teaching import teach_for
    from raisf.reports import compiled as told
    from raisf.utils.files import check_replaceable
    from raisf.utils.journal import ending_together

    check_replaceable(out, "manifest.json")
    how, (strategy, options) = ways.how, ways.options(prompts.strategy)
    options |= {**prompts.options, **weights.options(how, ways.by, seed)}
    options |= {"labels": labels, "seed": seed, "threads": threads}
    if rows_from and teacher.teacher is not None:
        raise InputError("--rows-from and --teacher: rows come from the one or the other; leave one out")
    if how == "outcome":
        options |= calibration.prices
        if rows_from or teacher.teacher is not None:
            raise InputError("--rows-from and --teacher give rows, and --how outcome makes its own: leave them out")
    labeller = teacher.open()
    optimizer: Any = optimizer_named(how, strategy, **options)
    learners = [optimizer.p, optimizer.w] if how == "both" else [optimizer]
    thresholds = calibration.optimizer(how, labels, threads)
    trainset, valset = load_questions(train), load_questions(dev)
    metric = metric_for([*trainset, *valset])
    for one in (optimizer, *learners, *([thresholds] if thresholds is not None else [])):
        one.metric = metric
    if choice.program is None:
        choice = replace(choice, program=ZERO_SHOT)  # what is compiled is not yet so
    program = choice.open(lm, questions=trainset)
    if thresholds is not None:
        found = thresholds.check(program, valset)
        thresholds.know = thresholds.know or calibration.by_default(found, choice.know)
    rows = None
    if rows_from:
        judged_program(program)
        rows = JudgeRows.read(*rows_from)
    with counting() as spent, ending_together():
        if labeller is not None:
            rows = teach_for(learners[-1], program, labeller, trainset, valset)
        for learner in learners if rows is not None else []:
            learner.judge_rows = rows
        compiled: Any = optimizer.compile(program, trainset=trainset, valset=valset)
        missing = "thresholds are not fitted"
        try:
            if thresholds is not None:
                compiled = thresholds.compile(compiled, trainset=trainset, valset=valset)
            missing = "confidence is not calibrated"
            compiled = calibration.confident(compiled, valset, threads, metric)
        except (KeyboardInterrupt, RaisfError) as error:
            compiled.compile_report |= spent.told()
            save(compiled, out)  # what was paid for is kept
            if isinstance(error, RaisfError):
                raise RaisfError(f"{out} holds the program as it was compiled, but its {missing}: {error}") from error
            raise KeyboardInterrupt(f"stopped while calibrating: {out} holds the program as it was compiled") from None
        compiled.compile_report |= spent.told()  # of all of it
        save(compiled, out)
    report = compiled.compile_report
    facts = {"out": str(out), "seconds": report["seconds"], "LM calls": report["lm_calls"]}
    view: list[RenderableType] = told.compiled_view(report)
    if "calibration" in report:
        view.append(told.calibration_view(report["calibration"]))
    if "confidence" in report:
        view.append(told.confidence_view(report["confidence"]))
    view += [*told.judge_rows_view(report), *told.unlabelled_lines(report)]
    view.append(facts_view(facts, f"raisf eval --program {own.artifact_name(str(choice.program), out)} --test FILE"))
    return CommandResult({"out": str(out), **report}, Group(*view))
