"""`raisf experiment`: a table or a figure of the papers by one command, on the closed world or on any data and LM."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raisf import __version__
from raisf.commands.command import GO_ON, argument, command, option
from raisf.commands.options import asked_on, lm_options, ray_option, threads_option
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, at_least
from raisf.experiments.opening import LMChoice

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
)


@command(
    "experiment",
    "  raisf experiment table1\n"
    "  raisf experiment all --n 500 --out reports/closed-world\n"
    "  raisf experiment table2 --data data/hotpotqa --lm local/PATH --out reports/hotpotqa\n"
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
    type=click.Choice(("colbert", "bm25")),
    default="colbert",
    help="of the corpus's index; default: colbert",
)
@option("--index", metavar="DIR", help="an index of the corpus, or its URL, instead of making one")
@option("--n", type=at_least(1), default=200, metavar="N", help="test questions; default: 200")
@option("--rows", type=at_least(2), metavar="N", help="examples a judge's weights learn from; default: 1000")
@option("--seed", type=int, default=0, metavar="N", help="of all training; default: 0")
@threads_option
@ray_option
@lm_options
def experiment_command(
    name: str,
    data: Path | None,
    out: Path,
    engine: str,
    index: str | None,
    n: int,
    rows: int | None,
    seed: int,
    threads: int,
    ray: str | None,
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
    workspace = Workspace(out, data, lm=lm, engine=engine, index=index, n=n, rows=rows, seed=seed, threads=threads)
    facts = {
        "data": f"{data}, {len(workspace.test)} test questions",
        "language model": lm.decided(index, workspace.test).spec,
        "seed": seed,
        "raisf": __version__,
    }
    names = NAMES if name == "all" else (name,)
    made: dict[str, list[Section]] = {}
    answered = [EXPERIMENTS[one].settings for one in names if not EXPERIMENTS[one].judged]
    with asked_on(ray, lm), WorkspaceBars(answered, len(workspace.test)) as bars:
        for one in names:
            made[one] = EXPERIMENTS[one].run(workspace, bars)
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
    return CommandResult({"out": str(out), "facts": facts, "experiments": tables}, view)


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
