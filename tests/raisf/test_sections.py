"""A table as the terminal shows it, and as a file."""

import csv
import io
import json
import math
import re
from collections.abc import Sequence

from rich.console import Console

from raisf.evaluation.comparison import compare_records
from raisf.evaluation.intervals import Score
from raisf.evaluation.report import summarise
from raisf.experiments.every_judge import _judges
from raisf.optimize.judges.judgements import Judged, Judgements
from raisf.reports.compiled import training_table
from raisf.reports.page import _parts as page_cell
from raisf.reports.real import overview
from raisf.reports.report import answer_sections, cost_section, judge_sections, pair_sections
from raisf.reports.sections import Cell, PValue, Section, shown, write_sections
from tests.raisf.records import record


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


def test_all_that_is_shown_as_percent_is_a_share_in_files(tmp_path) -> None:
    """In the table of risk and coverage 0.181 stood beside 84.5, which is 0.845."""
    records = {str(n): {**record(n, n < 3), "id": str(n), "confidence": 1 - n / 10} for n in range(5)}
    (risks,) = (one for one in answer_sections(compare_records({"a": records})) if one.title == "Risk and coverage")
    risks.write(tmp_path)
    head, row = csv.reader((tmp_path / "risk-and-coverage.csv").open(encoding="utf-8", newline=""))
    assert dict(zip(head, row, strict=True)) | {"AURC low": "", "AURC high": "", "AURC": ""} == {
        **dict.fromkeys(("AURC", "AURC low", "AURC high"), ""),
        **{"program": "a", "AURC n": "5", "the surest 100%": "0.6", "the surest 80%": "0.75"},
        **dict.fromkeys(("the surest 60%", "the surest 40%", "the surest 20%"), "1.0"),
    }
    again = Section.of(json.loads(json.dumps(risks.as_dict())))
    assert [shown(cell) for cell in again.rows[0]][2:] == ["60.0", "75.0", "100.0", "100.0", "100.0"]


def test_tokens_that_nobody_told_are_not_none() -> None:
    """An endpoint that counts no tokens stood in the table of costs as one that reads and writes none."""
    metered, calls = record(1, True)["cost"], {"lm_calls": 4, "prompt_tokens": 0, "completion_tokens": 0}
    costs = {
        "told": [metered, metered],
        "untold": [calls | {"unmetered_calls": 4}] * 2,
        "some": [metered | {"unmetered_calls": 1}, metered | {"unmetered_calls": 0}],
        "asks nobody": [calls | {"lm_calls": 0, "unmetered_calls": 0, "retrievals": 1}] * 2,
    }
    reports = {
        name: summarise([record(number, True, cost=cost) for number, cost in enumerate(of)])
        for name, of in costs.items()
    }
    section = cost_section(reports)
    read = section.columns.index("tokens read")
    assert [row[read : read + 2] for row in section.rows] == [[90, 9], [None, None], [90, 9], [0, 0]]
    assert "told no tokens, and count for none: untold 4.00 of 4.00; some 0.50 of 5.00." in section.text
    assert "told no tokens" not in cost_section({"told": reports["told"]}).text
    saved = {name: report.as_dict()["cost"]["prompt_tokens"] for name, report in reports.items()}
    assert saved == {"told": 90, "untold": None, "some": 90, "asks nobody": 0}, "in JSON too: it was 0"
    file = io.StringIO()
    for name in ("untold", "some"):
        Console(width=80, file=file).print(reports[name].table())
    assert re.findall(r"prompt tokens a question +│ (\S+) ", file.getvalue()) == ["-", "90.00"]


def test_how_many_verdicts_with_a_probability_an_auroc_rests_on_is_told() -> None:
    """Some replies have none: it stood beside n = 40, and rested on 15."""
    rows = [Judged(f"q{n}", None, n % 2 == 0, n % 3 == 0, n / 40 if n < 15 else None) for n in range(40)]
    told = {"some": rows, "all": rows[:15]}
    judged = {name: {"know": Judgements(of).report().as_dict()} for name, of in told.items()}
    section, *_ = judge_sections(judged)
    assert "over the verdicts with a probability (some 15)." in section.text
    assert "with a probability" not in judge_sections({"all": judged["all"]})[0].text
    assert [row[-1] for row in _judges(judged).rows] == [15, 15], "no measure there is of the others"


