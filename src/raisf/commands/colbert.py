"""`raisf colbert train`: makes a ColBERT checkpoint out of a user's own questions, or of nothing but her documents."""

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raisf.commands.command import GO_ON, Family, argument, command, option
from raisf.commands.options import seed_option
from raisf.commands.result import CommandResult, facts_result
from raisf.commands.values import FILE, at_least, not_negative
from raisf.experiments.opening import given
from raisf.utils.errors import InputError

KNOWN_ITEMS = 2_000
"""Queries made out of the passages: with the other defaults, about twelve minutes of training on one core."""
_EXAMPLES = (
    "  raisf colbert train --corpus docs/ --questions train.jsonl --test test.jsonl --out checkpoints/mine\n"
    "  raisf colbert train --corpus docs/ --out checkpoints/mine     made-up queries: measure it before use\n"
    "  raisf colbert train --questions hotpot_train.json --out checkpoints/hotpot    with the paragraphs in the file\n"
    "  raisf index docs/ --checkpoint checkpoints/mine --out indexes/mine"
)

_DELTA_EXAMPLES = "  raisf colbert delta checkpoints/mine --out checkpoints/mine-delta"


@command("train", _EXAMPLES, resume=GO_ON, several=("--questions", "--test"))
@option("--out", type=FILE, required=True, metavar="DIR", help="the checkpoint's folder")
@option(
    "--questions",
    type=FILE,
    multiple=True,
    metavar="FILE...",
    help="training questions (JSON or JSON Lines) with gold_titles or gold_pids; HotpotQA's and MuSiQue's formats too",
)
@option(
    "--corpus",
    type=FILE,
    metavar="DOCS",
    help="the passages: anything `raisf index` reads; default: those that come with the questions. BM25 "
    "finds the hard negatives",
)
@option(
    "--index", type=FILE, metavar="DIR", help="take the passages of this index, which also finds the hard negatives"
)
@option(
    "--known-items",
    type=at_least(0),
    metavar="N",
    help="how many queries to make from passages (a title or a sentence, at most one per passage); they "
    f"teach to find a text by its own words, not by questions about it; default: {KNOWN_ITEMS} without "
    "--questions, else 0",
)
@option(
    "--test",
    type=FILE,
    multiple=True,
    metavar="FILE...",
    help="the questions that you will measure on; --questions must hold none of them",
)
@option(
    "--base",
    default="minilm",
    metavar="NAME",
    help="the checkpoint to start from: minilm, raisf-minilm, a path, or a hub id; default: minilm",
)
@option("--epochs", type=at_least(1), metavar="N", help="default: 2")
@option("--batch-size", type=at_least(2), metavar="N", help="queries per step; default: 16")
@option("--negatives", type=at_least(0), metavar="N", help="hard negatives per query in a step; default: 1")
@option("--learning-rate", type=not_negative, metavar="R", help="default: 1e-4")
@seed_option
def colbert_train_command(
    out: Path,
    questions: tuple[Path, ...],
    corpus: Path | None,
    index: Path | None,
    known_items: int | None,
    test: tuple[Path, ...],
    base: str,
    epochs: int | None,
    batch_size: int | None,
    negatives: int | None,
    learning_rate: float | None,
    seed: int,
) -> CommandResult:
    """Train a ColBERT checkpoint for `raisf index --checkpoint`, on your own questions or on your documents alone."""
    from raisf.retrieval.training.loop import TRAINED, Recipe, train_checkpoint
    from raisf.utils.files import check_replaceable

    if corpus and index:
        raise InputError("--corpus and --index both name the passages: leave one out")
    settings = {"epochs": epochs, "batch_size": batch_size, "negatives": negatives, "learning_rate": learning_rate}
    recipe = Recipe(seed=seed, **given(settings))
    check_replaceable(out, *TRAINED)
    asked = _load(questions, test)
    with tempfile.TemporaryDirectory() as folder:
        passages = _passages(corpus, index, questions, Path(folder))
        triples = _triples(asked, passages, known_items, seed)
    made = train_checkpoint(triples, out, base, recipe)
    shown = {"out": str(out), **made}
    if asked:
        learnt_from = {triple.query for triple in triples}
        shown["questions_without_passage"] = sum(question.question not in learnt_from for question in asked)
    if made["after"]["loss"] >= made["before"]["loss"]:
        shown["warning"] = "no better on the queries held out than before: keep the base"
    elif not asked:
        shown["warning"] = (
            "measured on made-up queries alone: try it on questions before you use it (docs/retrieval.md)"
        )
    return facts_result(shown, f"raisf index DOCS --checkpoint {shlex.quote(str(out))} --out indexes/mine")


