"""`raisf experiment`: a table or a figure of the papers by one command, on the closed world or on any data and LM."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raisf import __version__
from raisf.commands.command import GO_ON, argument, command, command_line, option
from raisf.commands.experiments import NAMES, PAPERS, REAL, VARIANTS, check_told, listed
from raisf.commands.options import (
    TeacherChoice,
    as_one,
    asked_on,
    lm_options,
    ray_option,
    teacher_options,
    threads_option,
)
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, at_least, labelled, limits, names, some_names
from raisf.commands.values import sizes as some_sizes
from raisf.experiments.opening import LMChoice, given
from raisf.experiments.provenance import spoken_to, versions, without_credentials
from raisf.experiments.real_rows import MOST_TOKENS, RowChoice
from raisf.utils.errors import RaisfError

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace
    from raisf.reports.sections import Section

AS_GIVEN = "none: --index is searched as it is, passages that hold a question of a prompt too"

_real = functools.partial(option, heading=REAL)
row_options = as_one(
    "choice",
    RowChoice,
    option(
        "--program",
        "programs",
        type=labelled,
        multiple=True,
        metavar="LABEL=NAME",
        help="instead of compiling RA-ISF take this artifact, a folder or smollm2, which ships: for weights or "
        "prompts; for prompts-labeled, prompts-random, weights-judges or weights-all of real, where another label "
        "adds a row",
    ),
    option(
        "--only",
        type=some_names,
        callback=lambda context, parameter, value: value or (),
        metavar="A,B,...",
        help="only these rows, by their labels (not with all, data-efficiency); real also shows rows answered before",
    ),
    _real("--no-judges", is_flag=True, help="do not measure each judge alone against gold"),
    _real(
        "--page",
        type=FILE,
        metavar="FILE",
        help="also write the tables into a Markdown page, below what is there already; data-efficiency has this "
        "option too, and adds its figure",
    ),
)


@command(
    "experiment",
    "  raisf experiment table1\n"
    "  raisf experiment table1 --only 'rag,rag, few-shot,ra-isf, weights'\n"
    "  raisf experiment all --n 500 --out reports/closed-world\n"
    "  raisf experiment table2 --data data/hotpotqa --lm local/PATH --out reports/hotpotqa\n"
    "  raisf experiment table1 --data data/nq --index indexes/wiki --lm openai/gpt-4o-mini --base local/PATH \\\n"
    "      --teacher openai/gpt-4o --out reports/nq\n"
    "  raisf experiment data-efficiency --data worlds/large --engine bm25 --sizes 50,100,200,500,1000\n"
    "  raisf experiment real --data data/real --only rag,weights-all --program weights-all=smollm2\n" + listed(),
    resume=GO_ON,
)
@argument(
    "name",
    type=click.Choice((*NAMES, REAL, "all")),
    metavar="NAME",
    help="which one (names below); all runs every paper's; all and real skip what cannot run (then exit code 1)",
)
@option(
    "--data",
    type=FILE,
    metavar="DIR",
    help="a folder with train.jsonl, dev.jsonl, test.jsonl and corpus.jsonl, as `raisf world` and `raisf "
    "dataset` write it; default: the pocket Llama's closed world, made in --out. For real: a folder of "
    "several such folders; default: HotpotQA, 2WikiMultihopQA and MuSiQue from the hub",
)
@option(
    "--out",
    type=FILE,
    default=Path("reports/experiments"),
    metavar="DIR",
    help="the folder for tables, figures, one page and all that is made on the way; default: reports/experiments",
)
@option(
    "--engine",
    type=click.Choice(("colbert", "bm25", "dense")),
    default="colbert",
    help="of the index that is made of the corpus; default: colbert",
)
@option(
    "--index",
    metavar="DIR",
    help="search this index (a folder or a URL) instead of making one of the corpus; rows with another "
    "engine search an index made of its passages",
)
@option(
    "--checkpoint",
    metavar="NAME",
    help="the encoder for indexes that are made, such as facebook/contriever-msmarco with --engine dense; "
    "default: minilm in a closed world and for dense, else raisf-minilm",
)
@option("--n", "--limit", "n", type=at_least(1), default=200, metavar="N", help="test questions; default: 200")
@option("--rows", type=at_least(2), metavar="N", help="training rows per judge (not data-efficiency); default: 1000")
@option(
    "--base",
    metavar="SPEC",
    help="the local LM on which the judges are trained, if another LM answers: "
    "local/meta-llama/Llama-2-7b-hf beside --lm openai/... is the paper's main setting; default: the --lm",
)
@option(
    "--bases",
    type=names,
    metavar="SPEC,SPEC",
    help="further bases of the judges for table3; default: pocket-tiny,pocket-t5 if pocket answers, else none",
)
@option(
    "--sizes",
    type=some_sizes,
    metavar="N,N,...",
    help="for data-efficiency: numbers of rows per judge; default: 50,100,200,500,1000",
)
@option(
    "--ways",
    type=limits,
    metavar="W,W=N,...",
    help="for data-efficiency: the ways of compiling; W=N tries W with at most N rows, as outcome's tries "
    "are costly; default: prompts,probe,weights,outcome",
)
@option("--zero-shot", is_flag=True, help="leave out the few-shot rows of table1 and blendfilter-main")
@option(
    "--variant",
    type=click.Choice(VARIANTS),
    default="weights",
    help="how RA-ISF is compiled in table2 and fig2 to fig4: take prompts if there is no local base; default: weights",
)
@option("--seed", type=int, default=0, metavar="N", help="seed of all training; default: 0")
@teacher_options
@threads_option
@ray_option
@row_options
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
    sizes: tuple[int, ...] | None,
    ways: dict[str, int | None] | None,
    zero_shot: bool,
    variant: str,
    seed: int,
    threads: int,
    ray: str | None,
    teacher: TeacherChoice,
    choice: RowChoice,
    lm: LMChoice,
) -> CommandResult:
    """Make the papers' tables and figures, with the papers' own figures beside yours; or compare on real text."""
    from raisf.data.world.files import write_world
    from raisf.experiments.data_efficiency import sizes_of_ways
    from raisf.experiments.learning import check_bases
    from raisf.experiments.workspace import Workspace
    from raisf.reports.markdown import check_page
    from raisf.reports.report import check_folder
    from raisf.utils.files import LOCK, locked

    told = {"--bases": bases, "--sizes": sizes, "--ways": ways, "--rows": rows, "--zero-shot": zero_shot}
    told |= {"--teacher": teacher.teacher, "--variant": variant != "weights", "--page": choice.page}
    told |= {"--program": choice.programs, "--no-judges": choice.no_judges, "--only": choice.only}
    check_told(name, told)
    by_way = sizes_of_ways(sizes, ways)
    check_folder(out, (*NAMES, REAL, "records", "judges", "made"))
    check_page(choice.page)
    labeller = teacher.open()
    check_bases({"--base": (base,), "--bases": bases or ()})
    options: dict[str, Any] = {"engine": engine, "index": index, "rows": rows, "seed": seed, "threads": threads}
    options |= {"checkpoint": checkpoint, "base": base, "teacher": labeller}
    with locked(out / LOCK, f"another experiment is writing into {out}: wait for it, or give another --out"):
        if name == REAL:
            lm = replace(lm.decided(), max_tokens=lm.max_tokens or MOST_TOKENS)
            with asked_on(ray, lm):
                return _real_text(out, data, choice, lm, n, options)
        variants = choice.of_papers()
        if data is None and not (data := out / "made" / "world").exists():
            write_world(data)
        workspace = Workspace(out, data, lm=lm, n=n, bases=bases, sizes=by_way, given=variants, **options)
        lm = workspace.lm
        facts: dict[str, Any] = {
            "data": f"{data}, {len(workspace.test)} test questions",
            "language model": spoken_to(lm),
            "base of the judges": base or lm.spec,
            "teacher": labeller.model if labeller else None,
            **choice.facts,
            "index": None,  # by experiment
            "passages left out": AS_GIVEN if index else None,
            "seed": seed,
            **_made_by(),
        }
        shown = {"few_shot": not zero_shot, "variant": variant, "only": choice.only}
        with asked_on(ray, lm):
            return _papers(out, PAPERS if name == "all" else (name,), workspace, choice.page, facts, shown)


def _papers(
    out: Path,
    chosen: Sequence[str],
    workspace: "Workspace",
    page: Path | None,
    facts: dict[str, Any],
    shown: dict[str, Any],
) -> CommandResult:
    """Experiments of the papers, each written when it is done; of several, one that cannot be run is passed over."""
    from raisf.experiments.bars import WorkspaceBars
    from raisf.experiments.catalog import EXPERIMENTS
    from raisf.experiments.pages import write_experiment, write_page_of_all
    from raisf.reports.markdown import write_markdown

    made: dict[str, list[Section]] = {}
    rows_of = {one: EXPERIMENTS[one].rows(workspace, **shown) for one in chosen}
    workspace.learning.check_given([setting for rows in rows_of.values() for setting in rows.values()])
    answering = [settings for one, settings in rows_of.items() if not EXPERIMENTS[one].judged]
    left_out: dict[str, dict[str, str]] = {}
    outputs: dict[str, tuple[int, int]] = {}
    failed: dict[str, RaisfError] = {}
    with WorkspaceBars(answering, len(workspace.test)) as bars:
        for one in chosen:
            try:
                made[one] = EXPERIMENTS[one].run(workspace, bars, **shown)
            except RaisfError as error:
                if len(chosen) == 1 or workspace.lm_down:
                    raise
                failed[one] = error
                continue
            left_out[one] = workspace.left_out
            outputs |= {f"{name} in {one}": told for name, told in workspace.outputs.items()}
            facts["index"] = workspace.searched(rows_of[one])
            write_experiment(out, one, facts, made[one], workspace.files(rows_of[one]))
            if page is not None:
                write_markdown(page, EXPERIMENTS[one].title, given(facts), made[one], figures=True)
    if failed:
        _check_some(made, failed)
        facts["not run"] = _reasons(failed)
        write_page_of_all(out, facts)
    return _result(out, facts, made, left_out, outputs, failed)


def _check_some(made: "dict[str, list[Section]]", failed: Mapping[str, RaisfError]) -> None:
    """Tells of experiments of which none could be run; it is the user's mistake where each was."""
    if not made:
        error = RaisfError(f"no experiment can be run: {_reasons(failed)}")
        error.exit_code = min(one.exit_code for one in failed.values())
        raise error from next(iter(failed.values()))


