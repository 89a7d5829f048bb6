"""`raisf compare`: programs on the same questions, beside each other, with the report that comes of it."""

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf import __version__
from raisf.commands import assemble, options
from raisf.commands.outcome import Outcome
from raisf.commands.parsing import add_command, at_least
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from raisf.reports.sections import Section

Records = dict[str, dict[str, Any]]
JUDGES = ("know", "relevance", "decomposition")


def add_parsers(commands: Any) -> None:
    """Adds `compare` to the subparsers of the command line."""
    parser = add_command(
        commands,
        "compare",
        "compare programs on the same questions: scores, paired tests, routes, judges, cost; a page with plots",
        "  raisf compare --programs direct,rag,zero-shot=ra-isf,artifacts/prompts,artifacts/weights \\\n"
        "      --test worlds/home/test.jsonl --index indexes/home --out reports/home\n"
        "  raisf compare --programs ra-isf,artifacts/a --lm openai/gpt-4o-mini --index indexes/mine \\\n"
        "      --test test.jsonl --out reports/mine",
        resume="run the same command again to go on where it stopped",
        home="comparing",
    )
    parser.add_argument(
        "--programs",
        type=_named,
        required=True,
        metavar="A,B,...",
        help="names that `raisf programs` lists and folders made by `raisf compile`; LABEL=NAME calls one by a label",
    )
    parser.add_argument("--test", type=Path, required=True, help="questions (JSON or JSON Lines)")
    parser.add_argument(
        "--out", type=Path, required=True, help="the report's folder: results.json, tables as CSV, report.html"
    )
    parser.add_argument("--limit", type=at_least(1), metavar="N", help="only the first N questions")
    parser.add_argument(
        "--no-judges", dest="judges", action="store_false", help="do not ask the judges alone and hold them to gold"
    )
    options.add_labels(parser)
    options.add_threads(parser)
    group = parser.add_argument_group("all programs")
    options.add_index(group)
    group.add_argument("--k", type=at_least(1), help="passages a retrieval; default: 5")
    options.add_lm(parser)


def compare(arguments: argparse.Namespace) -> Outcome:
    """Compares programs and writes the report."""
    from rich.console import Group
    from rich.text import Text

    from raisf.data.questions import load_questions
    from raisf.reports.report import PAGE, check_folder

    check_folder(arguments.out)
    examples = load_questions(arguments.test)[: arguments.limit]
    lm_options = {name: getattr(arguments, name) for name in options.LM_OPTIONS}
    programs = {
        label: open_fitting(
            name, lm=arguments.lm, index=arguments.index, where=arguments.where, lm_options=lm_options, k=arguments.k
        )
        for label, name in arguments.programs.items()
    }
    data, sections, _ = compare_all(
        programs,
        examples,
        arguments.out,
        f"{len(programs)} programs on {arguments.test.stem}",
        f"{arguments.test}, {len(examples)} questions",
        judges=arguments.judges,
        labels=arguments.labels,
        threads=arguments.threads,
    )
    view = Group(*(section.view() for section in sections.values()), Text(f"\nreport: {arguments.out / PAGE}"))
    return Outcome({"out": str(arguments.out), **data}, view)


def compare_all(
    programs: Mapping[str, Any],
    examples: Sequence[Any],
    out: Path,
    title: str,
    test: str,
    *,
    judges: bool = True,
    labels: Any = "model",
    threads: int = 8,
) -> "tuple[dict[str, Any], dict[str, Section], dict[str, Records]]":
    """Lets programs answer the same questions, holds their judges to gold, and writes the report.

    Returns:
        What results.json holds, the sections by name, and every program's records by its label.

    Raises:
        LMError: Most LM outputs of a program or judge could not be read; the report is written.
    """
    from raisf.evaluation.readability import check_readable
    from raisf.reports.report import output_counts, write_report

    records = answer_all(programs, examples, out / "records", threads=threads)
    judged = judge_all(programs, examples, out / "judges", labels=labels, threads=threads) if judges else {}
    compiled = {label: getattr(program, "compile_report", None) for label, program in programs.items()}
    facts = {"test": test, "raisf": __version__}
    written = write_report(out, title, facts, records, judged, compiled)
    check_readable(output_counts(records, judged), str(out))
    return *written, records


