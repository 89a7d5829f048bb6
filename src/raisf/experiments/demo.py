"""The main job from end to end, offline: what `make demo` shows.

Each step is one that a command does by hand, and says which. What a step has made is kept: another run goes on there.
"""

import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf import __version__
from raisf.data.world.generator import HOME_SEED
from raisf.evaluation import QUESTIONS
from raisf.experiments.kept import read_kept
from raisf.experiments.opening import POCKET, LMChoice, open_fitting, open_program, without_cache
from raisf.retrieval.encoders.checkpoint import MINILM
from raisf.utils.display import as_text, console
from raisf.utils.files import sha256_file, write_json

if TYPE_CHECKING:
    from raisf.programs.trace import Trace
    from raisf.reports.report import ComparisonReport
    from raisf.retrieval.index import EngineName

# The compiled systems are called after the teleprompter behind each.
DEMO_COMPILED = ("prompts", "weights")
# What the passages may be searched with.
DEMO_ENGINES = ("colbert", "bm25")
# What is compared, by label: a program's name, or a compiled one.
DEMO_SYSTEMS = {"direct": "direct", "rag": "rag", "zero-shot": "ra-isf", **{how: how for how in DEMO_COMPILED}}
# Examples a judge's weights are trained on: a third of the paper's thousand, for a demo's patience.
ROWS = 300
# The system whose tree is shown.
SHOWN = "weights"
# Large enough for three splits, small enough to be indexed in a minute.
DEMO_ENTITIES = 900


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo ends with.

    Attributes:
        report: The comparison.
        page: Where its page lies.
        example: One question's tree.
        command: What shows that tree.
    """

    report: "ComparisonReport"
    page: Path
    example: "Trace"
    command: str


def run_demo(out: Path, *, questions: int, engine: "EngineName") -> DemoResult:
    """Builds the closed world and its index, compiles RA-ISF, and compares it with what it must beat.

    Args:
        out: A folder for everything that is made; what an earlier run left there is used.
        questions: How many test questions are answered.
        engine: The index's, "colbert" or "bm25".
    """
    world, index, folder = out / "world", out / f"index-{engine}", out / f"report-{engine}"
    artifacts: dict[str, Path] = {how: out / f"{how}-{engine}" for how in DEMO_COMPILED}
    made = _make_world(world, questions)
    _drop_stale(out, world)
    # Untrained: the shipped one has learnt from real questions, and the closed world is to owe nothing to these.
    make_index(f"2. Index its {made['passages']} passages with {engine}", world / "corpus.jsonl", index, engine, MINILM)
    for number, how in enumerate(DEMO_COMPILED, 3):
        _make_artifact(number, how, world, index, artifacts[how], out / "work")
    return result_of(_compare(world, index, artifacts, folder), folder, artifacts[SHOWN])


def result_of(report: "ComparisonReport", folder: Path, shown: Path) -> DemoResult:
    """A comparison, which lies in a folder, with the tree of a question that the program to be shown has answered."""
    from raisf.reports.report import PAGE

    question = _worth_showing(report.records[SHOWN].values())
    trace = without_cache(open_program(str(shown)))(question=question).trace
    return DemoResult(report, folder / PAGE, trace, ask_command(question, shown))


def ask_command(question: str, program: Path) -> str:
    """What asks a question, to be pasted into a shell."""
    asked = shlex.quote(question) if set(question) & set('"$`\\!') else f'"{question}"'
    return f"raisf ask {asked} --program {program}"


def _make_world(world: Path, questions: int) -> dict[str, Any]:
    from raisf.data.world.files import write_world

    step(
        "1. Make a closed world: a corpus, and questions with gold answers in three splits",
        f"raisf world --seed {HOME_SEED} --entities {DEMO_ENTITIES} --test {questions} --out {world}",
    )
    return write_world(world, HOME_SEED, DEMO_ENTITIES, counts={"test": questions})


def _drop_stale(out: Path, world: Path) -> None:
    from raisf.lm.pocket import path

    made_from = {"lm": sha256_file(path() / "model.safetensors")}
    made_from |= {name: sha256_file(world / f"{name}.jsonl") for name in ("corpus", "train", "dev")}
    drop_stale(out, made_from, "index", *DEMO_COMPILED)


def drop_stale(out: Path, made_from: dict[str, Any], *names: str) -> None:
    """Deletes what lies in a folder under such names, each with an engine's behind it, if it is not made from this.

    What another version made is deleted, too. What the folder is made from is noted after that: whoever was stopped in
    between deletes again.
    """
    made_from = {"version": __version__, **made_from}
    stamp = out / "made-from.json"
    if stamp.is_file() and read_kept(stamp, "what was made is made again") != made_from:
        for old in (out / f"{name}-{engine}" for name in names for engine in DEMO_ENGINES):
            if old.is_dir():
                shutil.rmtree(old)
    write_json(stamp, made_from)


def make_index(title: str, corpus: Path, index: Path, engine: "EngineName", checkpoint: str | None = None) -> None:
    """The step that indexes a corpus."""
    from raisf.retrieval.index import build_index

    encoder = f" --checkpoint {checkpoint}" if checkpoint and engine == "colbert" else ""
    if step(title, f"raisf index {corpus} --out {index} --engine {engine}{encoder}", done=index.exists()):
        build_index(corpus, index, engine=engine, checkpoint=checkpoint)


def _make_artifact(number: int, how: str, world: Path, index: Path, artifact: Path, work: Path) -> None:
    from raisf.data.questions import load_questions
    from raisf.optimize.artifact import save
    from raisf.optimize.compile import compile

    train, dev = world / "train.jsonl", world / "dev.jsonl"
    made = {
        "prompts": "few-shot prompts from the training split, selected on the dev split",
        "weights": "a LoRA adapter for each judge, trained on the training split, stopped by the dev split",
    }
    options: dict[str, Any] = {"threads": QUESTIONS} | ({"rows": ROWS} if how == "weights" else {})
    option = f" --rows {ROWS}" if "rows" in options else ""
    if step(
        f"{number}. Compile RA-ISF to {how}: {made[how]}",
        f"raisf compile --how {how}{option} --train {train} --dev {dev} --index {index} --out {artifact}",
        done=artifact.exists(),
    ):
        program = open_program("ra-isf", lm=LMChoice(POCKET), index=index)
        trainset, valset = load_questions(train), load_questions(dev)
        save(compile(program, trainset=trainset, valset=valset, how=how, work=work, **options), artifact)


def _compare(world: Path, index: Path, artifacts: dict[str, Path], out: Path) -> "ComparisonReport":
    from raisf.data.questions import load_questions
    from raisf.experiments.comparing import compare

    test = load_questions(world / "test.jsonl")
    names = {label: str(artifacts.get(name, name)) for label, name in DEMO_SYSTEMS.items()}
    listed = ",".join(name if label == Path(name).name else f"{label}={name}" for label, name in names.items())
    step(
        f"{3 + len(DEMO_COMPILED)}. Answer {len(test)} test questions with each of {len(names)} systems, and compare",
        f"raisf compare --programs {listed} --index {index} --test {world / 'test.jsonl'} --out {out}",
    )
    lms = {label: None if name in artifacts else LMChoice(POCKET) for label, name in DEMO_SYSTEMS.items()}
    programs = {label: open_fitting(name, lm=lms[label], index=index) for label, name in names.items()}
    title = "RA-ISF in the closed world: zero-shot, compiled to prompts, compiled to weights"
    told = f"{world / 'test.jsonl'}, {len(test)} questions"
    return compare(programs, test, out, threads=QUESTIONS, title=title, test=told)


def _worth_showing(records: Iterable[dict[str, Any]]) -> str:
    """A question that was broken down and answered right, if there is one: its tree has all there is to see."""
    rows = sorted(records, key=lambda row: row["id"])
    return max(rows, key=lambda row: row["route"] == "decomposed" and row["em"] == 1)["question"]


def step(title: str, *commands: str, done: bool = False) -> bool:
    """Says on standard error what comes next, and how it would be done by hand; gives whether it is not done yet."""
    say = console(stderr=True).print
    say(as_text(f"\n{title}" + (": stands already, from an earlier run" if done else ""), "bold"))
    for command in commands:
        say(as_text(f"   {command}", "dim"), soft_wrap=True)  # a command that can be copied has no line breaks
    return not done
