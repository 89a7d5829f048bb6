"""What an experiment leaves in a folder: its tables as files, and one page of all that were ever run into it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raisf.experiments.catalog import EXPERIMENTS
from raisf.experiments.provenance import answered
from raisf.reports.headline import best_of
from raisf.reports.page import write_page
from raisf.reports.report import PAGE, RESULTS
from raisf.reports.sections import Section
from raisf.utils.files import read_json, write_json


def write_experiment(
    out: Path, name: str, facts: dict[str, Any], sections: Sequence[Section], files: Mapping[str, Path]
) -> None:
    """Writes an experiment's tables, and the page anew.

    Args:
        out: The folder of all experiments.
        name: The experiment's.
        facts: What its answers come from; when they were answered is added.
        sections: Its tables.
        files: Its records, by row.
    """
    folder = out / name
    folder.mkdir(exist_ok=True)
    for section in sections:
        section.write(folder)
    found = [{**section.as_dict(), "drawings": section.drawings} for section in sections]
    facts["answered"] = answered(files.values())
    records = {label: str(file.relative_to(out)) for label, file in files.items()}
    write_json(folder / RESULTS, {"experiment": name, "facts": facts, "records": records, "sections": found})
    write_page_of_all(out, facts)


def write_page_of_all(out: Path, facts: dict[str, Any]) -> None:
    """One page of all experiments that were ever run into the folder."""
    sections = []
    for name in (*EXPERIMENTS, "real"):
        path = out / name / RESULTS
        if path.is_file():
            for number, saved in enumerate(read_json(path)["sections"]):
                section = Section.of(saved)
                section.title = f"{name}: {section.title}" if number == 0 else section.title
                section.drawings = saved["drawings"]
                sections.append(section)
    write_page(out / PAGE, "The papers' experiments", facts, sections, best_of(sections))
