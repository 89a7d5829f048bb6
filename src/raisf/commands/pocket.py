"""`raisf pocket`: trains a pocket model, or measures what one can do."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raisf.commands.command import GO_ON, Family, command, option
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, at_least
from raisf.lm.pocket import WEIGHTS
from raisf.lm.pocket.build import SIZES
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table


@command(
    "train",
    "  raisf pocket train --out models/pocket\n"
    "  raisf pocket train --size tiny --tokens 1000000 --out models/tiny\n"
    '  raisf ask "..." --program direct --lm local/models/pocket --adapter pocket',
    resume=GO_ON,
)
@option("--out", type=FILE, required=True, metavar="DIR", help="the weights' folder")
@option("--tokens", type=at_least(1), metavar="N", help="how many tokens it reads; default: depends on --size")
@option("--size", type=click.Choice(SIZES), default="pocket", help="default: pocket")
@option("--seed", type=int, default=0, metavar="N", help="seed of the weights and of all that is read; default: 0")
@option("--threads", type=at_least(1), default=2, metavar="N", help="CPU threads of the model; default: 2")
def pocket_train_command(out: Path, tokens: int | None, size: str, seed: int, threads: int) -> CommandResult:
    """Pretrain a pocket Llama or T5 from its recipe (an hour and a half on two cores)."""
    from raisf.lm.pocket.train import train

    made = train(out, size=size, tokens=tokens, seed=seed, threads=threads)
    title = (
        f"{out}: {made['parameters']:,} parameters, {made['tokens']:,} tokens in {made['seconds']:,} s\n"
        f"learning curves: {out / 'learning.png'}"
    )
    return CommandResult({"out": str(out), **made}, _table(title, made["report"]))


@command("report", "  raisf pocket report\n  raisf pocket report --weights pocket-t5")
@option("--weights", default="pocket", metavar="NAME", help=f"whose; {', '.join(WEIGHTS)} or a folder; default: pocket")
@option("--n", type=at_least(20), default=500, metavar="N", help="questions per skill; default: 500")
def pocket_report_command(weights: str, n: int) -> CommandResult:
    """Report what a pocket model can do, skill by skill."""
    from raisf.lm.local.inference import load_model
    from raisf.lm.pocket import path
    from raisf.lm.pocket.report import report
    from raisf.utils.files import expanded, read_json

    folder = path(weights) if weights in WEIGHTS else expanded(weights)
    manifest = read_json(folder / "manifest.json") if (folder / "manifest.json").is_file() else None
    if not isinstance(manifest, dict) or not {"home", "parameters", "tokens", "seed"} <= manifest.keys():
        names = ", ".join(WEIGHTS)
        raise InputError(f"{folder} holds no pocket model: give {names}, or a folder made by `raisf pocket train`")
    model, tokenizer = load_model(folder)
    measured = report(model, tokenizer, n, manifest["home"]["regions"])  # type: ignore[arg-type]
    title = f"{manifest['parameters']:,} parameters, {manifest['tokens']:,} tokens, seed {manifest['seed']}"
    return CommandResult({"weights": str(folder), "report": measured}, _table(title, measured))


pocket_command = Family(
    "pocket",
    [pocket_report_command, pocket_train_command],
    help="Pretrain a pocket Llama or T5 from its recipe (an hour and a half on two cores), or report what one can do.",
)


def _table(title: str, report: dict[str, dict[str, Any]]) -> "Table":
    from raisf.utils.display import DataTable

    n = next(iter(report.values()))["n"]
    caption = (
        f"n = {n} a skill, decoded greedily, on questions that training never asked; right: every word is; answer: the "
        "answer is, whatever was written before it"
    )
    columns = ("skill", "right", "95% interval", "answer", "AUROC")
    table = DataTable(*columns, title=title, title_justify="left", caption=caption)
    for skill, one in report.items():
        interval = f"[{one['low']:.1%}, {one['high']:.1%}]"
        answer = f"{one['answer']['right']:.1%}" if "answer" in one else ""
        table.add_row(skill, f"{one['right']:.1%}", interval, answer, f"{one['auroc']:.3f}" if "auroc" in one else "")
    return table
