"""The human agreement of RA-ISF's Table 5: a file of sampled judgements for people to label, and what came of it."""

import codecs
import csv
import io
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation.identity import digest
from raisf.experiments import published_results as published
from raisf.experiments import tables
from raisf.experiments.by_teacher import agreement_with_teacher
from raisf.optimize.judges.agreement import Agreement
from raisf.reports.sections import Cell, Section, no_formula
from raisf.utils.errors import InputError, LMError
from raisf.utils.files import read_jsonl, replacing
from raisf.utils.sampling import up_to

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace

# Rows a judge: people label some hundred in an hour.
SAMPLED = 100
FILE = "label-by-hand.csv"
COLUMNS: tuple[str, ...] = ("id", "judge", "question", "to judge", "choose", "label")
CHOICES = {"relevance": ("relevant", "irrelevant"), "decomposition": ("good", "bad")}


def reliability_and_people(workspace: "Workspace", judged: Mapping[str, dict[str, Any]]) -> list[Section]:
    """Table 5: the judges against gold; against a teacher; and against people, as far as they have labelled some."""
    sections = tables.reliability(workspace, judged)
    first = sections[0]
    folder = workspace.out / "judges"
    rows = {
        label: {
            judge: list(read_jsonl(folder / reports[judge]["verdicts"]))
            for judge in published.TABLE_5
            # People and teachers see each passage alone: who judges them as a set is not held to these.
            if judge in reports and not reports[judge].get("as_a_set")
        }
        for label, reports in judged.items()
    }
    if workspace.teacher is not None:
        try:
            taught = agreement_with_teacher(workspace.teacher, rows, workspace.seed, workspace.threads)
        except LMError as error:
            first.text += f" The teacher could not be asked: {error.text}."
        else:
            sections.append(taught)
            first.text += "" if taught.rows else f" Nothing came of asking the teacher: {taught.text}"
    path = workspace.out / "table5" / FILE
    said = labels(path) if path.is_file() else {}
    if not said:  # until somebody has labelled, the sample is one of what this run has judged
        again = f" To compare with people: fill in the column label of {path}, and run the same command again."
        nothing = " There is nothing for people to label: the judges are asked alone where there is gold."
        first.text += again if write_sample(path, rows, workspace.seed) else nothing
        return sections
    if others := said.keys() - _readable(rows):
        first.text += f" {len(others)} of the {len(said)} labels in {path} are of rows that this run does not have."
    return [*sections, _agreement(rows, said)]


def write_sample(path: Path, judged: Mapping[str, Mapping[str, list[dict[str, Any]]]], seed: int = 0) -> int:
    """Writes rows for people to label, who see neither gold nor what any judge said; no file where there are none.

    Args:
        path: The CSV file.
        judged: By program and judge, the rows that it was asked about.
        seed: Of the draw, and of the order.

    Returns:
        How many rows.
    """
    sampled: list[dict[str, str]] = []
    for judge, choices in CHOICES.items():
        found = {_identity(judge, row): row for of in judged.values() for row in of.get(judge, []) if row["readable"]}
        rng = random.Random(seed)
        for identity in up_to(sorted(found), SAMPLED, rng):
            shown = {"question": found[identity]["question"], "to judge": _shown(judge, found[identity])}
            sampled.append({"id": identity, "judge": judge, **shown, "choose": " or ".join(choices), "label": ""})
    if not sampled:
        return 0
    # Whole or not at all: the next command reads it, for what people have labelled.
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in sampled:
            writer.writerow({name: no_formula(value) for name, value in row.items()})
    return len(sampled)


def labels(path: Path) -> dict[str, str]:
    """By row's id, what people have labelled so far.

    Raises:
        InputError: The file is no text that can be read, has lost a column, or a label is none of those to choose from.
    """
    found: dict[str, str] = {}
    text = _text(path)
    # Where the comma is a decimal sign, spreadsheets write others.
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        if not {"id", "judge", "label"} <= set(reader.fieldnames or ()):
            raise InputError(
                f"{path} has not the columns id, judge and label in its first line: write them there again; a new file "
                "would have none of the labels"
            )
        for number, row in enumerate(reader, start=2):
            label = (row["label"] or "").strip().lower()
            choices = CHOICES.get(row["judge"], ())
            if label and not choices:
                raise InputError(
                    f"{path}, line {number}: the judge is {row['judge']!r:.40}: write {' or '.join(CHOICES)}"
                )
            if label and label not in choices:
                raise InputError(f"{path}, line {number}: the label is {label!r}: write {' or '.join(choices)}")
            if not label:
                continue
            if not (identity := row["id"]):
                raise InputError(f"{path}, line {number}: the label {label!r} has no id beside it: write its row's")
            if found.setdefault(identity, label) != label:
                raise InputError(
                    f"{path}, line {number}: the row {identity} is labelled twice, {found[identity]} and {label}: "
                    "leave one"
                )
    except csv.Error as error:
        raise InputError(f"{path} is no CSV that can be read ({error}): save it again as CSV in UTF-8") from error
    return found


def _text(path: Path) -> str:
    """What a spreadsheet has saved: UTF-8, also with a mark before the first column, or UTF-16, which has one."""
    data = path.read_bytes()
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 ({error.reason}): save it again as CSV in UTF-8") from error


def _agreement(judged: Mapping[str, Mapping[str, list[dict[str, Any]]]], said: Mapping[str, str]) -> Section:
    def agreed(verdicts: Mapping[str, dict[str, Any]], whose: str) -> list[Cell]:
        pairs = [(said[name], _word(row[whose])) for name, row in verdicts.items()]
        found = Agreement.of(pairs, [row["question"] for row in verdicts.values()])
        return [found.share, found.kappa, found.n]

    rows: list[list[Cell]] = []
    labelled: dict[str, dict[str, Any]] = {}
    for label, of in judged.items():
        verdicts = {_identity("relevance", row): row for row in of.get("relevance", []) if row["readable"]}
        verdicts = {name: row for name, row in verdicts.items() if name in said}
        labelled |= verdicts
        rows += [[f"relevance: {label}", *agreed(verdicts, "said")]] if verdicts else []
        listed = {_identity("decomposition", row) for row in of.get("decomposition", []) if row["readable"]}
        if good := [("good", said[name]) for name in sorted(listed & said.keys())]:
            found = Agreement.of(good)
            rows.append([f"decomposition: {label}", found.share, None, found.n])
    if labelled:
        rows.insert(0, ["relevance: gold", *agreed(labelled, "gold")])
    theirs = ", ".join(f"{judge} {published.TABLE_5[judge]['people']}" for judge in CHOICES)
    text = (
        "Judgements that people and the judge agree on, of those labelled by hand; of a decomposition the share that "
        "people call good, which has no kappa. People see each passage alone: judges of sets are not among the rows. "
        f"The paper's: {theirs}."
    )
    return Section("Agreement with people", ["judge", "agreement", "kappa", "n"], rows, text)


def _readable(judged: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> set[str]:
    """The rows that people's labels can be held against."""
    return {
        _identity(judge, row)
        for of in judged.values()
        for judge in CHOICES
        for row in of.get(judge, ())
        if row["readable"]
    }


def _identity(judge: str, row: Mapping[str, Any]) -> str:
    # Some digests alone, such as 583366e4, are numbers to a spreadsheet.
    return "r" + digest([judge, row["question"], _shown(judge, row)])


def _shown(judge: str, row: Mapping[str, Any]) -> str:
    return str(row["passage"]) if judge == "relevance" else " | ".join(row["listed"]) or "(none)"


def _word(relevant: bool) -> str:
    return CHOICES["relevance"][0 if relevant else 1]