def open_fitting(name: str, *, index: Any = None, where: str | None = None, **given: Any) -> Any:
    """`assemble.open_program`, without the index and the options for which a program has no use."""
    from raisf.programs.registry import PROGRAMS, defaults

    if name in PROGRAMS:
        known = defaults(PROGRAMS[name])
        given = {key: value for key, value in given.items() if key in (*known, "lm", "lm_options")}
        if name in options.FROM_MEMORY and index is not None:
            index = where = None
    return assemble.open_program(name, index=index, where=where, **given)


def answer_all(
    programs: Mapping[str, Any],
    examples: Sequence[Any],
    folder: Path,
    *,
    threads: int = 8,
    bars: "bool | Progress" = True,
) -> dict[str, Records]:
    """By label, a program's records of the questions by their ids; those that are in the folder are not made again."""
    from raisf.evaluation.runner import evaluate, progress_bar
    from raisf.utils.files import read_jsonl

    records = {}
    with progress_bar(bars) as shown:
        for label, program in programs.items():
            program = assemble.without_cache(program)
            path = assemble.records_path(folder, program.system, program, examples)
            evaluate(program, examples, path, threads=threads, progress=shown, name=label)
            records[label] = {record["id"]: record for record in read_jsonl(path)}
    return records


def judge_all(
    programs: Mapping[str, Any], examples: Sequence[Any], folder: Path, *, labels: Any = "model", threads: int = 8
) -> dict[str, dict[str, Any]]:
    """By program and judge, the judge's report alone against gold; judges that cannot be held to gold are left out.

    `errors` in a report counts the rows that it misses because a call failed; only a report without is kept in the
    folder, and not asked for again. `unreadable` counts the rows, of `rows`, that its measures leave out because the
    verdict could not be read.

    Raises:
        LMError: The LM failed on ten rows in a row, or on all there are.
    """
    from raisf.commands.judging import judge_alone
    from raisf.evaluation.identity import describe, describe_test, digest
    from raisf.utils.files import read_json, write_json
    from raisf.utils.journal import Journal

    found: dict[str, dict[str, Any]] = {}
    for label, program in programs.items():
        name = digest([describe(program), describe_test(examples), labels])[:8]
        path = folder / f"{program.system}-{name}.json"
        journal = Journal(path.with_suffix(".jsonl"))  # of a judge that was stopped on the way
        kept: dict[str, Any] = read_json(path) if path.is_file() else {}
        found[label] = dict(kept)
        for judge in JUDGES:
            # The program may have no such judge, or the questions no such gold.
            with contextlib.suppress(InputError):
                if "unreadable" not in kept.get(judge, {}):
                    asked: dict[str, Any] = {"labels": labels, "threads": threads, "journal": journal}
                    report, rows, errors = judge_alone(program, judge, examples, **asked)
                    counted = {"rows": len(rows), "unreadable": sum(not row.readable for row in rows)}
                    found[label][judge] = {**report.as_dict(), **counted, "errors": errors}
                    if not errors:
                        kept[judge] = found[label][judge]
                        write_json(path, kept)
        if kept.keys() == found[label].keys():
            journal.close()
    return {label: reports for label, reports in found.items() if reports}


def _named(text: str) -> dict[str, str]:
    """`A,LABEL=B` as {label: name}."""
    named: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        label, given, name = part.rpartition("=")
        label = label if given else Path(name).name
        if label in named:
            raise argparse.ArgumentTypeError(f"two programs are called {label!r}: write LABEL=NAME for one of them")
        named[label] = name
    if not named:
        raise argparse.ArgumentTypeError("expected names of programs, with commas between them")
    return named
