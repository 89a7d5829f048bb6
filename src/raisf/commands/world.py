"""`raisf world`."""

import shlex
from pathlib import Path

from raisf.commands.command import command, option
from raisf.commands.result import CommandResult, facts_result
from raisf.commands.values import FILE, at_least
from raisf.data.world.files import QUESTIONS
from raisf.data.world.generator import HOME_REGIONS, HOME_SEED, REGION_SIZE

ENTITIES = HOME_REGIONS * REGION_SIZE


def _counted(split: str) -> str:
    return f"{split} questions; default: {QUESTIONS[split]}"


@command(
    "world",
    "  raisf world --seed 7 --out worlds/home\n  raisf world --seed 8 --entities 1000 --out worlds/w8",
)
@option(
    "--seed",
    type=int,
    default=HOME_SEED,
    metavar="N",
    help=f"the world; the pocket Llama knows part of number {HOME_SEED}; default: {HOME_SEED}",
)
@option(
    "--entities",
    type=at_least(1),
    default=ENTITIES,
    metavar="N",
    help=f"how many, 300 or more, in whole regions of {REGION_SIZE}; default: {ENTITIES}, what the pocket Llama has "
    "heard of",
)
@option("--train", type=at_least(0), default=QUESTIONS["train"], metavar="N", help=_counted("train"))
@option("--dev", type=at_least(0), default=QUESTIONS["dev"], metavar="N", help=_counted("dev"))
@option("--test", type=at_least(0), default=QUESTIONS["test"], metavar="N", help=_counted("test"))
@option("--out", type=FILE, required=True, metavar="DIR", help="the world's folder")
def world_command(seed: int, entities: int, train: int, dev: int, test: int, out: Path) -> CommandResult:
    """Make a closed world: a corpus, and questions with gold answers, passages and decompositions."""
    from raisf.data.world.files import write_world

    summary = write_world(out, seed, entities, {"train": train, "dev": dev, "test": test})
    following = shlex.join(["raisf", "index", str(out / "corpus.jsonl"), "--out", f"indexes/{out.name}"])
    return facts_result({"out": str(out), **summary}, following)
