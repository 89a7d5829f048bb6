"""The commands and what each can be told."""

import argparse
from pathlib import Path
from typing import Any

from raisf import __version__
from raisf.commands import benchmarks, checkpoints, comparing, dense, experimenting, indexing, options
from raisf.commands.parsing import Parser, add_command, at_least, folder
from raisf.data.world.files import QUESTIONS
from raisf.data.world.generator import HOME_REGIONS, HOME_SEED, REGION_SIZE
from raisf.lm.pocket import WEIGHTS
from raisf.lm.pocket.build import SIZES


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="raisf",
        description="Answers questions by recursion: know it, read it, or break it down (RA-ISF as a DSPy program).",
        epilog="`raisf COMMAND --help` shows a command's options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"raisf {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", parser_class=Parser)
    for add in (
        _demo,
        _world,
        benchmarks.add_parsers,
        indexing.add_parsers,
        checkpoints.add_parsers,
        dense.add_parsers,
        _programs,
        _ask,
        _collect,
        _compile,
        _eval,
        comparing.add_parsers,
        experimenting.add_parsers,
        _pocket,
    ):
        add(commands)
    return parser


def _demo(commands: Any) -> None:
    parser = add_command(
        commands,
        "demo",
        "the main job from end to end, offline: a closed world, its index, a compiled program, a comparison",
        "  raisf demo\n  raisf demo --questions 50 --engine bm25",
        resume="run the same command again to go on where it stopped",
    )
    parser.add_argument(
        "--out", type=folder, default=Path("demo-output"), help="where all it makes goes; default: demo-output"
    )
    parser.add_argument("--questions", type=at_least(1), default=200, help="test questions to answer; default: 200")
    parser.add_argument("--engine", choices=("colbert", "bm25"), default="colbert", help="default: colbert")


def _world(commands: Any) -> None:
    parser = add_command(
        commands,
        "world",
        "make a closed world: a corpus, and questions with gold answers, passages and decompositions",
        "  raisf world --seed 7 --out worlds/home\n  raisf world --seed 8 --entities 1000 --out worlds/w8",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=HOME_SEED,
        help=f"the world; the pocket Llama knows part of number {HOME_SEED}; default: {HOME_SEED}",
    )
    entities = HOME_REGIONS * REGION_SIZE
    parser.add_argument(
        "--entities",
        type=at_least(1),
        default=entities,
        metavar="N",
        help=f"how many, in whole regions of {REGION_SIZE}; default: {entities}, what the pocket Llama has heard of",
    )
    for split, count in QUESTIONS.items():
        parser.add_argument(
            f"--{split}",
            type=at_least(0),
            default=count,
            metavar="N",
            help=f"{split} questions; default: {count}",
        )
    parser.add_argument("--out", type=Path, required=True, help="the world's folder")


def _programs(commands: Any) -> None:
    examples = "  raisf programs\n  raisf programs --json"
    add_command(commands, "programs", "list the programs: what each does and its source", examples, home="listing")


def _ask(commands: Any) -> None:
    parser = add_command(
        commands,
        "ask",
        "answer one question and show how: route, passages with verdicts, sub-questions, cost",
        '  raisf ask "Who is the mayor of Belrin?" --index indexes/home\n'
        '  raisf ask "..." --index indexes/mine --lm openai/gpt-4o-mini\n'
        '  raisf ask "..." --index indexes/mine --lm openai/llama --api-base http://127.0.0.1:8000/v1\n'
        '  raisf ask "..." --program artifacts/a --json\n'
        "  raisf ask - --program direct < question.txt",
    )
    parser.add_argument("question", help="the question; - reads it from standard input")
    options.add_program(parser)
    options.add_lm(parser)


def _collect(commands: Any) -> None:
    parser = add_command(
        commands,
        "collect",
        "collect what the three judges should have said on training questions, a file of rows a judge",
        "  raisf collect --train worlds/home/train.jsonl --index indexes/home --out data/judges\n"
        "  raisf collect --train train.jsonl --test test.jsonl --index indexes/mine --lm local/PATH \\\n"
        "      --teacher openai/gpt-4o --out data/judges",
        resume="run the same command again to go on where it stopped",
        home="collecting",
    )
    parser.add_argument("--train", type=Path, required=True, help="training questions (JSON or JSON Lines)")
    for split in ("dev", "test"):
        parser.add_argument(f"--{split}", type=Path, help=f"the {split} questions; --train must hold none of them")
    parser.add_argument("--out", type=folder, required=True, help="the folder for the rows")
    parser.add_argument("--index", metavar="DIR", required=True, help="a folder made by `raisf index`, or a URL")
    parser.add_argument("--where", metavar="FILTER", help="only passages that satisfy this")
    parser.add_argument("--k", type=at_least(1), help="passages a question; default: 5")
    parser.add_argument(
        "--teacher", metavar="SPEC", help="an LM that judges passages and decomposes where gold says nothing"
    )
    options.add_labels(parser)
    options.add_threads(parser)
    options.add_lm(parser)


def _compile(commands: Any) -> None:
    parser = add_command(
        commands,
        "compile",
        "compile a program against a training split, selecting on a dev split, and save it as an artifact",
        "  raisf compile --train worlds/home/train.jsonl --dev worlds/home/dev.jsonl \\\n"
        "      --index indexes/home --out artifacts/a\n"
        "  raisf compile --strategy random --train train.jsonl --dev dev.jsonl --index indexes/mine --out artifacts/b\n"
        "  raisf compile --how weights --train train.jsonl --dev dev.jsonl --index indexes/mine --out artifacts/c",
        resume="no artifact was written; run the same command again to go on where it stopped",
    )
    parser.add_argument(
        "--how",
        choices=("prompts", "weights"),
        default="prompts",
        help="prompts: few-shot demonstrations; weights: a LoRA adapter a judge on one base; default: prompts",
    )
    parser.add_argument("--train", type=Path, required=True, help="training questions (JSON or JSON Lines)")
    parser.add_argument("--dev", type=Path, required=True, help="questions to select on; never trained on")
    parser.add_argument("--out", type=Path, required=True, help="the artifact's folder")
    options.add_labels(parser)
    options.add_threads(parser)
    parser.add_argument("--seed", type=int, default=0, help="of every random choice; default: 0")
    options.add_prompts(parser)
    options.add_weights(parser)
    options.add_calibrate(parser)
    options.add_program(parser)
    options.add_lm(parser)


def _eval(commands: Any) -> None:
    parser = add_command(
        commands,
        "eval",
        "answer a file of questions and measure; one record a question, so that it can be stopped and resumed",
        "  raisf eval --program artifacts/a --test worlds/home/test.jsonl\n"
        "  raisf eval --program rag --index indexes/home --test worlds/home/test.jsonl --out runs/rag.jsonl\n"
        "  raisf eval --module know --test worlds/home/test.jsonl --train worlds/home/train.jsonl",
        resume="run the same command again to go on where it stopped",
    )
    parser.add_argument(
        "--test", type=Path, required=True, help="questions (JSON or JSON Lines; HotpotQA's formats too)"
    )
    parser.add_argument(
        "--out", type=Path, help="the records' file; default: runs/, named after the program and the test"
    )
    parser.add_argument("--limit", type=at_least(1), metavar="N", help="only the first N questions")
    parser.add_argument(
        "--cache",
        action="store_true",
        help="take what DSPy's cache has: cheaper, but cost and seconds are then the cache's",
    )
    parser.add_argument("--fresh", action="store_true", help="drop this command's records in --out and begin anew")
    options.add_threads(parser)
    options.add_module(parser)
    options.add_program(parser)
    options.add_lm(parser)


def _pocket(commands: Any) -> None:
    parser = add_command(
        commands,
        "pocket",
        "pretrain a pocket Llama or T5 from its recipe (an hour and a half on two cores), or report what one can do",
        "  raisf pocket report\n"
        "  raisf pocket report --weights pocket-t5\n"
        "  raisf pocket train --out models/pocket\n"
        "  raisf pocket train --size tiny --tokens 1000000 --out models/tiny\n"
        '  raisf ask "..." --program direct --lm local/models/pocket --adapter pocket',
        resume="run the same command again to go on where it stopped",
        home="pocket",
    )
    parser.add_argument(
        "action", choices=("train", "report"), help="train: pretrain it from scratch; report: measure its skills"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="train: the weights' folder")
    parser.add_argument(
        "--weights",
        default="pocket",
        metavar="NAME",
        help=f"report: whose; {', '.join(WEIGHTS)} or a folder; default: pocket",
    )
    parser.add_argument("--n", type=at_least(20), default=500, help="report: questions a skill; default: 500")
    parser.add_argument("--tokens", type=at_least(1), metavar="N", help="how many it reads; default: the size's")
    parser.add_argument("--size", choices=SIZES, default="pocket", help="default: pocket")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of all that is read; default: 0")
    parser.add_argument("--threads", type=at_least(1), default=2, help="CPU threads of the model; default: 2")
