"""`raisf dataset`: a public data set as files for the other commands."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raisf.commands.outcome import Outcome, told
from raisf.commands.parsing import add_command, at_least
from raisf.data.datasets.catalog import BENCHMARKS
from raisf.data.datasets.files import SPLITS
from raisf.utils.errors import InputError


def add_parsers(commands: Any) -> None:
    """Adds `dataset`.

    Args:
        commands: The subparsers of the command line.
    """
    parser = add_command(
        commands,
        "dataset",
        "write a public data set as files: its questions to train, select and test on, and its corpus",
        "  raisf dataset hotpotqa --n 500 --out data/hotpotqa\n"
        "without a network, from the data set's own files:\n"
        "  raisf dataset hotpotqa --from hotpot_dev_distractor_v1.json --n 500 --out data/hotpotqa\n"
        "  raisf dataset musique --from musique_ans_v1.0_train.jsonl --split train \\\n"
        "      --from musique_ans_v1.0_dev.jsonl --split test --out data/musique\n"
        "then:\n"
        "  raisf index data/hotpotqa/corpus.jsonl --out indexes/hotpotqa\n"
        "  raisf eval --test data/hotpotqa/test.jsonl --index indexes/hotpotqa --program rag",
        home="benchmarks",
    )
    parser.add_argument("name", choices=tuple(BENCHMARKS), help="which data set")
    parser.add_argument("--out", type=Path, required=True, help="the data set's folder")
    parser.add_argument(
        "--from",
        dest="files",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a local file in its original format or the hub's (.json, .jsonl, .parquet) instead of the hub; may be "
        "given once a split",
    )
    parser.add_argument(
        "--split",
        dest="splits",
        choices=SPLITS,
        action="append",
        default=[],
        help="which split the --from before it is, test if not said; from the hub, which to write, all if not said. "
        "test is what papers report on, the data set's own dev or validation split; where train is there, dev is drawn "
        "from it",
    )
    parser.add_argument(
        "--n", type=at_least(1), metavar="N", help="questions a split at most, drawn by --seed; default: all"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws; default: 0")
    hub = parser.add_argument_group("hub")
    hub.add_argument("--hub", metavar="REPO", help="another repository, or a folder with a copy of one")
    hub.add_argument("--config", metavar="NAME", help="another configuration, such as fullwiki of hotpotqa")
    hub.add_argument(
        "--revision", metavar="REV", help="a commit, tag or branch; default: the newest, which is recorded"
    )


def dataset(arguments: argparse.Namespace) -> Outcome:
    """Writes a public data set."""
    from raisf.data.datasets.files import write_dataset

    made = write_dataset(
        arguments.name,
        arguments.out,
        files=_files(arguments),
        splits=arguments.splits or SPLITS,
        hub=arguments.hub,
        config=arguments.config,
        revision=arguments.revision,
        n=arguments.n,
        seed=arguments.seed,
        alike=_nearly_the_same,
    )
    facts: dict[str, Any] = {"out": str(arguments.out)}
    for split, about in made["splits"].items():
        facts[split] = f"{about['questions']} of {about['of']} questions"
        if about["left_out"]:
            facts[split] += f"; {about['left_out']} were left out, which dev or test have too"
    corpus = arguments.out / "corpus.jsonl"
    if made["corpus"]:
        facts["corpus"] = f"{made['corpus']['passages']} passages"
        following = f"raisf index {corpus} --out indexes/{arguments.out.name}"
    else:
        facts["corpus"] = "none comes with it; the papers search Wikipedia in DPR's passages, psgs_w100.tsv"
        following = "raisf index psgs_w100.tsv --out indexes/wiki"
    return Outcome({"out": str(arguments.out), **made}, told({**facts, "about": made["about"]}, following).view)


def _files(arguments: argparse.Namespace) -> dict[str, Path]:
    """The local files by split."""
    files, splits = arguments.files, arguments.splits
    if not files:
        return {}
    if given := [name for name in ("hub", "config", "revision") if getattr(arguments, name) is not None]:
        raise InputError(f"--{given[0]} is for the hub: leave it out, or --from")
    if len(files) == 1 and not splits:
        splits = ["test"]
    if len(files) != len(splits) or len(set(splits)) != len(splits):
        raise InputError(
            f"each --from takes a --split of its own; found {len(files)} files and {', '.join(splits) or 'no split'}"
        )
    return dict(zip(splits, files, strict=True))


def _nearly_the_same(ours: Sequence[str], theirs: Sequence[str]) -> set[str]:
    """The questions of ours that compiling would refuse to train on beside theirs."""
    import dspy

    from raisf.optimize.overlap import overlap

    examples = [[dspy.Example(question=question) for question in questions] for questions in (ours, theirs)]
    return {question for question, _ in overlap(*examples)}
