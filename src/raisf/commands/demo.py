"""The main job from end to end, offline: what `make demo` shows.

Each step is one that a command does by hand, and says which. What a step has made is kept: another run goes on there.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.text import Text

from raisf import __version__
from raisf.commands import assemble
from raisf.commands.outcome import Outcome
from raisf.data.world.generator import HOME_SEED
from raisf.utils.files import read_json, sha256_file, write_json

if TYPE_CHECKING:
    from raisf.reports.sections import Section
    from raisf.retrieval.index import EngineName

# The compiled systems are called after the teleprompter behind each.
COMPILED = ("prompts", "weights")
# What is compared, by label: a program's name, or a compiled one.
SYSTEMS = {"direct": "direct", "rag": "rag", "zero-shot": "ra-isf", **{how: how for how in COMPILED}}
# Examples a judge's weights are trained on: a third of the paper's thousand, for a demo's patience.
ROWS = 300
# The system whose tree is shown, and the sections of the report that are.
SHOWN = "weights"
SECTIONS = ("answers", "cost", "routes", "judge-know", "judge-relevance", "judge-decomposition")
# Large enough for three splits, small enough to be indexed in a minute.
ENTITIES = 900


def run_demo(out: Path, *, questions: int, engine: "EngineName") -> Outcome:
    """Builds the closed world and its index, compiles RA-ISF, and compares it with what it must beat.

    Args:
        out: A folder for everything that is made; what an earlier run left there is used.
        questions: How many test questions are answered.
        engine: The index's, "colbert" or "bm25".

    Returns:
        The comparison as tables, and one question's tree.
    """
    from raisf.programs.trace import render
    from raisf.reports.report import PAGE

    world, index = out / "world", out / f"index-{engine}"
    artifacts: dict[str, Path] = {how: out / f"{how}-{engine}" for how in COMPILED}
    made = _make_world(world, questions)
    if _is_stale(out, world):
        for folder in (*out.glob("index-*"), *(found for how in COMPILED for found in out.glob(f"{how}-*"))):
            shutil.rmtree(folder)
    _make_index(world, index, engine, made["passages"])
    for step, how in enumerate(COMPILED, 3):
        _make_artifact(step, how, world, index, artifacts[how], out / "work")
    data, sections, records = _compare(world, index, artifacts, out / f"report-{engine}")
    question = _worth_showing(records)
    best = artifacts[SHOWN]
    trace = assemble.without_cache(assemble.open_program(str(best)))(question=question).trace
    asked = Text(f'\nOne question\'s tree: raisf ask "{question}" --program {best}\n', style="bold")
    page = Text(f"\nThe report, with plots and paired tests: {out / f'report-{engine}' / PAGE}", style="bold")
    shown = (sections[name].view() for name in SECTIONS if name in sections)
    return Outcome({**data, "example": trace.model_dump(mode="json")}, Group(*shown, asked, render(trace), page))


def _make_world(world: Path, questions: int) -> dict[str, Any]:
    from raisf.data.world.files import write_world

    _step(
        "1. Make a closed world: a corpus, and questions with gold answers in three splits",
        f"raisf world --seed {HOME_SEED} --entities {ENTITIES} --test {questions} --out {world}",
    )
    return write_world(world, HOME_SEED, ENTITIES, counts={"test": questions})


def _is_stale(out: Path, world: Path) -> bool:
    """Whether an earlier run worked on another world, with another version or for other weights."""
    from raisf.lm.pocket import path

    made_from = {"version": __version__, "lm": sha256_file(path() / "model.safetensors")}
    made_from |= {name: sha256_file(world / f"{name}.jsonl") for name in ("corpus", "train", "dev")}
    stamp = out / "made-from.json"
    stale = stamp.is_file() and read_json(stamp) != made_from
    write_json(stamp, made_from)
    return stale


def _make_index(world: Path, index: Path, engine: "EngineName", passages: int) -> None:
    from raisf.retrieval.index import build_index

    _step(
        f"2. Index its {passages} passages with {engine}",
        f"raisf index {world / 'corpus.jsonl'} --out {index} --engine {engine}",
        done=index.exists(),
    )
    if not index.exists():
        build_index(world / "corpus.jsonl", index, engine=engine)


def _make_artifact(step: int, how: str, world: Path, index: Path, artifact: Path, work: Path) -> None:
    from raisf.data.questions import load_questions
    from raisf.optimize.artifact import save
    from raisf.optimize.compile import compile

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


def _compare(
    world: Path, index: Path, artifacts: dict[str, Path], out: Path
) -> "tuple[dict[str, Any], dict[str, Section], list[dict[str, Any]]]":
    """The comparison's data, its sections, and the records of the system that is shown."""
    from raisf.commands.comparing import compare_all, open_fitting
    from raisf.data.questions import load_questions
    from raisf.reports.report import check_folder

    test = load_questions(world / "test.jsonl")
    names = {label: str(artifacts.get(name, name)) for label, name in SYSTEMS.items()}
    listed = ",".join(name if label == Path(name).name else f"{label}={name}" for label, name in names.items())
    _step(
        f"{3 + len(COMPILED)}. Answer {len(test)} test questions with each of {len(SYSTEMS)} systems, and compare",
        f"raisf compare --programs {listed} --index {index} --test {world / 'test.jsonl'} --out {out}",
    )
    check_folder(out)
    programs = {label: open_fitting(name, index=index) for label, name in names.items()}
    title = "RA-ISF in the closed world: zero-shot, compiled to prompts, compiled to weights"
    asked = f"{world / 'test.jsonl'}, {len(test)} questions"
    data, sections, records = compare_all(programs, test, out, title, asked)
    return data, sections, list(records[SHOWN].values())


def _worth_showing(records: list[dict[str, Any]]) -> str:
    """A question that was broken down and answered right, if there is one: its tree has all there is to see."""
    rows = sorted(records, key=lambda row: row["id"])
    return max(rows, key=lambda row: row["route"] == "decomposed" and row["em"] == 1)["question"]


def _step(title: str, *commands: str, done: bool = False) -> None:
    """Says on standard error what comes next, and how it would be done by hand."""
    say = Console(stderr=True, highlight=False).print
    say(Text(f"\n{title}" + (": stands already, from an earlier run" if done else ""), style="bold"))
    for command in commands:
        say(Text(f"   {command}", style="dim"), soft_wrap=True)  # a command that can be copied has no line breaks
