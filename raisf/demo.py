"""The main job from end to end, offline: what `make demo` shows.

Each step is one that a command does by hand, and says which. What a step has made is kept: another run goes on there.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from data.files import read_json, read_jsonl, sha256_file, write_json
from data.world import HOME_SEED
from raisf import __version__, assemble
from raisf.outcome import Outcome

if TYPE_CHECKING:
    from evaluation.report import Report
    from retrieval.index import Engine

COMPILED = "ra-isf compiled"
SYSTEMS = ("direct", "rag", "ra-isf", COMPILED)
# The means a question that the table shows, with the digits that matter.
COSTS = {"lm_calls": 1, "retrievals": 1, "seconds": 2}
ROUTES = ("direct", "passages", "decomposed")


def run_demo(out: Path, *, questions: int, engine: "Engine") -> Outcome:
    """Builds the closed world and its index, compiles RA-ISF, and compares it with what it must beat.

    Args:
        out: A folder for everything that is made; what an earlier run left there is used.
        questions: How many test questions are answered.
        engine: The index's, "colbert" or "bm25".

    Returns:
        The comparison as tables, and one question's tree.
    """
    from programs.trace import render

    world, index, artifact = out / "world", out / f"index-{engine}", out / f"compiled-{engine}"
    made = _make_world(world, questions)
    if _is_stale(out, world):
        for folder in (*out.glob("index-*"), *out.glob("compiled-*")):
            shutil.rmtree(folder)
    _make_index(world, index, engine, made["passages"])
    _make_artifact(world, index, artifact)
    reports, records = _evaluate(world, index, artifact, out / "records")
    question = _worth_showing(records)
    trace = assemble.without_cache(assemble.open_program(str(artifact)))(question=question).trace
    asked = Text(f'\nOne question\'s tree: raisf ask "{question}" --program {artifact}\n', style="bold")
    systems = {system: report.as_dict() for system, report in reports.items()}
    return Outcome(
        {"systems": systems, "example": trace.model_dump(mode="json")},
        Group(_comparison(reports), _routes(reports), asked, render(trace)),
    )


def _make_world(world: Path, questions: int) -> dict[str, Any]:
    from data.world_questions import write_world

    _step(
        "1. Make a closed world: a corpus, and questions with gold answers in three splits",
        f"raisf world --seed {HOME_SEED} --test {questions} --out {world}",
    )
    return write_world(world, HOME_SEED, counts={"test": questions})


def _is_stale(out: Path, world: Path) -> bool:
    """Whether an earlier run worked on another world, with another version or for other weights."""
    from lm.pocket import path

    made_from = {"version": __version__, "lm": sha256_file(path() / "model.safetensors")}
    made_from |= {name: sha256_file(world / f"{name}.jsonl") for name in ("corpus", "train", "dev")}
    stamp = out / "made-from.json"
    stale = stamp.is_file() and read_json(stamp) != made_from
    write_json(stamp, made_from)
    return stale


def _make_index(world: Path, index: Path, engine: "Engine", passages: int) -> None:
    from retrieval.index import build_index

    _step(
        f"2. Index its {passages} passages with {engine}",
        f"raisf index {world / 'corpus.jsonl'} --out {index} --engine {engine}",
        done=index.exists(),
    )
    if not index.exists():
        build_index(world / "corpus.jsonl", index, engine=engine)


def _make_artifact(world: Path, index: Path, artifact: Path) -> None:
    from data.questions import load_questions
    from optimize.artifact import save
    from optimize.compile import compile

    train, dev = world / "train.jsonl", world / "dev.jsonl"
    _step(
        "3. Compile RA-ISF: few-shot prompts from the training split, selected on the dev split",
        f"raisf compile --train {train} --dev {dev} --index {index} --out {artifact}",
        done=artifact.exists(),
    )
    if not artifact.exists():
        program = assemble.open_program("ra-isf", index=index)
        save(compile(program, trainset=load_questions(train), valset=load_questions(dev)), artifact)


def _evaluate(world: Path, index: Path, artifact: Path, records: Path) -> "tuple[dict[str, Report], Path]":
    """Each system's report, and where the compiled one's records are."""
    from data.questions import load_questions
    from evaluation.runner import evaluate

    test = load_questions(world / "test.jsonl")
    commands, programs = [], {}
    for system in SYSTEMS:
        name = str(artifact) if system == COMPILED else system
        given = index if system in ("rag", "ra-isf") else None
        programs[system] = assemble.without_cache(assemble.open_program(name, index=given))
        option = f" --index {given}" if given else ""
        commands.append(f"raisf eval --program {name}{option} --test {world / 'test.jsonl'}")
    _step(f"4. Answer {len(test)} test questions with each of {len(SYSTEMS)} systems", *commands)
    paths = {
        system: assemble.records_path(records, system.replace(" ", "-"), program, test)
        for system, program in programs.items()
    }
    reports = {system: evaluate(program, test, paths[system]) for system, program in programs.items()}
    return reports, paths[COMPILED]


def _worth_showing(records: Path) -> str:
    """A question that was broken down and answered right, if there is one: its tree has all there is to see."""
    rows = sorted(read_jsonl(records), key=lambda row: row["id"])
    return max(rows, key=lambda row: row["route"] == "decomposed" and row["em"] == 1)["question"]


def _comparison(reports: "dict[str, Report]") -> Table:
    n = reports[COMPILED].em.n
    table = Table(title=f"\n{n} test questions; 95% bootstrap interval; costs a question", title_justify="left")
    table.add_column("system", no_wrap=True)
    for heading in ("exact match", "F1", "LM calls", "retrievals", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for system, report in reports.items():
        cost = (f"{report.cost.get(name, 0):.{digits}f}" for name, digits in COSTS.items())
        em = f"{100 * report.em.value:.1f} [{100 * report.em.low:.1f}, {100 * report.em.high:.1f}]"
        table.add_row(system, em, f"{100 * report.f1.value:.1f}", *cost)
    return table


def _routes(reports: "dict[str, Report]") -> Table:
    table = Table(title="\nShare of the questions that each route settles (of these right)")
    table.title_justify = "left"
    table.add_column("system")
    for heading in (*ROUTES, "no answer"):
        table.add_column(heading, justify="right")
    for system, report in reports.items():
        settled = [report.routes.get(route) for route in ROUTES]
        rest = 1 - sum(route.share for route in settled if route)
        cells = [f"{route.share:.0%} ({route.correct:.0%})" if route else "-" for route in settled]
        table.add_row(system, *cells, f"{rest:.0%}")
    return table


def _step(title: str, *commands: str, done: bool = False) -> None:
    """Says on standard error what comes next, and how it would be done by hand."""
    say = Console(stderr=True, highlight=False).print
    say(Text(f"\n{title}" + (": stands already, from an earlier run" if done else ""), style="bold"))
    for command in commands:
        say(Text(f"   {command}", style="dim"), soft_wrap=True)  # a command that can be copied has no line breaks
