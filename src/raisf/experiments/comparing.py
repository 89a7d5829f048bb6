"""Programs on the same questions, beside each other: their answers, their judges alone, and the report of both."""

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.experiments.provenance import provenance
from raisf.experiments.settings import PREDICTORS
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.text import by_reason

if TYPE_CHECKING:
    import dspy
    from rich.progress import Progress

    from raisf.optimize.judges.labels import Labels
    from raisf.reports.report import ComparisonReport

logger = logging.getLogger(__name__)

# By place, the LM in whose stead a copy without the cache is asked, and how many comparisons do so: several may run at
# once on one program.
_SWAPPED: dict[tuple[int, str], list[Any]] = {}
_SWAPPING = threading.Lock()


def compare(
    programs: "Mapping[str, dspy.Module]",
    testset: "Sequence[dspy.Example]",
    out: Path | str | None = None,
    *,
    judges: bool = True,
    labels: "Labels" = "model",
    threads: int = 8,
    progress: "bool | Progress" = True,
    title: str = "",
    test: str = "",
    command: str = "",
) -> "ComparisonReport":
    """Lets programs answer the same questions, tests every pair of them, and holds their judges to gold.

    Each LM is asked anew where DSPy's cache has an answer: else a program's cost would depend on who came before it.

    Args:
        programs: By the label that the report calls each by.
        testset: Questions with gold, as `raisf.load_questions` gives them.
        out: A folder for results.json, tables as CSV, report.html and all answers; called again with the same folder,
            what was answered is not asked again. None keeps the report in memory.
        judges: Whether the judges are asked alone, too.
        labels: What the LM knows: "model" asks it, "gold" believes the questions' own marks.
        threads: Questions at a time.
        progress: Show bars on standard error; or the bars to show them among.
        title: Of the page; made up where it is empty.
        test: What the page calls the test set.
        command: The command line that the page names.

    Returns:
        The report: `results` (JSON values), `sections` (its tables by name) and `records` (by label and question id).

    Raises:
        InputError: No program, one that has to be fitted and is not, no questions, or `out` holds other things.
        LMError: The LM failed on ten questions in a row, or on all there are; or most outputs of a program or judge
            could not be read (what `out` keeps is written).
    """
    from raisf.evaluation.comparison import each_once
    from raisf.evaluation.readability import check_readable
    from raisf.evaluation.runner import check_can_be_asked
    from raisf.evaluation.seen import seen_by
    from raisf.programs.baselines.skr import SKR
    from raisf.reports.report import check_folder, output_counts, report_of

    if not programs or not isinstance(programs, Mapping):
        found = f" in a {type(programs).__name__}" if programs else ""
        raise InputError(f"no program to compare{found}: give some by label, such as {{'rag': raisf.RAG(index)}}")
    for program in programs.values():
        check_can_be_asked(program)
        if isinstance(program, SKR):
            program.check_fitted()
    _warn_of_no_common_lm(programs)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_asked_anew(programs.values()))
        if out is None:
            folder = Path(stack.enter_context(_for_now()))
        else:
            folder = Path(out)
            check_folder(folder)
        records = answer_all(programs, testset, folder / "records", threads=threads, progress=progress)
        judged = {}
        if judges:
            options: dict[str, Any] = {"labels": labels, "threads": threads, "progress": progress}
            judged = judge_all(programs, testset, folder / "judges", **options)
        compiled = {label: getattr(program, "compile_report", None) for label, program in programs.items()}
        files = {label: records_file(folder / "records", program, testset) for label, program in programs.items()}
        facts = provenance(list(programs.values()), test or f"{len(testset)} questions", files.values(), command)
        seen = [f"{label}: {told}" for label, program in programs.items() for told in seen_by(program, testset)]
        alone = {label: report["not_held_out"] for label, reports in judged.items() for report in reports.values()}
        seen += [f"{label}, its judges alone: {told}" for label, of in alone.items() for told in of]
        facts["not held out"] = "; ".join(seen) or None
        # Compiled, a program may have stayed what it was.
        facts["one program"] = "; ".join(name for name in each_once(records) if name not in records) or None
        if facts["one program"]:
            logger.warning("%s: one program, which is asked and tested once", facts["one program"])
        report = report_of(title or f"{len(programs)} programs", facts, records, judged, compiled)
        report.results["records"] = {label: str(file.relative_to(folder)) for label, file in files.items()}
        if out is not None:
            report.write(folder)
        check_readable(output_counts(records, judged), str(out) if out is not None else "memory")
    return report