def _reasons(failed: Mapping[str, RaisfError]) -> str:
    """Why experiments could not be run, each reason once."""
    from raisf.utils.text import by_reason

    found = by_reason({name: str(error) for name, error in failed.items()})
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in found.items())


def _real_text(
    out: Path, data: Path | None, choice: RowChoice, lm: LMChoice, n: int, options: dict[str, Any]
) -> CommandResult:
    """The comparison on real text; its tables are written after each row."""
    from raisf.experiments.bars import WorkspaceBars
    from raisf.experiments.pages import write_experiment
    from raisf.experiments.real import RealComparison, open_workspaces
    from raisf.reports.markdown import write_markdown

    workspaces = open_workspaces(out / REAL, data, choice, lm=lm, n=n, **options)
    wanted = {label: row for label, row in choice.rows().items() if not choice.only or label in choice.only}
    facts: dict[str, Any] = {
        "data": ", ".join(f"{name} ({len(one.test)} test questions)" for name, one in workspaces.items()),
        "language model": spoken_to(lm),
        **choice.facts,
        **given({"base of the judges": options["base"], "teacher": getattr(options["teacher"], "model", None)}),
        **given({"passages left out": AS_GIVEN if options["index"] else None}),
        "seed": options["seed"],
        **_made_by(),
    }
    sections: list[Section] = []
    with WorkspaceBars([wanted], sum(len(one.test) for one in workspaces.values())) as bars:
        comparison = RealComparison(workspaces, choice)
        for sections in comparison.run(bars):
            write_experiment(out, REAL, facts, sections, comparison.files)
            for page in (out / REAL / "real.md", *([choice.page] if choice.page else [])):
                write_markdown(page, "Real text", facts, sections)
    result = _result(out, facts, {REAL: sections}, {REAL: comparison.left_out}, comparison.outputs)
    return replace(result, exit_code=1) if comparison.left_out else result


