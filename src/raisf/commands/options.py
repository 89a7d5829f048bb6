"""The options that several commands share."""

import argparse
from pathlib import Path

from raisf.commands.parsing import at_least, not_negative, seconds, share, switch

# Named here a second time, beside raisf.programs.registry, because reading that imports dspy, which `raisf --help` must
# not.
FROM_MEMORY = ("direct", "cot", "least-to-most")
"""The programs that retrieve nothing."""
PROGRAM_NAMES = (
    "ra-isf",
    *FROM_MEMORY,
    "rag",
    "cot-rag",
    "replug",
    "skr-knn",
    "self-rag",
    "blendfilter",
    "iter-retgen",
    "ircot",
    "self-ask",
    "react",
)

DEFAULT_LM = "pocket"
# What `add_lm` adds besides --lm.
LM_OPTIONS = ("api_base", "adapter", "temperature", "max_tokens", "timeout")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds --threads."""
    parser.add_argument("--threads", type=at_least(1), default=8, help="questions at a time; default: 8")


def add_labels(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Adds --labels."""
    parser.add_argument(
        "--labels",
        choices=("model", "gold"),
        default="model",
        help="what the LM knows: model asks it, gold believes the questions' own marks; default: model",
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
    group.add_argument(
        "--temperature",
        type=not_negative,
        metavar="T",
        help="0 takes the likeliest token, 2 is the highest; default: 0",
    )
    group.add_argument(
        "--max-tokens", type=at_least(1), metavar="N", help="of an answer; default: 256, at an endpoint 1024"
    )
    group.add_argument(
        "--timeout", type=seconds, metavar="S", help="seconds that a call to an endpoint may take; default: 120"
    )


def add_index(group: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Adds what is searched: --index and --where."""
    group.add_argument(
        "--index",
        metavar="DIR",
        help="a folder made by `raisf index`, or the URL of `raisf serve-index`; default: the artifact's",
    )
    group.add_argument(
        "--where", metavar="FILTER", help="search only the passages that satisfy it, such as: source = 'handbook.pdf'"
    )


def add_program(parser: argparse.ArgumentParser, *, default: str = "ra-isf") -> None:
    """Adds the options that say which program runs, over which index, within which limits."""
    group = parser.add_argument_group("program")
    group.add_argument(
        "--program",
        metavar="NAME",
        default=default,
        help=f"a name that `raisf programs` lists, or a folder made by `raisf compile`; default: {default}",
    )
    add_index(group)
    group.add_argument("--k", type=at_least(1), help="passages a retrieval; default: 5")
    group.add_argument("--max-depth", type=at_least(0), metavar="N", help="how deep sub-questions may go; default: 3")
    group.add_argument(
        "--relevance",
        choices=("pointwise", "listwise"),
        help="judge each passage alone, or all of a node in one call; default: pointwise",
    )
    group.add_argument("--max-calls", type=at_least(1), metavar="N", help="LM calls a question; default: no limit")
    group.add_argument("--max-seconds", type=seconds, metavar="S", help="seconds a question; default: no limit")
    group.add_argument(
        "--set",
        dest="switches",
        type=switch,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of the program, such as use_internal=false of blendfilter; `raisf programs --json` "
        "lists them",
    )
    for judge in ("know", "relevance", "decomposition"):
        group.add_argument(
            f"--no-{judge}",
            dest=f"use_{judge}",
            action="store_false",
            default=None,
            help=f"run without the {judge} judge",
        )
    for judge, verdict in (("know", "know"), ("relevance", "relevant")):
        group.add_argument(
            f"--{judge}-threshold",
            type=share,
            metavar="P",
            help=f"probability from which on the {judge} judge says {verdict}; default: 0.5, or what was calibrated",
        )


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """Adds what `--how prompts` can be told."""
    group = parser.add_argument_group("prompts")
    group.add_argument(
        "--strategy",
        choices=("labeled", "bootstrap", "random", "mipro", "gepa"),
        help="demonstrations from gold labels, from the program's own right runs, or the best of several such draws on "
        "the dev split; mipro: with instructions that an LM proposes; gepa: instructions that an LM rewrites by what "
        "gold says was wrong; default: labeled",
    )
    group.add_argument("--demos", type=at_least(2), metavar="N", help="demonstrations a predictor at most; default: 4")
    group.add_argument(
        "--candidates",
        type=at_least(1),
        metavar="N",
        help="draws of random; draws and instructions that mipro chooses from; default: 6",
    )
    group.add_argument(
        "--trials",
        type=at_least(1),
        metavar="N",
        help="what mipro and gepa may spend, in runs over the dev split; default: 20",
    )
    group.add_argument(
        "--reflection-lm",
        metavar="SPEC",
        help="the LM that writes instructions for mipro and gepa, a strong one at best; default: the --lm",
    )
    group.add_argument("--reflection-api-base", metavar="URL", help="its endpoint, as --api-base is the --lm's")


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Adds what `--how weights` can be told."""
    group = parser.add_argument_group("weights")
    group.add_argument(
        "--base",
        metavar="SPEC",
        help="the local LM to train on: pocket, pocket-tiny, pocket-t5 or local/PATH_OR_HUB_ID; default: the --lm",
    )
    group.add_argument(
        "--rows", type=at_least(2), metavar="N", help="examples a judge at most; default: 1000, the paper's"
    )
    group.add_argument("--learning-rate", type=not_negative, metavar="R", help="default: 5e-4, the paper's")
    group.add_argument("--epochs", type=at_least(1), metavar="N", help="at most, early stopping ends it; default: 10")
    group.add_argument("--rank", type=at_least(1), metavar="N", help="LoRA's; default: 16")
    group.add_argument("--full", action="store_true", help="train all weights, a whole model a judge, instead of LoRA")
    group.add_argument(
        "--processes",
        type=at_least(1),
        metavar="N",
        help="that share the training through accelerate, a GPU each where there are GPUs; default: 1",
    )


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    """Adds --calibrate and its prices, for compiling."""
    group = parser.add_argument_group("calibration")
    group.add_argument(
        "--calibrate",
        nargs="?",
        const="answer",
        choices=("answer", "cost", "accuracy", "balanced"),
        metavar="AIM",
        help="then fit the judges' thresholds on the dev split, for right answers (answer; what it is without AIM), "
        "for right answers less their cost (cost), or for right verdicts where that costs no answers (accuracy, or "
        "balanced over both verdicts); what chance may have done leaves them alone",
    )
    for what, name in (("an LM call", "call"), ("a search", "search")):
        group.add_argument(
            f"--{name}-price",
            type=not_negative,
            metavar="P",
            help=f"aim cost: what {what} costs, in right answers; default: {'0.01' if name == 'call' else '0'}",
        )


def add_module(parser: argparse.ArgumentParser) -> None:
    """Adds the options that measure one judge alone."""
    group = parser.add_argument_group("one judge alone, against gold")
    group.add_argument(
        "--module",
        choices=("know", "relevance", "decomposition"),
        help="measure this judge instead of the answers: accuracy, precision, recall, F1, AUROC, calibration; "
        "--out then takes its verdicts",
    )
    group.add_argument("--train", type=Path, metavar="FILE", help="questions to fit the know judge's baselines on")
    add_labels(group)