@contextlib.contextmanager
def _for_now() -> Iterator[str]:
    """As a context: a folder that is gone afterwards. An error that ends it does not say that it keeps the answers."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield folder
        except (RaisfError, KeyboardInterrupt) as stopped:
            stopped.args = (str(stopped).partition(f"; {folder}")[0],)
            raise


def _warn_of_no_common_lm(programs: "Mapping[str, dspy.Module]") -> None:
    """Where no LM answers in all, what is compared is LMs as well."""
    from raisf.evaluation.local_lms import lms_of

    def source(lm: Any) -> str:  # modules that one endpoint serves have one base
        return str(getattr(getattr(lm, "endpoint", None), "place", None) or getattr(lm, "base", lm.model))

    asked = {name: {source(lm) for lm in lms_of(one) if lm} for name, one in programs.items()}
    asked = {name: models for name, models in asked.items() if models}
    if asked and not set.intersection(*asked.values()):
        told = "; ".join(f"{name} {', '.join(sorted(models))}" for name, models in asked.items())
        logger.warning(
            "no LM is asked by all of them, so that LMs are compared, too (%s): --lm names one for all", told
        )


@contextlib.contextmanager
def _asked_anew(programs: "Iterable[dspy.Module]") -> Iterator[None]:
    """As a context: the programs' LMs, and DSPy's own, pass over the cache."""
    import dspy

    from raisf.utils.predictors import held_lms

    own: Any = dspy.settings.lm
    places = {(id(attributes), name): (attributes, name) for one in programs for attributes, name, _ in held_lms(one)}
    with _SWAPPING:
        lms = [own, *(attributes[name] for attributes, name in places.values())]
        anew = {id(lm): lm.copy(cache=False) for lm in lms if lm is not None}
        for place, (attributes, name) in places.items():
            if place not in _SWAPPED:
                _SWAPPED[place] = [attributes[name], 0]
                attributes[name] = anew[id(attributes[name])]
            _SWAPPED[place][1] += 1
    try:
        with dspy.context(lm=anew.get(id(own))):
            yield
    finally:
        with _SWAPPING:
            for place, (attributes, name) in places.items():
                _SWAPPED[place][1] -= 1
                if not _SWAPPED[place][1]:
                    attributes[name], _ = _SWAPPED.pop(place)


def answer_all(
    programs: "Mapping[str, dspy.Module]",
    examples: "Sequence[dspy.Example]",
    folder: Path,
    *,
    threads: int,
    progress: "bool | Progress",
) -> dict[str, RecordsById]:
    """By label, a program's records of the questions by their ids; those that are in the folder are not made again.

    Labels of one program share one mapping.
    """
    from raisf.evaluation.records import read_records
    from raisf.evaluation.runner import evaluate
    from raisf.utils.progress import progress_bar

    files = {label: records_file(folder, program, examples) for label, program in programs.items()}
    with progress_bar(progress) as bars:
        for label, program in programs.items():
            evaluate(program, examples, files[label], threads=threads, progress=bars, name=label)
    found = {
        file: {record["id"]: record for record in read_records(file, "mend or drop the line")}
        for file in dict.fromkeys(files.values())
    }
    return {label: found[file] for label, file in files.items()}


def judge_all(
    programs: "Mapping[str, dspy.Module]",
    examples: "Sequence[dspy.Example]",
    folder: Path,
    *,
    labels: "Labels" = "model",
    threads: int = 8,
    progress: "bool | Progress" = True,
) -> dict[str, dict[str, Any]]:
    """By program and judge, the judge's report alone against gold; what cannot be held to gold is left out, and told.

    `errors` in a report counts the rows that it misses because a call failed, or because the answer that was to label a
    question could not be read; only a report without is kept in the folder, and not asked for again. `unreadable`
    counts the rows, of `rows`, that its measures leave out because the verdict could not be read; `verdicts` is the
    file, in the folder, that holds the rows; `not_held_out` is in which way the program has learnt from the questions
    and their parts; `as_a_set`, of relevance, is whether the passages were judged in one call.

    Raises:
        InputError: Another process asks the judges of one of them, for the same folder.
        LMError: The LM failed on ten rows in a row, or on all there are.
    """
    from raisf.evaluation.seen import warn_of_seen
    from raisf.optimize.judges.judgements import judging
    from raisf.optimize.judges.predictor_roles import predictor_of, role_of
    from raisf.optimize.overlap import asked_with_parts
    from raisf.signatures.judges import ListwiseRelevance, PassageRelevance
    from raisf.utils.files import locked

    parts = [text for example in examples for text in asked_with_parts(example)]
    options = {"labels": labels, "threads": threads, "progress": progress}
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, list[str]] = {}
    for label, program in programs.items():
        seen = warn_of_seen(program, examples, f"{label}, its judges alone", parts)
        path = judged_path(program, examples, folder, labels=labels)
        taken = f"another comparison is asking the judges of {label} alone, in {folder}: wait for it, or give another"
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{path.stem}.lock"), taken):
            reports, untold = _judge(program, examples, path, options)
        found[label] = {judge: {**report, "not_held_out": seen} for judge, report in reports.items()}
        if "relevance" in reports:
            asked = predictor_of(judging(program), PassageRelevance, ListwiseRelevance)
            found[label]["relevance"]["as_a_set"] = role_of(asked) is ListwiseRelevance
        for reason in untold:
            missing.setdefault(reason, []).append(label)
    for reason, labels_without in missing.items():
        logger.warning("not measured alone, of %s: %s", ", ".join(labels_without), reason)
    return {label: reports for label, reports in found.items() if reports}


def _judge(
    program: "dspy.Module", examples: "Sequence[dspy.Example]", path: Path, options: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The reports of a program's judges, and why others have none: the questions may have no such gold."""
    from raisf.experiments.judging import judge_alone
    from raisf.experiments.kept import read_kept
    from raisf.optimize.judges.predictor_roles import judges_of
    from raisf.utils.files import write_json, write_jsonl
    from raisf.utils.journal import Journal

    journal = Journal(path.with_suffix(".jsonl"))  # of a judge that was stopped on the way
    kept: dict[str, Any] = read_kept(path, "these judges are asked again") or {}
    found, untold, has = dict(kept), list[str](), judges_of(program)
    for judge in [judge for judge in PREDICTORS if judge in has]:
        verdicts = path.with_name(f"{path.stem}-{judge}.rows.jsonl")
        if judge in kept and verdicts.is_file():
            continue
        try:
            report, rows, errors = judge_alone(program, judge, examples, journal=journal, **options)
        except InputError as error:
            untold.append(f"{judge}: {error}")
            continue
        counted = {"rows": len(rows), "unreadable": sum(not row.readable for row in rows)}
        found[judge] = {**report.as_dict(), **counted, "errors": errors, "verdicts": verdicts.name}
        write_jsonl(verdicts, ({**asdict(row), "judge": judge} for row in rows))
        if not errors:
            kept[judge] = found[judge]
            write_json(path, kept)
    if kept.keys() == found.keys():
        journal.close()
    return found, untold