def _made_by() -> dict[str, Any]:
    return {"raisf": __version__, "versions": versions(), "command": without_credentials(command_line())}


def _result(
    out: Path,
    facts: dict[str, Any],
    made: "dict[str, list[Section]]",
    left_out: Any,
    outputs: Mapping[str, tuple[int, int]],
    failed: Mapping[str, RaisfError] | None = None,
) -> CommandResult:
    """The result. Rows of which most outputs could not be read are named; where all are such, the run has failed."""
    from rich.console import Group

    from raisf.evaluation.readability import unreadable_line
    from raisf.reports.report import PAGE
    from raisf.utils.display import as_text

    shown = [section.view() for sections in made.values() for section in sections]
    tables = {one: [section.as_dict() for section in sections] for one, sections in made.items()}
    told = [as_text(f"\nnot run: {_reasons(failed)}", "yellow")] if failed else []
    unread = unreadable_line(outputs)
    told += [as_text(f"\n{unread}", "red")] if unread else []
    view = Group(*shown, *told, as_text(f"\nreport: {out / PAGE}"))
    data: dict[str, Any] = {"out": str(out), "facts": facts, "experiments": tables, "left_out": left_out}
    data |= {"not_run": {name: str(error) for name, error in (failed or {}).items()}, "unreadable": unread or None}
    unreadable = bool(outputs) and all(2 * part > whole for part, whole in outputs.values())
    return CommandResult(data, view, exit_code=1 if failed or unreadable else 0)
