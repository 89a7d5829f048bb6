"""What an experiment leaves in a folder: its tables as files, and one page of all that were ever run into it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raisf.experiments.catalog import EXPERIMENTS
from raisf.experiments.kept import read_kept
from raisf.experiments.provenance import answered
from raisf.reports.headline import best_of
from raisf.reports.page import write_page
from raisf.reports.report import PAGE
from raisf.reports.sections import RESULTS, Section, write_sections
from raisf.utils.files import write_json

# Facts that the page tells of the last command alone.
OF_THE_LAST = ("answered", "not run")
# What two experiments must share for one's result to stand above the other's facts.
OF_ANSWERS = ("data", "language model")


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
    written = write_sections(sections, folder)
    found = [{**section.as_dict(), "drawings": section.drawings} for section in sections]
    facts["answered"] = answered(files.values())
    records = {label: str(file.relative_to(out)) for label, file in files.items()}
    write_json(
        folder / RESULTS, {"experiment": name, "facts": facts, "records": records, "sections": found, "files": written}
    )
    write_page_of_all(out, facts)


def write_page_of_all(out: Path, facts: dict[str, Any]) -> None:
    """One page of all experiments that were ever run into the folder, under the facts of the last one.

    What another was run with is told under its first table, as far as it differs. Those of another LM or other
    questions come last, and the page's first sentence and figure are of none of them.
    """
    own, others = list[Section](), list[Section]()
    for name in (*EXPERIMENTS, "real"):
        if results := read_kept(out / name / RESULTS, f"{name} is not on the page until it is run again"):
            alike = all(results["facts"].get(fact) == facts.get(fact) for fact in OF_ANSWERS)
            (own if alike else others).extend(_sections(results, facts))
    write_page(out / PAGE, "The papers' experiments", facts, own, best_of(own), others=others)


def _sections(results: Mapping[str, Any], facts: Mapping[str, Any]) -> list[Section]:
    """An experiment's tables, as the page shows them."""
    sections = [Section.of(saved) for saved in results["sections"]]
    for section, saved in zip(sections, results["sections"], strict=True):
        section.drawings = saved["drawings"]
    first = sections[0]
    first.title = f"{results['experiment']}: {first.title}"
    first.text = f"{first.text} {_differing(results['facts'], facts)}".strip()
    return sections


def _differing(own: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """A sentence of the facts in which an experiment differs from those that the page shows; empty for none."""
    names = (name for name in {**own, **told} if name not in OF_THE_LAST and own.get(name) != told.get(name))
    found = "; ".join(f"{name}: {'none' if (value := own.get(name)) is None else value}" for name in names)
    return f"Other than this page's provenance says: {found}." if found else ""
