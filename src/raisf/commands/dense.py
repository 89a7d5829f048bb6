"""`raisf dense tune`: the query side of a dense index learns from an LM which passages help it (REPLUG's LSR)."""

import argparse
from pathlib import Path
from typing import Any

from raisf.commands import assemble, options
from raisf.commands.options import LM_OPTIONS
from raisf.commands.outcome import Outcome, told
from raisf.commands.parsing import add_command, at_least, not_negative


def add_parsers(commands: Any) -> None:
    """Adds `dense`.

    Args:
        commands: The subparsers of the command line.
    """
    parser = add_command(
        commands,
        "dense",
        "tune a dense index to an LM: its queries then find the passages that help that LM to answer (REPLUG's LSR)",
        "  raisf index corpus.jsonl --engine dense --out indexes/dense\n"
        "  raisf dense tune --index indexes/dense --train train.jsonl --dev dev.jsonl --out checkpoints/lsr\n"
        '  raisf ask "..." --program replug --index checkpoints/lsr-index',
        resume="run the same command again: what the LM has said is kept",
        home="dense",
    )
    parser.add_argument("action", choices=("tune",), help="what to do")
    parser.add_argument("--index", type=Path, metavar="DIR", required=True, help="made by raisf index --engine dense")
    parser.add_argument("--train", type=Path, required=True, help="training questions (JSON or JSON Lines)")
    parser.add_argument("--dev", type=Path, required=True, help="questions to choose the best epoch by")
    parser.add_argument(
        "--out", type=Path, required=True, help="the tuned model's folder, for raisf index --engine dense --checkpoint"
    )
    parser.add_argument(
        "--index-out",
        type=Path,
        metavar="DIR",
        help="the same index under the tuned model, passages not encoded again; default: --out with -index behind it",
    )
    parser.add_argument("--k", type=at_least(2), help="passages a question; default: 20, the paper's")
    parser.add_argument("--epochs", type=at_least(1), metavar="N", help="default: 5")
    parser.add_argument("--batch-size", type=at_least(1), metavar="N", help="questions a step; default: 16")
    parser.add_argument("--learning-rate", type=not_negative, metavar="R", help="default: 2e-5, the paper's")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice; default: 0")
    options.add_lm(parser)


def dense(arguments: argparse.Namespace) -> Outcome:
    """Tunes the query side of a dense index."""
    from rich.console import Group
    from rich.table import Table

    from raisf.data.questions import load_questions
    from raisf.optimize.optimizers.lsr import FIRST, Tuning, tune_retriever

    names = ("k", "epochs", "batch_size", "learning_rate")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    index = arguments.index_out or arguments.out.with_name(f"{arguments.out.name}-index")
    lm_options = {name: getattr(arguments, name) for name in LM_OPTIONS}
    program = assemble.open_program("replug", lm=arguments.lm, index=arguments.index, lm_options=lm_options)
    tuned: Any = tune_retriever(
        program,
        trainset=load_questions(arguments.train),
        valset=load_questions(arguments.dev),
        checkpoint=arguments.out,
        index=index,
        tuning=Tuning(seed=arguments.seed, **given),
    )
    report = tuned.compile_report
    columns = ("epoch", "KL on --train", "KL on --dev", "likelihood of the answer", f"gold among the first {FIRST}")
    table = Table(*columns, title="likelihood: of the dev answers with a passage found", title_justify="left")
    for point in report["curve"]:
        shown = (point["train_kl"], point["kl"], point["likelihood"], point.get("found"))
        kept = " *" if point["epoch"] == report["best_epoch"] else ""
        table.add_row(f"{point['epoch']}{kept}", *("-" if value is None else f"{value:.3f}" for value in shown))
    made = {"out": str(arguments.out), "index": str(index), "kept epoch": report["best_epoch"]}
    if not report["best_epoch"]:
        made["warning"] = "no epoch was better than the model as it was: nothing is changed"
    view = told(made | {"LM calls": report["lm_calls"]}, f'raisf ask "..." --program replug --index {index}').view
    return Outcome({"out": str(arguments.out), "index": str(index), **report}, Group(table, view))