def test_all_but_one_of_two_hundred_is_not_all() -> None:
    """A judge that had 199 of 200 rows right was told with "exact 100%"."""
    curve = [{"loss": 0.5, "exact": 0.004}, {"loss": 0.1, "exact": 199 / 200}]
    made = {"rows": {"train": {"know": 9}}, "curve": curve, "best_epoch": 1, "tokens_per_second": 9}
    table = training_table({"trained": "LoRA", "predictors": {"know": made}, "missing": {}})
    file = io.StringIO()
    Console(width=120, file=file).print(table)
    assert "0.4% → 99.5%" in file.getvalue()


def test_p_values_are_numbers_in_files() -> None:
    """The tables of experiments held "<0.001", which no program compares."""
    right, wrong = ({str(n): {**record(n, correct), "id": str(n)} for n in range(20)} for correct in (True, False))
    sections = pair_sections(compare_records({"a": right, "b": wrong}).pairs)
    (row,) = json.loads(json.dumps(sections[0].as_dict()))["rows"]
    assert row["p"] == {"p": 2 * 0.5**20} == row["Holm"]
    assert [shown(cell) for cell in Section.of(sections[0].as_dict()).rows[0][-2:]] == ["<0.001", "<0.001"]
    assert [shown(PValue(p)) for p in (0.0321, 0.005, 0.001)] == ["0.032", "0.005", "0.001"]


def test_a_row_without_a_score_keeps_its_columns_in_files_and_one_of_no_questions_is_a_dash(tmp_path) -> None:
    none = Score(math.nan, math.nan, math.nan, 0)
    rows: list[list[Cell]] = [["a", Score(0.5, 0.4, 0.6, 10), 3], ["the paper's", 41.2, None], ["b", none, 1]]
    section = Section("t", ["program", "F1", "calls"], rows)
    section.write(tmp_path)
    head, *read = csv.reader((tmp_path / "t.csv").open(encoding="utf-8", newline=""))
    assert head == ["program", "F1", "F1 low", "F1 high", "F1 n", "calls"]
    assert read == [
        ["a", "0.5", "0.4", "0.6", "10", "3"],
        ["the paper's", "41.2", "", "", "", ""],
        ["b", "", "", "", "0", "1"],
    ]
    again = Section.of(json.loads(json.dumps(section.as_dict())))
    assert [[shown(cell) for cell in row] for row in again.rows] == [
        ["a", "50.0 [40.0, 60.0]", "3"],
        ["the paper's", "41.20", "-"],
        ["b", "-", "1"],
    ]
    assert isinstance(again.rows[2][1], Score) and math.isnan(again.rows[2][1].value)
    assert page_cell(none) == ["-"]


def test_what_was_won_and_lost_and_each_p_value_stand_in_their_columns() -> None:
    right = {"a": range(4), "b": range(2, 14), "c": range(20)}
    runs = {
        name: {str(n): {**record(n, n in of), "f1": 0.5, "id": str(n)} for n in range(20)} for name, of in right.items()
    }
    pairs = compare_records(runs).pairs
    em, f1 = pair_sections(pairs)
    first, second = (dict(zip(em.columns, row, strict=True)) for row in em.rows[:2])
    assert (first["pair"], first["difference"], first["won"], first["lost"]) == ("b - a", pairs[0].em, 10, 2)
    assert (second["p"], second["Holm"]) == (2 * 0.5**16, 3 * 2 * 0.5**16)
    assert f1.rows[0] == ["b - a", pairs[0].f1, 1.0, 1.0]


def test_a_row_that_a_data_set_lacks_leaves_its_own_columns_empty() -> None:
    whole, half = ({str(n): {**record(n, n < right), "id": str(n)} for n in range(4)} for right in (4, 2))
    section = overview({"hp": {"rag": whole, "direct": half}, "mq": {"rag": half}, "nq": {"direct": whole}}, "", {})
    assert section.columns == ["program", "hp EM", "hp F1", "mq EM", "mq F1", "nq EM", "nq F1"]
    values = [[cell.value if isinstance(cell, Score) else cell for cell in row] for row in section.rows]
    assert values == [["rag", 1.0, 1.0, 0.5, 0.5, None, None], ["direct", 0.5, 0.5, None, None, 1.0, 1.0]]