def counted(records: RecordsById, measure: str) -> RecordsById:
    """The records with what tables count in the place of exact match: for StrategyQA that is accuracy."""
    if measure != "accuracy":
        return records
    return {name: {**record, "em": record["accuracy"]} for name, record in records.items()}


def left_out_lines(left_out: Mapping[str, str]) -> list[str]:
    """A sentence a reason why rows could not be run, for a table's text."""
    return [f"Left out: {'; '.join(labels)} ({why})." for why, labels in by_reason(left_out).items()]


def records_file(
    folder: Path, program: "dspy.Module", examples: "Sequence[dspy.Example]", name: str = "", *, cache: bool = False
) -> Path:
    """Where a folder keeps a program's records on a test set: the same for the same pair, so that a second run resumes.

    Args:
        folder: The folder.
        program: It.
        examples: The test set.
        name: What the file's name begins with, as far as there is room; the program's system where it is empty.
        cache: As `raisf.evaluation.runner.evaluate` takes it.
    """
    from raisf.evaluation.identity import digest
    from raisf.evaluation.records import FORMAT, binding_of, meta_path
    from raisf.utils.files import LONGEST_NAME

    belongs = binding_of(program, examples, cache=cache)
    end = f"-{digest([belongs['program'], belongs['test'], FORMAT])[:8]}.jsonl"
    begin = name or _system(program)
    while len(os.fsencode(meta_path(Path(begin + end)).name)) > LONGEST_NAME:
        begin = begin[:-1]
    return folder / f"{begin}{end}"


def judged_path(
    program: "dspy.Module", examples: "Sequence[dspy.Example]", folder: Path, *, labels: "Labels" = "model"
) -> Path:
    """Where `judge_all` keeps the reports of a program's judges."""
    from raisf.evaluation.examples import describe_test
    from raisf.evaluation.identity import describe, digest

    return folder / f"{_system(program)}-{digest([describe(program), describe_test(examples), labels])[:8]}.json"


def _system(program: "dspy.Module") -> str:
    """What a program's files are named after."""
    return getattr(program, "system", None) or type(program).__name__.lower()
