"""The options that several commands share, and the checks on their values."""

import argparse
import math
from collections.abc import Callable

# Named here a second time, beside programs.registry, because reading that imports dspy, which `raisf --help` must not.
PROGRAM_NAMES = ("ra-isf", "rag", "direct")

DEFAULT_LM = "pocket"


def at_least(least: int) -> Callable[[str], int]:
    """A type for argparse: a whole number that is not below `least`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"expected {least} or more, found {value}")
        return value

    return parse


def not_negative(text: str) -> float:
    """A type for argparse: a number that is 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}") from None
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, found {text}")
    return value


def seconds(text: str) -> float:
    """A type for argparse: a number of seconds above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected more than 0 seconds")
    return value


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json."""
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON on standard output, and only that"
    )


def add_lm(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say which language model answers and how it is spoken to."""
    group = parser.add_argument_group("language model")
    group.add_argument(
        "--lm",
        metavar="SPEC",
        help="pocket (ships with the project, needs no network), local/PATH_OR_HUB_ID, or a provider's model such as "
        f"openai/gpt-4o-mini (its key in the environment); default: the artifact's, else {DEFAULT_LM}",
    )
    group.add_argument("--api-base", metavar="URL", help="an OpenAI-compatible endpoint: vLLM, SGLang, Ollama, ...")
    group.add_argument(
        "--adapter",
        choices=("chat", "compact", "pocket"),
        help="how a call becomes text: chat for instructed models, compact for base models; default: what suits the LM",
    )
    group.add_argument("--temperature", type=not_negative, metavar="T", help="0 takes the likeliest token; default: 0")
    group.add_argument(
        "--max-tokens", type=at_least(1), metavar="N", help="of an answer; default: 256, at an endpoint 1024"
    )
    group.add_argument("--timeout", type=seconds, metavar="S", help="seconds to wait for an endpoint; default: 120")


def add_program(parser: argparse.ArgumentParser, *, default: str = "ra-isf") -> None:
    """Adds the options that say which program runs, over which index, within which limits."""
    group = parser.add_argument_group("program")
    group.add_argument(
        "--program",
        metavar="NAME",
        default=default,
        help=f"{', '.join(PROGRAM_NAMES)}, or a folder made by `raisf compile`; default: {default}",
    )
    group.add_argument("--index", metavar="DIR", help="a folder made by `raisf index`; default: the artifact's")
    group.add_argument("--k", type=at_least(1), help="passages a retrieval; default: 5")
    group.add_argument("--max-depth", type=at_least(0), metavar="N", help="how deep sub-questions may go; default: 3")
    group.add_argument(
        "--relevance",
        choices=("pointwise", "listwise"),
        help="judge each passage alone, or all of a node in one call; default: pointwise",
    )
    group.add_argument("--max-calls", type=at_least(1), metavar="N", help="LM calls a question; default: no limit")
    group.add_argument("--max-seconds", type=seconds, metavar="S", help="seconds a question; default: no limit")
    for judge in ("know", "relevance", "decomposition"):
        group.add_argument(
            f"--no-{judge}",
            dest=f"use_{judge}",
            action="store_false",
            default=None,
            help=f"run without the {judge} judge",
        )
