"""Finds what there is to view: the runs of a records' file, of a report's folder, of experiments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raisf.evaluation.records import meta_path, read_records
from raisf.reports.report import PAGE
from raisf.reports.sections import RESULTS, read_results
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

RECORDS, REAL = "records", "real"
REMEDY = "give a file that `raisf eval --out` wrote, or the folder of `raisf compare` or `raisf experiment`"


@dataclass(frozen=True)
class Run:
    """One program's answers to one test set.

    Attributes:
        label: What it is called.
        path: The records' file.
        program: What the program is: class, options, LMs, hashes of its prompts.
        groups: The experiments that it is part of.
    """

    label: str
    path: Path
    program: dict[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()

    def records(self) -> list[dict[str, Any]]:
        """Its records in the file's order; of two of one question the later, as the evaluation counts them.

        Raises:
            InputError: The file is gone, or a line is no record.
        """
        return list({record["id"]: record for record in read_records(self.path, REMEDY)}.values())


@dataclass(frozen=True)
class Sources:
    """What one or several paths hold.

    Attributes:
        runs: In the order of the report, or of the files' names.
        facts: What the report was made from; of several reports, what is the same in all; empty where there is none.
        pages: Reports' pages.
        indexes: Where those that the reports name may lie, and those that experiments have made.
    """

    runs: list[Run]
    facts: dict[str, Any]
    pages: list[Path]
    indexes: list[Path]


def find_runs(paths: Sequence[Path]) -> Sources:
    """The runs at some paths: records' files, folders of them, or a report (its folder, results.json or page).

    Raises:
        InputError: A path holds none.
    """
    runs: dict[Path, Run] = {}
    reports: list[dict[str, Any]] = []
    indexes: list[Path] = []
    pages: list[Path] = []
    for path in paths:
        place = path.parent if path.name in (RESULTS, PAGE) else path
        for run in _runs_at(place):
            runs.setdefault(run.path.resolve(), run)
        told = [saved["facts"] for _, saved in _reports(place)]
        reports += filter(None, told[:1])
        indexes += [index for facts in told for index in _indexes(place, facts)]
        indexes += [made for folder in _folders(place) for made in folder.parent.glob("made/index-*")]
        if (page := (place / PAGE).resolve()).is_file() and page not in pages:
            pages.append(page)
    first = reports[0] if reports else {}
    facts = {name: value for name, value in first.items() if all(of.get(name) == value for of in reports)}
    return Sources(_distinct(list(runs.values())), facts, pages, list(dict.fromkeys(indexes)))


def _runs_at(place: Path) -> list[Run]:
    if place.is_file():
        return [Run(place.stem, place, _program(place))]
    if not place.is_dir():
        raise InputError(f"nothing at {place}: {REMEDY}")
    named = _named(place)
    files = [file for folder in _folders(place) for file in sorted(folder.glob("*.jsonl")) if meta_path(file).is_file()]
    if not files:
        raise InputError(f"no records in {place}: {REMEDY}")
    order = {name: number for number, name in enumerate(named)}
    files.sort(key=lambda file: (order.get(file.resolve(), len(order)), file))
    begun = [file for file in files if _has_begun(file)] or files
    return [_run(file, named.get(file.resolve()) or {}) for file in begun]


def _has_begun(records: Path) -> bool:
    """Whether a first record is whole: of a run that was stopped before, or has only now begun, there is none."""
    with records.open("rb") as file:
        return file.readline().endswith(b"\n")


def _folders(place: Path) -> list[Path]:
    """Where a place's records lie: a report's, and those of the real text's data sets; or in the place itself."""
    sets = f"*/{RECORDS}" if place.resolve().name == REAL and not (place / REAL).is_dir() else f"{REAL}/*/{RECORDS}"
    return [folder for folder in (place / RECORDS, *sorted(place.glob(sets))) if folder.is_dir()] or [place]


def _run(file: Path, labels: dict[str, str]) -> Run:
    """A run of a report, under the label that its first experiment calls it by."""
    return Run(next(iter(labels.values()), file.stem), file, _program(file), tuple(filter(None, labels)))


def _named(place: Path) -> dict[Path, dict[str, str]]:
    """By the records' file, what the reports in a folder call it, by experiment ("" for a comparison)."""
    named: dict[Path, dict[str, str]] = {}
    for folder, saved in _reports(place):
        experiment = str(saved.get("experiment") or "")
        beside = folder.parent if experiment else folder
        records = saved.get("records")
        for label, name in records.items() if isinstance(records, dict) else ():
            labels = named.setdefault((beside / str(name)).resolve(), {})
            # One program may have several: compiled, it may have stayed what it was.
            labels[experiment] = " = ".join(filter(None, (labels.get(experiment), str(label))))
    return named


def _reports(place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folders of the report and of the experiments that a folder holds, with what their results.json say."""
    for results in [place / RESULTS, *sorted(place.glob(f"*/{RESULTS}"))]:
        if saved := read_results(results.parent):
            yield results.parent, saved


def _indexes(place: Path, facts: dict[str, Any]) -> list[Path]:
    """Where the indexes may lie that a report names: from here, or a folder above the report, where it was made."""
    told = facts.get("index")
    names = [told, *told.split(", ")] if isinstance(told, str) else []
    return [base / name for name in names for base in (Path(), *place.resolve().parents)]


def _program(records: Path) -> dict[str, Any]:
    meta = meta_path(records)
    saved = read_json(meta) if meta.is_file() else None
    program = saved.get("program") if isinstance(saved, dict) else None
    return program if isinstance(program, dict) else {}


def _distinct(runs: list[Run]) -> list[Run]:
    """Runs of different labels: where two are called alike, the file tells them apart."""
    labels = [run.label for run in runs]
    return [replace(run, label=f"{run.label} ({run.path})") if labels.count(run.label) > 1 else run for run in runs]