@command("delta", _DELTA_EXAMPLES)
@argument("checkpoint", metavar="NAME", help="the trained checkpoint: a path, or a hub id")
@option("--out", type=FILE, required=True, metavar="DIR", help="the delta's folder")
@option("--base", default="minilm", metavar="NAME", help="the checkpoint it was trained from; default: minilm")
@option(
    "--facts",
    type=FILE,
    metavar="FILE",
    help="a JSON object for its manifest: what it was trained on, with which results; default: its training.json",
)
def colbert_delta_command(checkpoint: str, out: Path, base: str, facts: Path | None) -> CommandResult:
    """Save only what a trained checkpoint changed in its base: a fifth of its size, for `raisf index --checkpoint`."""
    from raisf.retrieval.encoders.delta import DELTA_FILES
    from raisf.retrieval.training.delta_writing import write_delta
    from raisf.utils.files import check_replaceable, read_json

    check_replaceable(out, *DELTA_FILES)
    told = read_json(facts) if facts else None
    if facts and not isinstance(told, dict):
        raise InputError(f"{facts} holds no JSON object: write what it was trained on in {{...}}")
    made = write_delta(checkpoint, out, base, told)
    shown = {"out": str(out), **{name: made[name] for name in ("base", "tensors", "bytes", "error")}}
    return facts_result(shown, f"raisf index DOCS --checkpoint {shlex.quote(str(out))} --out indexes/mine")


colbert_command = Family(
    "colbert",
    [colbert_train_command, colbert_delta_command],
    help="Train a ColBERT checkpoint for `raisf index --checkpoint`, or save only what training changed in one.",
)


def _load(files: Sequence[Path], test: Sequence[Path]) -> list[Any]:
    from raisf.data.questions import load_questions

    questions = [question for file in files for question in load_questions(file)]
    if questions and test:
        from raisf.optimize.overlap import check_disjoint

        check_disjoint(questions, {str(file): load_questions(file) for file in test})
    return questions


def _passages(corpus: Path | None, index: Path | None, questions: Sequence[Path], folder: Path) -> Any:
    """The index that holds the passages and finds hard negatives: the one given, or BM25 over the corpus."""
    from raisf.retrieval.index import build_index, open_folder
    from raisf.retrieval.training.triples import brought_passages

    if index:
        return open_folder(index)
    if corpus:
        return build_index(corpus, folder / "bm25", "bm25", progress=False)
    if not questions:
        raise InputError("nothing to learn from: give --corpus DOCS or --index DIR, and --questions where you have any")
    try:
        return build_index(brought_passages(*questions), folder / "bm25", "bm25", progress=False)
    except InputError as error:
        raise InputError(f"the questions bring no passages along: give --corpus or --index ({error})") from error


def _triples(questions: Sequence[Any], index: Any, count: int | None, seed: int) -> list[Any]:
    from raisf.retrieval.training.triples import known_items, question_triples

    asked = list(question_triples(questions, index))
    if questions and not asked:
        first, passage = questions[0], index.passages[0]
        raise InputError(
            f"none of the {len(questions)} questions names a passage of the corpus: gold_pids must be its ids, or "
            f"gold_titles its titles; the first question has gold_pids {first.gold_pids} and gold_titles "
            f"{first.gold_titles}, the first passage the id {passage.pid!r} and the title {passage.title!r}"
        )
    if count is None:
        count = 0 if questions else KNOWN_ITEMS
    return [*asked, *(known_items(index, count, seed) if count else ())]
