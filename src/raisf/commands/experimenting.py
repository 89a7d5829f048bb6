"""`raisf experiment`: a table or a figure of the papers by one command, on the closed world or on any data and LM."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf import __version__
from raisf.commands import options
from raisf.commands.outcome import Outcome
from raisf.commands.parsing import add_command, at_least

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
RESULTS, PAGE = "results.json", "report.html"


def add_parsers(commands: Any) -> None:
    """Adds `experiment` to the subparsers of the command line."""
    parser = add_command(
        commands,
        "experiment",
        "run a table or a figure of the papers, or all of them, with the papers' own figures beside ours",
        "  raisf experiment table1\n"
        "  raisf experiment all --n 500 --out reports/closed-world\n"
        "  raisf experiment table2 --data data/hotpotqa --lm local/PATH --out reports/hotpotqa\n"
        f"names: {', '.join(NAMES)}",
        resume="run the same command again to go on where it stopped",
        home="experimenting",
    )
    parser.add_argument("name", choices=(*NAMES, "all"), metavar="NAME", help="which one; all runs every one")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="train.jsonl, dev.jsonl, test.jsonl and corpus.jsonl, as `raisf world` and `raisf dataset` write them; "
        "default: the closed world that the pocket Llama has heard of, made in --out",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("reports/experiments"),
        help="where tables, figures, one page and all that was made go; default: reports/experiments",
    )
    parser.add_argument(
        "--engine", choices=("colbert", "bm25"), default="colbert", help="of the corpus's index; default: colbert"
    )
    parser.add_argument("--index", metavar="DIR", help="an index of the corpus, or its URL, instead of making one")
    parser.add_argument("--n", type=at_least(1), default=200, help="test questions; default: 200")
    parser.add_argument(
        "--rows", type=at_least(2), metavar="N", help="examples a judge's weights learn from; default: 1000"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all training; default: 0")
    options.add_threads(parser)
    options.add_lm(parser)


def experiment(arguments: argparse.Namespace) -> Outcome:
    """Runs experiments and writes their tables, figures and one page."""
    from rich.console import Group
    from rich.text import Text

    from raisf.experiments.catalog import EXPERIMENTS
    from raisf.experiments.workspace import Lab, all_questions
    from raisf.reports.report import check_folder
    from raisf.utils.files import write_json

    out: Path = arguments.out
    check_folder(out, (*NAMES, "records", "judges", "made"))
    lab = Lab(
        out,
        arguments.data or _closed_world(out / "made" / "world"),
        lm=arguments.lm,
        lm_options={name: getattr(arguments, name) for name in options.LM_OPTIONS},
        engine=arguments.engine,
        index=arguments.index,
        n=arguments.n,
        rows=arguments.rows,
        seed=arguments.seed,
        threads=arguments.threads,
    )
    facts = {
        "data": f"{lab.data}, {len(lab.test)} test questions",
        "language model": arguments.lm or options.DEFAULT_LM,
        "seed": lab.seed,
        "raisf": __version__,
    }
    names = NAMES if arguments.name == "all" else (arguments.name,)
    made: dict[str, list[Section]] = {}
    answered = [EXPERIMENTS[name].settings for name in names if not EXPERIMENTS[name].judged]
    with all_questions(answered, len(lab.test)) as bars:
        for name in names:
            made[name] = EXPERIMENTS[name].run(lab, bars)
            folder = out / name
            folder.mkdir(exist_ok=True)
            for section in made[name]:
                section.write(folder)
            found = [{**section.as_dict(), "drawings": section.drawings} for section in made[name]]
            write_json(folder / RESULTS, {"experiment": name, "facts": facts, "sections": found})
            _write_page(out, facts)
    view = Group(
        *(section.view() for sections in made.values() for section in sections), Text(f"\nreport: {out / PAGE}")
    )
    data = {name: [section.as_dict() for section in sections] for name, sections in made.items()}
    return Outcome({"out": str(out), "facts": facts, "experiments": data}, view)


def _closed_world(folder: Path) -> Path:
    from raisf.data.world.files import write_world
    from raisf.data.world.generator import HOME_SEED

    if not folder.exists():
        write_world(folder, HOME_SEED)
    return folder


def _write_page(out: Path, facts: dict[str, Any]) -> None:
    """One page of all experiments that were ever run into the folder."""
    from raisf.reports.page import write_page
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
