"""`raisf experiment`: a table or a figure of the papers by one command, on the closed world or on any data and LM."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raisf import __version__
from raisf.commands.command import GO_ON, argument, command, option
from raisf.commands.options import TeacherChoice, lm_options, teacher_options, threads_option
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, at_least, specs
from raisf.experiments.opening import DEFAULT_LM, LMChoice

if TYPE_CHECKING:
    from raisf.reports.sections import Section

# Named here a second time, beside raisf.experiments.catalog, because reading that imports dspy, which `raisf --help`
# must not.
NAMES = (
    "table1",
    "table2",
    "fig2",
    "table3",
    "table4",
    "table5",
    "fig3",
    "fig4",
    "table7",
    "blendfilter-main",
    "blendfilter-bm25",
    "blendfilter-queries",
    "blendfilter-retrieval",
    "blendfilter-k",
    "blendfilter-sampling",
    "blendfilter-cases",
)


@command(
    "experiment",
    "  raisf experiment table1\n"
    "  raisf experiment all --n 500 --out reports/closed-world\n"
    "  raisf experiment table2 --data data/hotpotqa --lm local/PATH --out reports/hotpotqa\n"
    "  raisf experiment table1 --data data/nq --index indexes/wiki --lm openai/gpt-4o-mini --base local/PATH \\\n"
    "      --teacher openai/gpt-4o --out reports/nq\n"
    f"names: {', '.join(NAMES)}",
    resume=GO_ON,
)
@argument("name", type=click.Choice((*NAMES, "all")), metavar="NAME", help="which one; all runs every one")
@option(
    "--data",
    type=FILE,
    metavar="DIR",
    help="train.jsonl, dev.jsonl, test.jsonl and corpus.jsonl, as `raisf world` and `raisf dataset` write them; "
    "default: the closed world that the pocket Llama has heard of, made in --out",
)
@option(
    "--out",
    type=FILE,
    default=Path("reports/experiments"),
    metavar="DIR",
    help="where tables, figures, one page and all that was made go; default: reports/experiments",
)
@option(
    "--engine",
    type=click.Choice(("colbert", "bm25", "dense")),
    default="colbert",
    help="of the corpus's index; default: colbert",
)
@option("--index", metavar="DIR", help="an index of the corpus, or its URL, instead of making one")
@option(
    "--checkpoint",
    metavar="NAME",
    help="the encoder of the indexes that are made, such as facebook/contriever-msmarco with --engine dense; default: "
    "minilm",
)
@option("--n", "--limit", "n", type=at_least(1), default=200, metavar="N", help="test questions; default: 200")
@option("--rows", type=at_least(2), metavar="N", help="examples a judge's weights learn from; default: 1000")
@option(
    "--base",
    metavar="SPEC",
    help="the local LM whose weights become the judges, such as local/meta-llama/Llama-2-7b-hf beside --lm openai/...: "
    "the paper's main setting; default: the --lm",
)
@option(
    "--bases",
    type=specs,
    metavar="SPEC,SPEC",
    help="other bases of the judges for table3; default: pocket-tiny,pocket-t5 where pocket answers, else none",
)
@option("--zero-shot", is_flag=True, help="leave out the few-shot rows of the baselines")
@option("--seed", type=int, default=0, metavar="N", help="of all training; default: 0")
@teacher_options
@threads_option
@lm_options
def experiment_command(
    name: str,
    data: Path | None,
    out: Path,
    engine: str,
    index: str | None,
    checkpoint: str | None,
    n: int,
    rows: int | None,
    base: str | None,
    bases: tuple[str, ...] | None,
    zero_shot: bool,
    seed: int,
    threads: int,
    teacher: TeacherChoice,
    lm: LMChoice,
) -> CommandResult:
    """Run a table or a figure of the papers, or all of them, with the papers' own figures beside ours."""
    from rich.console import Group

    from raisf.experiments.catalog import EXPERIMENTS
    from raisf.experiments.workspace import Workspace, WorkspaceBars
    from raisf.reports.report import PAGE, RESULTS, check_folder
    from raisf.utils.display import as_text
    from raisf.utils.files import write_json

    check_folder(out, (*NAMES, "records", "judges", "made"))
    data = data or _closed_world(out / "made" / "world")
    labeller = teacher.open()
    workspace = Workspace(
        out,
        data,
        lm=lm,
        engine=engine,
        index=index,
        checkpoint=checkpoint,
        n=n,
        rows=rows,
        base=base,
        bases=bases,
        teacher=labeller,
        seed=seed,
        threads=threads,
    )
    facts = {
        "data": f"{data}, {len(workspace.test)} test questions",
        "language model": lm.spec or DEFAULT_LM,
        "base of the judges": base or lm.spec or DEFAULT_LM,
        "teacher": labeller.model if labeller else None,
        "seed": seed,
        "raisf": __version__,
    }
    names = NAMES if name == "all" else (name,)
    made: dict[str, list[Section]] = {}
    few_shot = not zero_shot
    rows_of = {one: EXPERIMENTS[one].rows(workspace, few_shot=few_shot) for one in names}
    answered = [settings for one, settings in rows_of.items() if not EXPERIMENTS[one].judged]
    left_out: dict[str, dict[str, str]] = {}
    with WorkspaceBars(answered, len(workspace.test)) as bars:
        for one in names:
            made[one] = EXPERIMENTS[one].run(workspace, bars, few_shot=few_shot)
            left_out[one] = workspace.left_out
            folder = out / one
            folder.mkdir(exist_ok=True)
            for section in made[one]:
                section.write(folder)
            found = [{**section.as_dict(), "drawings": section.drawings} for section in made[one]]
            write_json(folder / RESULTS, {"experiment": one, "facts": facts, "sections": found})
            _write_page(out, facts)
    shown = [section.view() for sections in made.values() for section in sections]
    tables = {one: [section.as_dict() for section in sections] for one, sections in made.items()}
    view = Group(*shown, as_text(f"\nreport: {out / PAGE}"))
    return CommandResult({"out": str(out), "facts": facts, "experiments": tables, "left_out": left_out}, view)


def _closed_world(folder: Path) -> Path:
    from raisf.data.world.files import write_world
    from raisf.data.world.generator import HOME_SEED

    if not folder.exists():
        write_world(folder, HOME_SEED)
    return folder


def _write_page(out: Path, facts: dict[str, Any]) -> None:
    """One page of all experiments that were ever run into the folder."""
    from raisf.reports.page import write_page
    from raisf.reports.report import PAGE, RESULTS
    from raisf.reports.sections import Section
    from raisf.utils.files import read_json

    sections = []
    for name in NAMES:
        path = out / name / RESULTS
        if path.is_file():
            for number, saved in enumerate(read_json(path)["sections"]):
                section = Section.of(saved)
                section.title = f"{name}: {section.title}" if number == 0 else section.title
                section.drawings = saved["drawings"]
                sections.append(section)
    write_page(out / PAGE, "The papers' experiments", facts, sections)
