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
    from optimize.compile import How
    from retrieval.index import Engine

# How the compiled systems are called, and the teleprompter behind each.
COMPILED: "dict[str, How]" = {"ra-isf, prompts": "prompts", "ra-isf, weights": "weights"}
SYSTEMS = ("direct", "rag", "ra-isf", *COMPILED)
# Examples a judge's weights are trained on: a third of the paper's thousand, for a demo's patience.
ROWS = 300
# The means a question that the table shows, with the digits that matter.
COSTS = {"lm_calls": 1, "retrievals": 1, "seconds": 2}
ROUTES = ("direct", "passages", "decomposed")
# The system whose tree is shown.
SHOWN = "ra-isf, weights"
# Large enough for three splits, small enough to be indexed in a minute.
ENTITIES = 900


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

    world, index = out / "world", out / f"index-{engine}"
    artifacts = {system: out / f"{how}-{engine}" for system, how in COMPILED.items()}
    made = _make_world(world, questions)
    if _is_stale(out, world):
        for folder in (*out.glob("index-*"), *(found for how in COMPILED.values() for found in out.glob(f"{how}-*"))):
            shutil.rmtree(folder)
    _make_index(world, index, engine, made["passages"])
    for step, (system, how) in enumerate(COMPILED.items(), 3):
        _make_artifact(step, how, world, index, artifacts[system], out / "work")
    reports, records = _evaluate(world, index, artifacts, out / "records")
    question = _worth_showing(records)
    best = artifacts[SHOWN]
    trace = assemble.without_cache(assemble.open_program(str(best)))(question=question).trace
    asked = Text(f'\nOne question\'s tree: raisf ask "{question}" --program {best}\n', style="bold")
    systems = {system: report.as_dict() for system, report in reports.items()}
    return Outcome(
        {"systems": systems, "example": trace.model_dump(mode="json")},
        Group(_comparison(reports), _routes(reports), asked, render(trace)),
    )


def _make_world(world: Path, questions: int) -> dict[str, Any]:
    from data.world_files import write_world

    _step(
        "1. Make a closed world: a corpus, and questions with gold answers in three splits",
        f"raisf world --seed {HOME_SEED} --entities {ENTITIES} --test {questions} --out {world}",
    )
    return write_world(world, HOME_SEED, ENTITIES, counts={"test": questions})


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


def _make_artifact(step: int, how: "How", world: Path, index: Path, artifact: Path, work: Path) -> None:
    from data.questions import load_questions
    from optimize.artifact import save
    from optimize.compile import compile

    train, dev = world / "train.jsonl", world / "dev.jsonl"
    made = {
        "prompts": "few-shot prompts from the training split, selected on the dev split",
        "weights": "a LoRA adapter for each judge, trained on the training split, stopped by the dev split",
    }
    rows: dict[str, Any] = {"rows": ROWS} if how == "weights" else {}
    option = f" --rows {ROWS}" if rows else ""
    _step(
        f"{step}. Compile RA-ISF to {how}: {made[how]}",
        f"raisf compile --how {how}{option} --train {train} --dev {dev} --index {index} --out {artifact}",
        done=artifact.exists(),
    )
    if not artifact.exists():
        program = assemble.open_program("ra-isf", index=index)
        trainset, valset = load_questions(train), load_questions(dev)
        save(compile(program, trainset=trainset, valset=valset, how=how, work=work, **rows), artifact)


def _evaluate(world: Path, index: Path, artifacts: dict[str, Path], records: Path) -> "tuple[dict[str, Report], Path]":
    """Each system's report, and where the records of the one that is shown are."""
    from data.questions import load_questions
    from evaluation.runner import evaluate

    test = load_questions(world / "test.jsonl")
    commands, programs = [], {}
    for system in SYSTEMS:
        name = str(artifacts.get(system, system))
        given = index if system in ("rag", "ra-isf") else None
        programs[system] = assemble.without_cache(assemble.open_program(name, index=given))
        option = f" --index {given}" if given else ""
        commands.append(f"raisf eval --program {name}{option} --test {world / 'test.jsonl'}")
    _step(f"{3 + len(COMPILED)}. Answer {len(test)} test questions with each of {len(SYSTEMS)} systems", *commands)
    paths = {
        system: assemble.records_path(records, system.replace(", ", "-"), program, test)
        for system, program in programs.items()
    }
    reports = {system: evaluate(program, test, paths[system]) for system, program in programs.items()}
    return reports, paths[SHOWN]


def _worth_showing(records: Path) -> str:
    """A question that was broken down and answered right, if there is one: its tree has all there is to see."""
    rows = sorted(read_jsonl(records), key=lambda row: row["id"])
    return max(rows, key=lambda row: row["route"] == "decomposed" and row["em"] == 1)["question"]


def _comparison(reports: "dict[str, Report]") -> Table:
    n = reports[SHOWN].em.n
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
