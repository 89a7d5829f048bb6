"""The report's page: what a reader in a hurry, on paper or on a telephone finds there."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from raisf.evaluation.comparison import compare_records
from raisf.evaluation.intervals import Score
from raisf.evaluation.report import UNCOUNTED, summarise
from raisf.experiments import tables
from raisf.experiments.cases import cases
from raisf.experiments.pages import write_experiment, write_page_of_all
from raisf.experiments.provenance import provenance, without_credentials
from raisf.reports import plots
from raisf.reports.examples import MOST, wins_and_losses
from raisf.reports.headline import best_of, headline
from raisf.reports.page import _element
from raisf.reports.page import _parts as page_cell
from raisf.reports.report import ROUTES, report_of
from raisf.reports.sections import Section, shown
from raisf.utils.files import read_json


def _runs(records: Any, **right: int) -> dict[str, dict[str, Any]]:
    """Programs by how many of forty questions each has right; all have the first ones."""
    return {
        name: {f"q{number}": records.record(number, number < count) for number in range(40)}
        for name, count in right.items()
    }


def test_the_result_is_said_in_a_sentence_with_its_doubt(records: Any) -> None:
    told = headline(compare_records(_runs(records, rag=10, raisf=30)))
    assert told.startswith("raisf answers 75.0% [") and "of 40 questions right" in told
    assert "50.0 [" in told and "points more than rag" in told and "p < 0.001" in told
    close = headline(compare_records(_runs(records, raisf=30, rag=29)))
    assert "Its lead of 2.5 [0.0, 7.5] points over rag" in close, "the difference is the better one's, however paired"
    assert "may be chance" in close
    assert headline(compare_records(_runs(records, rag=7, raisf=7))).endswith("raisf answers as many.")
    assert headline(compare_records(_runs(records, rag=10))).count(".") == 4


def test_one_program_under_two_labels_is_tested_once_and_is_not_its_own_next_best(records: Any) -> None:
    """Its lead over the others was told no more, their differences were corrected twice, and no wins were shown."""
    runs = _runs(records, rag=10, direct=5, prompts=30)
    twice = report_of("t", {}, {"zero-shot": runs["prompts"], **runs}, {}, {})
    joined = {"zero-shot = prompts": runs["prompts"], "rag": runs["rag"], "direct": runs["direct"]}
    once = report_of("t", {}, joined, {}, {})
    assert twice.headline == once.headline and "points more than rag, the next best" in once.headline
    assert twice.results["pairs"] == once.results["pairs"] and len(once.results["pairs"]) == 3
    assert twice.examples == once.examples and [one.right for one in once.examples] == ["zero-shot = prompts"] * MOST
    assert [row[0] for row in twice.sections["answers"].rows] == ["zero-shot", "rag", "direct", "prompts"]


def test_a_p_value_is_on_the_side_of_a_twentieth_that_the_sentence_says(records: Any) -> None:
    """A lead by 42 against 25, p = 0.0498, was told as more than chance with "p = 0.05"."""
    right = {"raisf": range(42), "rag": range(42, 67)}
    runs = {name: {f"q{n}": records.record(n, n in of) for n in range(70)} for name, of in right.items()}
    assert "points more than rag, the next best (p = 0.0498 after" in headline(compare_records(runs))
    runs["direct"] = runs["rag"]
    assert "may be chance (p = 0.149 after" in headline(compare_records(runs)), "of three pairs it is no more than that"


def test_a_table_of_an_earlier_command_is_told_with_what_it_was_run_with(tmp_path: Path) -> None:
    """The page said the last command's LM, questions and options of every table in the folder."""
    facts = {"data": "w, 200 test questions", "language model": "pocket", "teacher": None, "seed": 0}
    earlier = {"data": "w, 6 test questions", "language model": "pocket-tiny", "teacher": "openai/gpt-4o"}
    write_experiment(
        tmp_path, "table1", {**facts, **earlier}, [Section("All", ["program"], [["a"]], "n = 6.", None)], {}
    )
    write_experiment(tmp_path, "table2", facts, [Section("Some", ["program"], [["b"]], "n = 200.", None)], {})
    page = (tmp_path / "report.html").read_text("utf-8")
    told = "; ".join(f"{name}: {value}" for name, value in earlier.items())
    assert page.count("Other than this page") == 1 and f"provenance says: {told}." in page
    saved = read_json(tmp_path / "table1/results.json")
    assert saved["sections"][0]["text"] == "n = 6.", "what is told on the page belongs to the page"
    write_page_of_all(tmp_path, {**facts, **earlier})
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "provenance says: data: w, 200 test questions; language model: pocket; teacher: none." in page


