"""`raisf colbert`: makes a ColBERT checkpoint out of a user's own questions, or out of nothing but her documents."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raisf.commands.outcome import Outcome, told
from raisf.commands.parsing import add_command, at_least, not_negative
from raisf.utils.errors import InputError

KNOWN_ITEMS = 2_000
"""Queries made out of the passages: with the other defaults, about twelve minutes of training on one core."""


def add_parsers(commands: Any) -> None:
    """Adds `colbert`.

    Args:
        commands: The subparsers of the command line.
    """
    parser = add_command(
        commands,
        "colbert",
        "train a ColBERT checkpoint for `raisf index --checkpoint`, on your own questions or on your documents alone",
        "  raisf colbert train --corpus docs/ --questions train.jsonl --test test.jsonl --out checkpoints/mine\n"
        "  raisf colbert train --corpus docs/ --out checkpoints/mine     made-up queries: measure it before use\n"
        "  raisf colbert train --questions hotpot_train.json --out checkpoints/hotpot      it brings its paragraphs\n"
        "  raisf index docs/ --checkpoint checkpoints/mine --out indexes/mine",
        resume="run the same command again to go on where it stopped",
        home="checkpoints",
    )
    parser.add_argument("action", choices=("train",), help="what to do")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument(
        "--questions",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="training questions (JSON or JSON Lines) with gold_titles or gold_pids; HotpotQA's and MuSiQue's formats "
        "too",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--corpus",
        type=Path,
        metavar="DOCS",
        help="the passages: what `raisf index` reads; default: those that the questions bring along. The hard "
        "negatives are BM25's",
    )
    source.add_argument(
        "--index", type=Path, metavar="DIR", help="the passages of an index; the hard negatives are what it finds"
    )
    parser.add_argument(
        "--known-items",
        type=at_least(0),
        metavar="N",
        help="queries made out of passages, a title or a sentence, at most one a passage: they teach to find what a "
        f"text says, and not what is asked of it; default: {KNOWN_ITEMS} without --questions, else 0",
    )
    parser.add_argument(
        "--test",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="questions that you will measure on: --questions must hold none of them",
    )
    parser.add_argument(
        "--base", default="minilm", help="the checkpoint to start from: minilm, a path, or a hub id; default: minilm"
    )
    parser.add_argument("--epochs", type=at_least(1), metavar="N", help="default: 2")
    parser.add_argument("--batch-size", type=at_least(2), metavar="N", help="queries a step; default: 16")
    parser.add_argument(
        "--negatives", type=at_least(0), metavar="N", help="hard negatives a query in a step; default: 1"
    )
    parser.add_argument("--learning-rate", type=not_negative, metavar="R", help="default: 1e-4")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice; default: 0")


def colbert(arguments: argparse.Namespace) -> Outcome:
    """Trains a ColBERT checkpoint."""
    from raisf.retrieval.training.loop import METADATA, Recipe, train_checkpoint
    from raisf.utils.files import check_replaceable

    names = ("epochs", "batch_size", "negatives", "learning_rate")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    recipe = Recipe(seed=arguments.seed, **given)
    check_replaceable(arguments.out, METADATA)
    questions = _questions(arguments.questions, arguments.test)
    with tempfile.TemporaryDirectory() as folder:
        triples = _triples(questions, _passages(arguments, Path(folder)), arguments)
    made = train_checkpoint(triples, arguments.out, arguments.base, recipe)
    shown = {"out": str(arguments.out), **made}
    if made["after"]["loss"] >= made["before"]["loss"]:
        shown["warning"] = "no better on the queries held out than before: keep the base"
    elif not questions:
        shown["warning"] = (
            "measured on made-up queries alone: try it on questions before you use it (docs/retrieval.md)"
        )
    return told(shown, f"raisf index DOCS --checkpoint {arguments.out} --out indexes/mine")


def _questions(files: Sequence[Path], test: Sequence[Path]) -> list[Any]:
    from raisf.data.questions import load_questions

    questions = [question for file in files for question in load_questions(file)]
    if questions and test:
        from raisf.optimize.overlap import check_disjoint

        check_disjoint(questions, {str(file): load_questions(file) for file in test})
    return questions


def _passages(arguments: argparse.Namespace, folder: Path) -> Any:
    """The index that holds the passages and finds hard negatives: the one given, or BM25 over the corpus."""
    from raisf.retrieval.index import build_index, open_folder
    from raisf.retrieval.training.triples import brought_passages

    if arguments.index:
        return open_folder(arguments.index)
    if arguments.corpus:
        return build_index(arguments.corpus, folder / "bm25", "bm25", progress=False)
    if not arguments.questions:
        raise InputError("nothing to learn from: give --corpus DOCS or --index DIR, and --questions where you have any")
    try:
        return build_index(brought_passages(*arguments.questions), folder / "bm25", "bm25", progress=False)
    except InputError as error:
        raise InputError(f"the questions bring no passages along: give --corpus or --index ({error})") from error


def _triples(questions: Sequence[Any], index: Any, arguments: argparse.Namespace) -> list[Any]:
    from raisf.retrieval.training.triples import known_items, question_triples

    asked = list(question_triples(questions, index))
    if questions and not asked:
        raise InputError(
            f"none of the {len(questions)} questions names a passage of the corpus: gold_pids must be its ids, or "
            "gold_titles its titles"
        )
    count = arguments.known_items if arguments.known_items is not None else 0 if questions else KNOWN_ITEMS
    return [*asked, *(known_items(index, count, arguments.seed) if count else ())]
