"""What each command does: gather the parts, let the rooms work, and give back an outcome."""

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from raisf.commands import assemble
from raisf.commands.options import LM_OPTIONS
from raisf.commands.outcome import Outcome, told
from raisf.utils.errors import InputError


def demo(arguments: argparse.Namespace) -> Outcome:
    """The main job from end to end."""
    from raisf.commands.demo import run_demo

    return run_demo(arguments.out, questions=arguments.questions, engine=arguments.engine)


def world(arguments: argparse.Namespace) -> Outcome:
    """Writes a closed world."""
    from raisf.data.world.files import write_world

    counts = {"train": arguments.train, "dev": arguments.dev, "test": arguments.test}
    summary = write_world(arguments.out, arguments.seed, arguments.entities, counts)
    following = f"raisf index {arguments.out / 'corpus.jsonl'} --out indexes/{arguments.out.name}"
    return told({"out": str(arguments.out), **summary}, following)


def ask(arguments: argparse.Namespace) -> Outcome:
    """Answers one question."""
    from raisf.programs.trace import render

    question = sys.stdin.read() if arguments.question == "-" else arguments.question
    if not question.strip():
        raise InputError("the question is empty: give one in quotes, or - to read it from standard input")
    prediction = _program(arguments)(question=question.strip())
    trace = prediction.trace
    return Outcome({"answer": prediction.answer, "trace": trace.model_dump(mode="json")}, render(trace))


def compile(arguments: argparse.Namespace) -> Outcome:
    """Compiles a program and saves it."""
    from raisf.commands.judging import calibration, told_labels
    from raisf.commands.prompting import prompt_options, show_candidates
    from raisf.commands.training import show_training, weight_options
    from raisf.data.questions import load_questions
    from raisf.optimize.artifact import save
    from raisf.optimize.compile import optimizer_named
    from raisf.utils.files import check_replaceable

    check_replaceable(arguments.out, "manifest.json")
    given = {**prompt_options(arguments), **weight_options(arguments)}
    given |= {name: getattr(arguments, name) for name in ("labels", "seed", "threads")}
    optimizer = optimizer_named(arguments.how, arguments.strategy, **given)
    thresholds = calibration(arguments)
    sets: dict[str, Any] = {"trainset": load_questions(arguments.train), "valset": load_questions(arguments.dev)}
    program = _program(arguments)
    if thresholds is not None:
        thresholds.check(program, sets["valset"])
    compiled: Any = optimizer.compile(program, **sets)
    if thresholds is not None:
        compiled = thresholds.compile(compiled, **sets)
    save(compiled, arguments.out)
    report = compiled.compile_report
    table = show_training(report) if arguments.how == "weights" else show_candidates(report)
    made = told(
        {"out": str(arguments.out), "seconds": report["seconds"], "LM calls": report["lm_calls"]},
        f"raisf eval --program {arguments.out} --test FILE",
    )
    view: list[RenderableType] = [table, *told_labels(report), made.view]
    if "calibration" in report:
        from raisf.commands.judging import show_calibration

        view.insert(1, show_calibration(report["calibration"]))
    return Outcome({"out": str(arguments.out), **report}, Group(*view))


def eval(arguments: argparse.Namespace) -> Outcome:
    """Evaluates a program, or one judge of it, on a file of questions."""
    if arguments.module:
        from raisf.commands.judging import evaluate_module

        return evaluate_module(arguments, _program(arguments, searches=arguments.module == "relevance"))
    from raisf.data.questions import load_questions
    from raisf.evaluation.readability import check_readable
    from raisf.evaluation.runner import evaluate

    examples = load_questions(arguments.test)[: arguments.limit]
    program = _program(arguments) if arguments.cache else assemble.without_cache(_program(arguments))
    name = f"{Path(arguments.program).name}-{arguments.test.stem}"
    out = arguments.out or assemble.records_path(Path("runs"), name, program, examples)
    report = evaluate(program, examples, out, threads=arguments.threads, fresh=arguments.fresh)
    check_readable({arguments.program: (report.unreadable, report.outputs)}, str(out))
    title = f"{arguments.program} on {arguments.test}"
    view = Group(report.table(title), Text(f"records: {out}"))
    return Outcome(
        {"program": arguments.program, "test": str(arguments.test), "out": str(out), **report.as_dict()}, view
    )


PROGRAM_OPTIONS = (
    "k",
    "max_depth",
    "relevance",
    "use_know",
    "use_relevance",
    "use_decomposition",
    "max_calls",
    "max_seconds",
    "know_threshold",
    "relevance_threshold",
)


def _program(arguments: argparse.Namespace, *, searches: bool = True) -> Any:
    return assemble.open_program(
        arguments.program,
        lm=arguments.lm,
        index=arguments.index,
        where=arguments.where,
        lm_options={name: getattr(arguments, name) for name in LM_OPTIONS},
        searches=searches,
        switches=dict(arguments.switches),
        **{name: getattr(arguments, name) for name in PROGRAM_OPTIONS},
    )