def test_an_experiment_whose_results_a_power_cut_has_emptied_is_told_and_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("table1", "table2"):
        section = Section(name.upper(), ["program"], [["a"]], "", None)
        write_experiment(tmp_path, name, {"data": "w", "language model": "pocket"}, [section], {})
        (tmp_path / "table1/results.json").write_text("")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "TABLE2" in page and "TABLE1" not in page
    assert "table1/results.json cannot be read: table1 is not on the page until it is run again" in caplog.text


def test_an_experiments_page_begins_with_what_its_own_lm_answered(tmp_path: Path) -> None:
    """Above another LM's name stood the best row of the first table in the folder, whoever had answered it."""
    for name, lm, right in (("table1", "pocket", 0.9), ("table2", "pocket-tiny", 0.2)):
        section = Section(name.upper(), ["program", "exact match"], [["a", Score(right, 0.1, 0.95, 10)]])
        section.drawings = [f"<svg>{lm}</svg>"] * (lm == "pocket")
        write_experiment(tmp_path, name, {"data": "w", "language model": lm, "index": None}, [section], {})
    page = (tmp_path / "report.html").read_text("utf-8")
    assert 'class="headline">table2: TABLE2: a has the highest exact match, 20.0% [10.0, 95.0].' in page
    assert page.index("<h2", page.index("TABLE2</h2>")) < page.index("TABLE1</h2>"), "the others come last"
    assert page.index("<svg>pocket</svg>") > page.index("TABLE1</h2>"), "and so do their figures"
    write_page_of_all(tmp_path, {"data": "w", "language model": "smollm2"})
    assert 'class="headline"' not in (tmp_path / "report.html").read_text("utf-8")


def test_an_experiments_page_says_which_row_is_best() -> None:
    rows: list[Any] = [["a", Score(0.5, 0.4, 0.6, 10)], ["b", Score(0.7, 0.6, 0.8, 10)], ["c", None]]
    without = Section("Costs", ["program", "calls"], [["a", 3]])
    told = best_of([without, Section("All systems", ["program", "exact match"], rows)])
    assert told == "All systems: b has the highest exact match of 2 rows, 70.0% [60.0, 80.0]."
    assert best_of([without]) == ""
    wide = Section("All systems", ["program", "exact match"], [rows[1], ["d", Score(0.6, 0.2, 0.95, 10)]])
    assert "b has the highest" in best_of([wide]), "whatever the intervals reach"
    tied = Section("All systems", ["program", "exact match"], [rows[0], ["c", rows[0][1]]])
    assert "All systems: 2 of 2 rows share the highest exact match, " in best_of([tied]), (
        "the first one was named alone"
    )


def test_wins_and_losses_come_with_both_trees(records: Any) -> None:
    runs = _runs(records, rag=10, raisf=30)
    runs["rag"]["q35"] = records.record(35, True)
    found = wins_and_losses(compare_records(runs), runs)
    assert [one.right for one in found] == ["raisf"] * MOST + ["rag"]
    assert all(list(one.sides) == ["raisf", "rag"] for one in found)


