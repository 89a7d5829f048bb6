"""What each command does: gather the parts, let the rooms work, and give back an outcome."""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from data.errors import InputError
from raisf import assemble
from raisf.outcome import Outcome


def demo(arguments: argparse.Namespace) -> Outcome:
    """The main job from end to end."""
    from raisf.demo import run_demo

    return run_demo(arguments.out, questions=arguments.questions, engine=arguments.engine)


def world(arguments: argparse.Namespace) -> Outcome:
    """Writes a closed world."""
    from data.world_questions import write_world

    counts = {"train": arguments.train, "dev": arguments.dev, "test": arguments.test}
    summary = write_world(arguments.out, arguments.seed, arguments.entities, counts)
    following = f"raisf index {arguments.out / 'corpus.jsonl'} --out indexes/{arguments.out.name}"
    return _made({"out": str(arguments.out), **summary}, following)


def index(arguments: argparse.Namespace) -> Outcome:
    """Indexes documents."""
    from retrieval.index import build_index
    from retrieval.manifest import read_manifest

    start = time.perf_counter()
    colbert_only = {name: getattr(arguments, name) for name in ("checkpoint", "search") if getattr(arguments, name)}
    if colbert_only and arguments.engine != "colbert":
        raise InputError(f"--{' and --'.join(colbert_only)} is for --engine colbert only: leave it out")
    build_index(arguments.docs, arguments.out, engine=arguments.engine, encoding=arguments.encoding, **colbert_only)
    manifest = read_manifest(arguments.out)
    size = sum(file.stat().st_size for file in arguments.out.rglob("*") if file.is_file())
    made = {
        "out": str(arguments.out),
        "engine": manifest.kind,
        "search": manifest.search,
        "checkpoint": manifest.checkpoint,
        "passages": manifest.passages,
        "bytes": size,
        "seconds": round(time.perf_counter() - start, 2),
    }
    return _made(made, f'raisf ask "..." --index {arguments.out}')


def ask(arguments: argparse.Namespace) -> Outcome:
    """Answers one question."""
    from programs.trace import render

    question = sys.stdin.read() if arguments.question == "-" else arguments.question
    if not question.strip():
        raise InputError("the question is empty: give one in quotes, or - to read it from standard input")
    prediction = _program(arguments)(question=question.strip())
    trace = prediction.trace
    return Outcome({"answer": prediction.answer, "trace": trace.model_dump(mode="json")}, render(trace))


def compile(arguments: argparse.Namespace) -> Outcome:
    """Compiles a program and saves it."""
    from data.files import check_replaceable
    from data.questions import load_questions
    from evaluation.intervals import Score
    from optimize.artifact import save
    from optimize.compile import compile as compile_program

    check_replaceable(arguments.out, "manifest.json")
    trainset, valset = load_questions(arguments.train), load_questions(arguments.dev)
    compiled: Any = compile_program(
        _program(arguments),
        trainset=trainset,
        valset=valset,
        how=arguments.how,
        strategy=arguments.strategy,
        demos=arguments.demos,
        candidates=arguments.candidates,
        labels=arguments.labels,
        seed=arguments.seed,
        threads=arguments.threads,
    )
    save(compiled, arguments.out)
    report = compiled.compile_report
    table = Table(
        "candidate", "exact match on the dev split", title=f"selected: {report['chosen']}", title_justify="left"
    )
    for candidate in report["candidates"]:
        table.add_row(candidate["name"], str(Score(**candidate["score"])))
    made = _made(
        {"out": str(arguments.out), "seconds": report["seconds"], "LM calls": report["lm_calls"]},
        f"raisf eval --program {arguments.out} --test FILE",
    )
    return Outcome({"out": str(arguments.out), **report}, Group(table, made.view))


def eval(arguments: argparse.Namespace) -> Outcome:
    """Evaluates a program on a file of questions."""
    from data.questions import load_questions
    from evaluation.runner import evaluate

    examples = load_questions(arguments.test)[: arguments.limit]
    program = _program(arguments) if arguments.cache else assemble.without_cache(_program(arguments))
    name = f"{Path(arguments.program).name}-{arguments.test.stem}"
    out = arguments.out or assemble.records_path(Path("runs"), name, program, examples)
    report = evaluate(program, examples, out, threads=arguments.threads, fresh=arguments.fresh)
    title = f"{arguments.program} on {arguments.test}"
    view = Group(report.table(title), Text(f"records: {out}"))
    return Outcome(
        {"program": arguments.program, "test": str(arguments.test), "out": str(out), **report.as_dict()}, view
    )


def pocket(arguments: argparse.Namespace) -> Outcome:
    """Pretrains the pocket Llama."""
    from lm.pocket.train import train

    options = {"tokens": arguments.tokens} if arguments.tokens else {}
    made = train(arguments.out, size=arguments.size, seed=arguments.seed, threads=arguments.threads, **options)
    shown = {"out": str(arguments.out)} | {name: made[name] for name in ("size", "parameters", "tokens", "seconds")}
    shown["right"] = {skill: f"{result['right']:.0%}" for skill, result in made["report"].items()}
    following = f"raisf ask ... --lm local/{arguments.out} --adapter pocket"
    return Outcome({"out": str(arguments.out), **made}, _made(shown, following).view)


LM_OPTIONS = ("api_base", "adapter", "temperature", "max_tokens", "timeout")
PROGRAM_OPTIONS = (
    "k",
    "max_depth",
    "relevance",
    "use_know",
    "use_relevance",
    "use_decomposition",
    "max_calls",
    "max_seconds",
)


def _program(arguments: argparse.Namespace) -> Any:
    return assemble.open_program(
        arguments.program,
        lm=arguments.lm,
        index=arguments.index,
        lm_options={name: getattr(arguments, name) for name in LM_OPTIONS},
        **{name: getattr(arguments, name) for name in PROGRAM_OPTIONS},
    )


def _made(facts: dict[str, Any], following: str) -> Outcome:
    """The outcome of a command that wrote something: what, and the command that comes next."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is None:
            continue
        shown = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(Text(name), Text(shown))
    return Outcome(facts, Group(table, Text(f"next: {following}", style="dim")))
