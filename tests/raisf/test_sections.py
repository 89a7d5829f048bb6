"""A table as the terminal shows it, and as a file."""

import csv
import io
from collections.abc import Sequence

from rich.console import Console

from raisf.evaluation.intervals import Score
from raisf.reports.sections import Section, write_sections


def printed(columns: Sequence[str]) -> str:
    """A row of one score a column, all of which count alike, in a terminal of 80 columns."""
    row = ["ra-isf", *[Score(0.295, 0.236, 0.362, 200)] * len(columns)]
    file = io.StringIO()
    Console(width=80, file=file).print(Section("Depths", ["program", *columns], [row], main=None).view())
    return file.getvalue()


def test_scores_that_count_alike_have_their_intervals_below_them_while_these_fit() -> None:
    """They stood there bare, and 29.5 looked like more than 29.0."""
    few, many = (printed([f"max_depth {number}" for number in range(count)]) for count in (4, 5))
    assert few.count("29.5") == few.count("[23.6, 36.2]") == 4
    assert many.count("29.5") == 5 and "[" not in many


def test_tables_of_data_sets_in_any_writing_have_a_file_each(tmp_path) -> None:
    """Those of the later set stood in the place of the earlier one's, as no letter but a to z counted."""
    names = ("київ", "москва", "hotpot_qa", "hotpot-qa")
    files = write_sections([Section(f"{name}: answers", ["set"], [[name]]) for name in names], tmp_path)
    assert files == ["київ-answers.csv", "москва-answers.csv", "hotpot_qa-answers.csv", "hotpot-qa-answers.csv"]
    assert [list(csv.reader((tmp_path / file).open(encoding="utf-8")))[1] for file in files] == [[n] for n in names]


def test_tables_whose_names_differ_in_what_no_files_name_has_a_file_each(tmp_path) -> None:
    names = ("wiki-2.0", "Wiki 2.0", "wiki-2-0")
    files = write_sections([Section(f"{name}: answers", ["set"], [[name]]) for name in names], tmp_path)
    assert files == ["wiki-2-0-answers.csv", "wiki-2-0-answers-2.csv", "wiki-2-0-answers-3.csv"]
    assert [list(csv.reader((tmp_path / file).open(encoding="utf-8")))[1] for file in files] == [[n] for n in names]


def test_a_text_of_a_table_is_no_formula_in_a_spreadsheet(tmp_path) -> None:
    texts = ["=1+1", "@sum", "-2+3", "\r=1", "-", "-, 97.0", "a-b"]
    Section("t", ["=kind (n=7)"], [[text] for text in texts]).write(tmp_path)
    read = [row[0] for row in csv.reader((tmp_path / "t.csv").open(encoding="utf-8", newline=""))]
    assert read == ["'=kind (n=7)", "'=1+1", "'@sum", "'-2+3", "'\r=1", "-", "-, 97.0", "a-b"]