def test_the_page_begins_with_the_result_and_links_what_it_shows(records: Any, tmp_path: Path) -> None:
    runs = _runs(records, rag=10, raisf=30)
    strange = records.record(9, True, question=records.HOSTILE)
    strange["trace"]["root"]["question"] = records.HOSTILE
    runs["raisf"]["q35"], runs["rag"]["q35"] = {**strange, "id": "q35"}, {**strange, "id": "q35", "em": 0.0}
    bins = [{"low": 0.0, "high": 0.5, "n": 20, "probability": 0.25, "share": 0.3}]
    judged = {"raisf": {"relevance": {"scores": {}, "bins": bins}}}
    facts = {"command": "raisf compare --out x", "language model": "pocket", "seed": None}
    report_of("A title", facts, runs, judged, {}).write(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    places = [page.index(part) for part in ("<h1>A title", "raisf answers", "<svg", "raisf compare --out", "Contents")]
    assert places == sorted(places), "the result, the figure, provenance, the contents"
    assert "<dt>seed" not in page and "<script" not in page and "<img" not in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    linked = re.findall(r'<a href="#([^"]*)"', page)
    assert linked and set(linked) <= set(ids)
    assert len([name for name in linked if name.startswith("tree-")]) == MOST
    assert "color-scheme: light dark" in page
    assert "currentColor" in page and "#000000" not in page, "what matplotlib draws black is seen in the dark"


def test_a_flat_loss_has_an_axis_of_its_own() -> None:
    curve = {"know": [0.7, 0.5, 0.4], "decompose": [0.001, 0.001, 0.001]}
    predictors = {judge: {"curve": [{"loss": loss} for loss in losses]} for judge, losses in curve.items()}
    figures = plots.learning_curves({"weights": {"predictors": predictors}, "prompts": None})
    tops = [figure.axes[0].get_ylim()[1] for figure in figures]
    assert tops == [pytest.approx(0.77), pytest.approx(0.0011)]
    assert all(figure.get_figwidth() <= plots.WIDTH for figure in figures), "read on a telephone too"


def test_a_judge_that_needed_no_epoch_has_no_curve() -> None:
    """One point was drawn over epochs of -0.05 to 0.05."""
    predictors = {"decompose": {"curve": [{"loss": 0.001}]}, "know": {"curve": [{"loss": 0.7}, {"loss": 0.5}]}}
    figures = plots.learning_curves({"weights": {"predictors": predictors}})
    assert [figure.axes[0].get_title() for figure in figures] == ["know, on what it was validated on"]


def test_a_judge_has_its_diagram_where_the_others_have_no_gold(records: Any) -> None:
    """Of questions without gold passages the judge of knowledge was never drawn."""
    bins = [{"low": 0.0, "high": 0.5, "n": 20, "probability": 0.25, "share": 0.3}]
    judged = {"raisf": {"know": {"scores": {"accuracy": Score(0.5, 0.4, 0.6, 20).as_dict()}, "bins": bins}}}
    made = report_of("A title", {}, _runs(records, rag=10, raisf=30), judged, {})
    assert len(made.sections["judge-know"].drawings) == 1


def test_one_case_alone_is_compared_with_nothing(records: Any) -> None:
    (section,) = cases(None, _runs(records, raisf=30))  # type: ignore[arg-type]
    assert section.text.startswith("raisf is compared with no other program")


def test_no_two_programs_of_a_table_look_alike_in_its_figures() -> None:
    """Of table1's thirty rows four each had one colour and one form."""
    rows = {f"row {number}": summarise([]) for number in range(31)}
    for figure in (
        *plots.accuracy_against_cost(rows),
        plots.curves({name: {1: Score(0, 0, 0, 0)} for name in rows}, "x", "y"),
    ):
        lines = [line for line in figure.axes[0].lines if str(line.get_marker()) in plots.MARKERS]
        assert len({(line.get_color(), line.get_marker()) for line in lines}) == 31


def test_provenance_names_what_made_the_result_and_no_password(tmp_path: Path) -> None:
    command = "raisf compare --api-base http://me:secret@host:8000/v1"
    facts = provenance([], "test.jsonl", [tmp_path / "nosuch"], command)
    assert facts["command"] == "raisf compare --api-base http://host:8000/v1" and facts["answered"] is None
    assert "dspy" in facts["versions"] and "python" in facts["versions"]
    assert without_credentials("a http://x/y@z") == "a http://x/y@z"
    assert without_credentials("a http://x/y?api_key=secret --k 3") == "a http://x/y --k 3"
    (tmp_path / "r.jsonl").write_text("{}\n")
    assert provenance([], "t", [tmp_path / "r.jsonl"])["answered"].endswith("UTC")


def test_provenance_names_an_index_once_by_whatever_way_and_in_whatever_part_it_is_searched() -> None:
    """Of five artifacts it named one index five times: "a/../index, b/../index, ..."; of a module's part none."""
    programs = [dspy.Module() for _ in range(3)]
    for program, way in zip(programs, ("a/../index", "b/../index", "other"), strict=True):
        program.part = dspy.Module()
        program.part.retriever = SimpleNamespace(path=Path(way), corpus_hash="")
    assert provenance(programs, "t", [])["index"] == "a/../index, other"


def test_a_routes_bar_is_as_long_as_its_share_and_full_as_far_as_it_is_right() -> None:
    routes = {"direct": SimpleNamespace(share=0.5, correct=0.6), "decomposed": SimpleNamespace(share=0.25, correct=0.2)}
    report: Any = SimpleNamespace(routes=routes)
    bars: Any = plots.route_shares({"a": report}, ROUTES).axes[0].patches
    found = [(round(bar.get_x()), round(bar.get_width()), bar.get_alpha()) for bar in bars]
    assert found == [(0, 30, None), (30, 20, 0.3), (50, 5, None), (55, 20, 0.3), (75, 25, None)]


def test_a_curve_goes_along_its_axis_in_percent_within_its_intervals() -> None:
    points = {3.0: Score(0.5, 0.4, 0.7, 10), 1.0: Score(0.2, 0.1, 0.3, 10)}
    panel: Any = plots.curves({"a": points}, "k", "exact match").axes[0]
    assert panel.lines[0].get_xydata().tolist() == [[1, 20], [3, 50]]
    band = {tuple(place) for place in panel.collections[0].get_paths()[0].vertices.tolist()}
    assert band == {(1, 10), (1, 30), (3, 40), (3, 70)}


def test_a_program_whose_cost_nobody_knows_does_not_look_free() -> None:
    for figure in plots.accuracy_against_cost({"a": summarise([])}):
        panel: Any = figure.axes[0]
        assert math.isnan(panel.lines[0].get_xdata()[0])


def test_a_drawing_takes_the_pages_colours_and_sizes() -> None:
    drawn = '<?xml version="1.0"?><svg width="10.5pt" height="3pt"><path stroke="#000000" fill="#e4e7eb"/></svg>'
    assert _element(drawn) == '<svg width="10.5" height="3"><path stroke="currentColor" fill="var(--faint)"/></svg>'


def test_equal_figures_are_equal_text() -> None:
    """Else a page among documents would change each time that its command runs."""
    section = Section("t", ["program"], [["a"]])
    for _ in range(2):
        section.draw(plots.exact_match({"a": summarise([])}))
    first, second = section.drawings
    assert first == second and "<dc:date>" not in first


def test_what_a_figure_of_routes_says_below_its_bars_ends_inside_it() -> None:
    """Beside the names of table7's rows it was cut off."""
    figure = plots.route_shares({"ra-isf, zero-shot, listwise": summarise([])}, ROUTES)
    figure.draw_without_rendering()
    label = figure.axes[0].xaxis.label.get_window_extent()
    assert 0 <= label.x0 and label.x1 <= figure.bbox.width


def test_no_figure_is_below_nought_by_its_sign_alone() -> None:
    score = Score(0.4, -1e-17, 0.8, 5)
    assert shown(score) == "40.0 [0.0, 80.0]" and str(score) == "40.0 [0.0, 80.0] n=5"
    assert page_cell(score) == ["40.0", "0.0 to 80.0"]
    assert shown(Score(-0.25, -0.5, 0.0, 5)).startswith("-25")


def test_a_program_that_tells_no_route_has_none_in_the_table(records: Any) -> None:
    """It stood there with "no answer" for all its questions, and free of cost."""
    runs = _runs(records, ours=20, own=20)
    for record in runs["own"].values():
        record.update(route=None, trace=None, cost={"lm_calls": 2, "seconds": 0.1})
    report = report_of("t", {}, runs, {}, {})
    assert [row[0] for row in report.sections["routes"].rows] == ["ours"]
    cost = {
        row[0]: dict(zip(report.sections["cost"].columns, row, strict=True)) for row in report.sections["cost"].rows
    }
    assert cost["own"]["LM calls"] == 2 and cost["own"]["retrievals"] is None and cost["ours"]["retrievals"] == 1
    assert "what it retrieves is not told" in report.sections["cost"].text
    del runs["ours"]
    assert "routes" not in report_of("t", {}, runs, {}, {}).sections


def test_a_mean_cost_says_which_questions_it_leaves_out(records: Any) -> None:
    """Of 40 questions 30 had failed after a minute each: 5 calls and 45 seconds a question, and both a mean of all."""
    runs = _runs(records, ours=40)
    assert "in no mean" not in report_of("t", {}, runs, {}, {}).sections["cost"].text
    for number in range(30):
        lost = {"em": 0.0, "route": None, "trace": None, "recall": None, "cost": {"seconds": 60.0}}
        runs["ours"][f"q{number}"].update(lost, error="LMError: down")
    cost = report_of("t", {}, runs, {}, {}).sections["cost"]
    assert cost.rows[0][1] == 4.9 and cost.rows[0][-1] > 45 and UNCOUNTED in cost.text
    told = summarise(runs["ours"].values()).table()
    assert UNCOUNTED in str(told.caption)
    (first,) = tables.table()(SimpleNamespace(test=[0] * 40, measure="exact match", name=None, left_out={}), runs)
    assert UNCOUNTED in first.text


def test_what_ended_with_an_answer_is_not_counted_as_no_answer(records: Any) -> None:
    """ReAct, which answered all questions, stood there with "no answer" for 100%."""
    runs = _runs(records, ours=40, react=10)
    for record in runs["react"].values():
        record.update(route="acted")
    table = report_of("t", {}, runs, {}, {}).sections["routes"]
    assert table.columns[-2:] == ["acted", "no answer"] and ">acted<" in table.drawings[0]
    assert [row[-2:] for row in table.rows] == [["0.0%", "0.0%"], ["100.0% (25.0%)", "0.0%"]]
    for number in range(4):  # of questions that nothing answers, where gold is "unknown"
        runs["react"][f"q{number}"].update(route="max_steps", prediction="unknown")
    assert report_of("t", {}, runs, {}, {}).sections["routes"].rows[1][-1] == "10.0% (100.0%)"


def test_recall_over_fewer_questions_says_over_how_many(records: Any) -> None:
    """One that knows the easy ones searched for the hard ones alone, and seemed to find less."""
    runs = _runs(records, rag=20, raisf=20)
    assert "searched for" not in report_of("t", {}, runs, {}, {}).sections["answers"].text
    for number in range(10):
        runs["raisf"][f"q{number}"]["recall"] = None
    assert "(rag 40, raisf 30)" in report_of("t", {}, runs, {}, {}).sections["answers"].text
