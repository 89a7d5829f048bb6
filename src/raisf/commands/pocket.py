"""The commands about the pocket models: training one, and measuring what one can do."""

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from raisf.commands.outcome import Outcome
from raisf.utils.errors import InputError


def pocket(arguments: argparse.Namespace) -> Outcome:
    """Pretrains a pocket model, or reports what one can do."""
    return _train(arguments) if arguments.action == "train" else _report(arguments)


def _train(arguments: argparse.Namespace) -> Outcome:
    from raisf.lm.pocket.train import train

    if arguments.out is None:
        raise InputError("where should the weights go? give --out DIR")
    options = {name: getattr(arguments, name) for name in ("size", "tokens", "seed", "threads")}
    made = train(arguments.out, **options)
    title = (
        f"{arguments.out}: {made['parameters']:,} parameters, {made['tokens']:,} tokens in {made['seconds']:,} s\n"
        f"learning curves: {arguments.out / 'learning.png'}"
    )
    return Outcome({"out": str(arguments.out), **made}, _table(title, made["report"]))


def _report(arguments: argparse.Namespace) -> Outcome:
    from raisf.lm.local.inference import load_model
    from raisf.lm.pocket import WEIGHTS, path
    from raisf.lm.pocket.report import report
    from raisf.utils.files import read_json

    name = arguments.weights
    folder = path(name) if name in WEIGHTS else Path(name).expanduser()
    if not (folder / "manifest.json").is_file():
        names = ", ".join(WEIGHTS)
        raise InputError(f"{folder} holds no pocket model: give {names}, or a folder made by `raisf pocket train`")
    manifest = read_json(folder / "manifest.json")
    model, tokenizer = load_model(folder)
    measured = report(model, tokenizer, arguments.n, manifest["home"]["regions"])  # type: ignore[arg-type]
    title = f"{manifest['parameters']:,} parameters, {manifest['tokens']:,} tokens, seed {manifest['seed']}"
    return Outcome({"weights": str(folder), "report": measured}, _table(title, measured))


def _table(title: str, report: dict[str, dict[str, Any]]) -> Table:
    table = Table("skill", "right", "95% interval", "answer", "AUROC", title=title, title_justify="left")
    for skill, one in report.items():
        interval = f"[{one['low']:.1%}, {one['high']:.1%}]"
        answer = f"{one['answer']['right']:.1%}" if "answer" in one else ""
        table.add_row(skill, f"{one['right']:.1%}", interval, answer, f"{one['auroc']:.3f}" if "auroc" in one else "")
    n = next(iter(report.values()))["n"]
    table.caption = (
        f"n = {n} a skill, decoded greedily, on questions that training never asked; right: every word is; answer: the "
        "answer is, whatever was written before it"
    )
    return table
