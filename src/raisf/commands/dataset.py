"""`raisf dataset`: a public data set as files for the other commands."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from raisf.commands.command import argument, command, option
from raisf.commands.result import CommandResult, facts_view
from raisf.commands.values import FILE, at_least
from raisf.data.datasets.catalog import BENCHMARKS
from raisf.data.datasets.files import SPLITS
from raisf.utils.errors import InputError


@command(
    "dataset",
    "  raisf dataset hotpotqa --n 500 --out data/hotpotqa\n"
    "without a network, from the data set's own files:\n"
    "  raisf dataset hotpotqa --from hotpot_dev_distractor_v1.json --n 500 --out data/hotpotqa\n"
    "  raisf dataset musique --from musique_ans_v1.0_train.jsonl --split train \\\n"
    "      --from musique_ans_v1.0_dev.jsonl --split test --out data/musique\n"
    "then:\n"
    "  raisf index data/hotpotqa/corpus.jsonl --out indexes/hotpotqa\n"
    "  raisf eval --test data/hotpotqa/test.jsonl --index indexes/hotpotqa --program rag",
)
@argument(
    "name",
    type=click.Choice(tuple(BENCHMARKS)),
    metavar="NAME",
    help=f"which data set: {', '.join(BENCHMARKS)}; nq, triviaqa and popqa come without a corpus: give an --index "
    "where they are asked",
)
@option("--out", type=FILE, required=True, metavar="DIR", help="the data set's folder")
@option(
    "--from",
    "files",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="a local file instead of the hub, in its original format or the hub's (.json, .jsonl, .tsv, "
    ".parquet); once per split",
)
@option(
    "--split",
    "splits",
    type=click.Choice(SPLITS),
    multiple=True,
    help="the split of the --from before it (default, with one file: test), or the split to write from the "
    "hub (default: all). test is what papers report on, usually the data set's own dev or validation "
    "split; dev is drawn from train",
)
@option(
    "--n", type=at_least(1), metavar="N", help="at most this many questions per split, drawn by --seed; default: all"
)
@option("--seed", type=int, default=0, metavar="N", help="seed of the draws; default: 0")
@option("--hub", metavar="REPO", heading="hub", help="another repository, or a folder with a copy of one")
@option("--config", metavar="NAME", heading="hub", help="another configuration, such as fullwiki of hotpotqa")
@option(
    "--revision",
    metavar="REV",
    heading="hub",
    help="a commit, tag or branch; default: the newest, which is recorded",
)
def dataset_command(
    name: str,
    out: Path,
    files: tuple[Path, ...],
    splits: tuple[str, ...],
    n: int | None,
    seed: int,
    hub: str | None,
    config: str | None,
    revision: str | None,
) -> CommandResult:
    """Write a public data set as files: its questions to train, select and test on, and its corpus."""
    from raisf.data.datasets.files import write_dataset

    for what, given in (("hub", hub), ("config", config), ("revision", revision)):
        if files and given is not None:
            raise InputError(f"--{what} is for the hub: leave it out, or --from")
    made = write_dataset(
        name,
        out,
        files=_by_split(files, splits),
        splits=splits or None,
        hub=hub,
        config=config,
        revision=revision,
        n=n,
        seed=seed,
        alike=_nearly_the_same,
    )
    facts: dict[str, Any] = {"out": str(out)}
    for split, about in made["splits"].items():
        facts[split] = f"{about['questions']} of {about['of']} questions"
        if about["repeated"]:
            facts[split] += f" ({about['repeated']} more rows only repeat one)"
        if about["left_out"]:
            facts[split] += f"; {about['left_out']} were left out, which {'dev or ' * (split == 'train')}test has too"
        if listed := about["answers_like_lists"]:
            facts[split] += (
                f"; of {listed} the answer is a text like a list, [a, b], which no LM gives: mend it or leave it out"
            )
    if "train" not in made["splits"]:
        how = "--from FILE --split train" if files else "--split train"
        facts["train"] = f"not written: few-shot and trained programs need it (add {how} to the command)"
    if made["corpus"]:
        facts["corpus"] = f"{made['corpus']['passages']} passages"
        if bare := made["corpus"]["without_paragraphs"]:
            facts["corpus"] += f"; {bare} question{'s bring' if bare > 1 else ' brings'} no paragraphs"
        following = shlex.join(["raisf", "index", str(out / "corpus.jsonl"), "--out", f"indexes/{out.name}"])
    else:
        facts["corpus"] = "none comes with it; the papers search Wikipedia in DPR's passages, psgs_w100.tsv"
        following = "raisf index psgs_w100.tsv --out indexes/wiki"
    return CommandResult({"out": str(out), **made}, facts_view({**facts, "about": made["about"]}, following))


def _by_split(files: Sequence[Path], splits: Sequence[str]) -> dict[str, Path | str]:
    """The local files by split."""
    if not files:
        return {}
    if len(files) == 1 and not splits:
        splits = ["test"]
    if len(files) != len(splits) or len(set(splits)) != len(splits):
        raise InputError(
            f"each --from takes a --split of its own; found {len(files)} files and {', '.join(splits) or 'no split'}: "
            "write --from FILE --split train --from FILE --split test"
        )
    return dict(zip(splits, files, strict=True))


def _nearly_the_same(ours: Sequence[str], theirs: Sequence[str]) -> set[str]:
    """The questions of ours that compiling would refuse to train on beside theirs."""
    import dspy

    from raisf.optimize.overlap import overlap

    examples = [[dspy.Example(question=question) for question in questions] for questions in (ours, theirs)]
    return {question for question, _ in overlap(*examples)}
