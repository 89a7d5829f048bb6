"""`raisf compile --how weights`: what its options mean to the room `optimize`, and what the training did."""

import argparse
from typing import Any

from rich.table import Table

from raisf.utils.errors import InputError


def weight_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of `raisf.FinetuneJudges`, as far as they were given.

    Raises:
        InputError: One of them was given for prompts, or cannot be used.
    """
    given = {name: getattr(arguments, name) for name in ("rank", "learning_rate", "epochs", "processes")}
    given = {name: value for name, value in given.items() if value is not None}
    others = {name: getattr(arguments, name) for name in ("base", "rows") if getattr(arguments, name) is not None}
    if arguments.how != "weights":
        if found := [*others, *given, *(["full"] if arguments.full else [])]:
            raise InputError(f"--{found[0].replace('_', '-')} is for --how weights: leave it out, or add that")
        return {}
    from raisf.lm.finetune.training import Training

    if arguments.full and "rank" in given:
        raise InputError("--rank is LoRA's, and --full trains all weights: leave one out")
    method = "full" if arguments.full else "lora"
    return {**others, "training": Training(method=method, seed=arguments.seed, **given)}


def show_training(report: dict[str, Any]) -> Table:
    """A row for each trained predictor: its rows, the validation before and after, and the cost."""
    columns = ("judge", "rows", "loss", "exact", "epoch", "tokens/s")
    table = Table(
        *columns, title="trained weights; loss and exact on the dev split, before → after", title_justify="left"
    )
    for name, made in report["predictors"].items():
        first, best = made["curve"][0], made["curve"][made["best_epoch"]]
        rows = ", ".join(f"{count} {what}" for what, count in made["rows"]["train"].items())
        table.add_row(
            name,
            rows,
            f"{first['loss']:.3f} → {best['loss']:.3f}",
            f"{first['exact']:.0%} → {best['exact']:.0%}",
            f"{made['best_epoch']}/{len(made['curve']) - 1}",
            f"{made['tokens_per_second']:,}",
        )
    for name, why in report["missing"].items():
        table.add_row(name, f"left to the base: {why}")
    return table
