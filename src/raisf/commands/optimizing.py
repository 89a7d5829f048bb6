"""The options of `raisf compile` that say how demonstrations are chosen and weights are trained."""

import functools
from dataclasses import asdict, dataclass
from typing import Any

import click

from raisf.commands.command import option
from raisf.commands.options import as_one
from raisf.commands.values import at_least, names, not_negative
from raisf.experiments.opening import LMChoice, given
from raisf.utils.errors import InputError

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
                raise _elsewhere(next(iter(told)))
            return rows
        shared = given({"base": self.base, "predictors": self._predictors(), "rows": self.rows})
        if how == "probe" or by == "probe":
            if strange := [name for name in told if name not in PROBED]:
                raise _elsewhere(strange[0])
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
        trained = ("rank", "layers", "learning_rate", "epochs", "batch_size", "processes", "go_on")
        settings = {name: told[name] for name in trained if name in told}
        training = Training(method="full" if self.full else "lora", seed=seed, **settings)
        return shared | {"training": training}

    def _predictors(self) -> list[str] | str | None:
        if self.train_predictors in (None, "judges", "all"):
            return self.train_predictors
        return list(names(self.train_predictors))


def _elsewhere(name: str) -> InputError:
    ways = f"weights{', probe' * (name in PROBED)} or both, or for outcome --by weights"
    if name == "rows":
        ways = "weights, probe, outcome or both"
    return InputError(f"--{name.replace('_', '-')} is for --how {ways}: leave it out, or add that")


_prompts = functools.partial(option, heading="prompts")
prompt_options = as_one(
    "prompts",
    PromptChoice,
    _prompts(
        "--strategy",
        type=click.Choice(("labeled", "bootstrap", "random", "mipro", "gepa")),
        help="labeled: demonstrations from gold labels; bootstrap: from the program's own right runs; random: "
        "the best of several such draws on the dev split; mipro: with instructions that an LM proposes; "
        "gepa: instructions that an LM rewrites after what gold says was wrong; default: labeled",
    ),
    _prompts(
        "--demos",
        type=at_least(2),
        metavar="N",
        help="at most this many demonstrations per predictor; default: 4",
    ),
    _prompts(
        "--candidates",
        type=at_least(1),
        metavar="N",
        help="how many draws random makes, or draws and instructions mipro chooses from; default: 6",
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
        help="the LM that writes instructions for mipro and gepa; take a strong one; default: the --lm",
    ),
    _prompts("--reflection-api-base", metavar="URL", help="the endpoint of --reflection-lm"),
)
_weights = functools.partial(option, heading="weights, outcome, both (a probe: --base, --train-predictors, --rows)")
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
        help="what learns: judges, as in the paper; all, the answerers too, from gold answers and passages; or "
        "names such as know,relevant,answer_from; only those that give a label can have probes; default: "
        "judges",
    ),
    _weights(
        "--rows",
        type=at_least(2),
        metavar="N",
        help="at most this many examples per predictor; default: 1000, the paper's",
    ),
    _weights("--learning-rate", type=not_negative, metavar="R", help="default: 5e-4, the paper's"),
    _weights("--epochs", type=at_least(1), metavar="N", help="at most; early stopping may end it before; default: 10"),
    _weights("--batch-size", type=at_least(1), metavar="N", help="rows per step; default: 16"),
    _weights("--rank", type=at_least(1), metavar="N", help="of the LoRA matrices; default: 16"),
    _weights(
        "--layers",
        type=at_least(1),
        metavar="N",
        help="train only the upper N layers, which is faster; default: all",
    ),
    _weights("--full", is_flag=True, help="train all weights, one whole model per judge, instead of LoRA"),
    _weights(
        "--processes",
        type=at_least(1),
        metavar="N",
        help="processes that share the training through accelerate, each with a GPU if there are GPUs; default: 1",
    ),
    _weights(
        "--go-on",
        is_flag=True,
        help="continue to train the LoRA adapters of --program, instead of new ones on their base: such as those "
        "of smollm2 on your own questions",
    ),
)
