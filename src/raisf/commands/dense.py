"""`raisf dense tune`: the query side of a dense index learns from an LM which passages help it (REPLUG's LSR)."""

import shlex
from pathlib import Path
from typing import Any

from raisf.commands.command import Family, command, option
from raisf.commands.options import lm_options, seed_option
from raisf.commands.result import CommandResult, facts_view
from raisf.commands.values import FILE, at_least, not_negative
from raisf.experiments.opening import LMChoice, given, open_program

_EXAMPLES = (
    "  raisf index corpus.jsonl --engine dense --out indexes/dense\n"
    "  raisf dense tune --index indexes/dense --train train.jsonl --dev dev.jsonl --out checkpoints/lsr\n"
    '  raisf ask "..." --program replug --index checkpoints/lsr-index'
)


@command("tune", _EXAMPLES, resume="run the same command again: what the LM has said is kept")
@option("--index", type=FILE, metavar="DIR", required=True, help="made by raisf index --engine dense")
@option("--train", type=FILE, required=True, metavar="FILE", help="training questions (JSON or JSON Lines)")
@option("--dev", type=FILE, required=True, metavar="FILE", help="questions by which the best epoch is chosen")
@option(
    "--out",
    type=FILE,
    required=True,
    metavar="DIR",
    help="the tuned model's folder, for raisf index --engine dense --checkpoint DIR",
)
@option(
    "--index-out",
    type=FILE,
    metavar="DIR",
    help="the same index with the tuned model (passages are not encoded again); default: --out followed by -index",
)
@option("--k", type=at_least(2), metavar="N", help="passages per question; default: 20, the paper's")
@option("--epochs", type=at_least(1), metavar="N", help="default: 5")
@option("--batch-size", type=at_least(1), metavar="N", help="questions per step; default: 16")
@option("--learning-rate", type=not_negative, metavar="R", help="default: 2e-5, the paper's")
@seed_option
@lm_options
def dense_tune_command(
    index: Path,
    train: Path,
    dev: Path,
    out: Path,
    index_out: Path | None,
    k: int | None,
    epochs: int | None,
    batch_size: int | None,
    learning_rate: float | None,
    seed: int,
    lm: LMChoice,
) -> CommandResult:
    """Tune a dense index to an LM: its queries then find the passages that help that LM to answer (REPLUG's LSR)."""
    from rich.console import Group

    from raisf.data.questions import load_questions
    from raisf.optimize.optimizers.lsr import FIRST, Tuning, tune_retriever
    from raisf.retrieval.training.query_tuning import PUBLISHED
    from raisf.utils.display import DataTable
    from raisf.utils.files import check_replaceable

    settings = given({"k": k, "epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate})
    check_replaceable(out, *PUBLISHED)
    index_out = index_out or out.with_name(f"{out.name}-index")
    tuned: Any = tune_retriever(
        open_program("replug", lm=lm, index=index),
        trainset=load_questions(train),
        valset=load_questions(dev),
        checkpoint=out,
        index=index_out,
        tuning=Tuning(seed=seed, **settings),
    )
    report = tuned.compile_report
    columns = ("epoch", "KL on --train", "KL on --dev", "likelihood of the answer", f"gold among the first {FIRST}")
    table = DataTable(*columns, title="likelihood: of the dev answers with a passage found", title_justify="left")
    for point in report["curve"]:
        shown = (point["train_kl"], point["kl"], point["likelihood"], point.get("found"))
        kept = " *" if point["epoch"] == report["best_epoch"] else ""
        table.add_row(f"{point['epoch']}{kept}", *("-" if value is None else f"{value:.3f}" for value in shown))
    made = {"out": str(out), "index": str(index_out), "kept epoch": report["best_epoch"]}
    following = f'raisf ask "..." --program replug --index {shlex.quote(str(index_out))}'
    if not report["best_epoch"]:
        made["warning"] = "no epoch was better than the model as it was: nothing is changed"
    view = facts_view(made | {"LM calls": report["lm_calls"]}, following)
    return CommandResult({"out": str(out), "index": str(index_out), **report}, Group(table, view))


dense_command = Family(
    "dense",
    [dense_tune_command],
    help="Tune a dense index to an LM: its queries then find the passages that help that LM to answer (REPLUG's LSR).",
)
