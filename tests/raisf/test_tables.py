"""The papers' tables, made of records: what is counted, and what stands beside it."""

import csv
from types import SimpleNamespace

import dspy
import pytest

from raisf.experiments import blendfilter_tables, by_hand, tables
from raisf.experiments.cases import cases
from raisf.experiments.catalog import EXPERIMENTS
from raisf.programs.trace import Cost, JudgedPassage, Judgement, Node, Trace
from raisf.reports.page import write_page
from raisf.reports.sections import Section
from raisf.utils.errors import InputError
from raisf.utils.files import write_jsonl


def _record(name, em=1.0, sub_questions=(), cost=None, **more):
    root = Node(question=f"Q{name}?", depth=0, sub_questions=list(sub_questions)).conclude("direct", "known", "x")
    trace = Trace(system="ra-isf", root=root, cost=Cost(**(cost or {})), read=1)
    record = {"id": name, "question": f"Q{name}?", "answers": ["x"], "kind": None, "em": em, "f1": em, "accuracy": em}
    record |= {"prediction": "x", "route": "direct", "recall": None, "precision": None, "error": None}
    record |= {"cost": trace.cost.model_dump(), "read": 1, "unreadable": 0, "trace": trace.model_dump(mode="json")}
    return record | more


def _records(*ems, **more):
    return {str(number): _record(str(number), em, **more) for number, em in enumerate(ems)}


def _workspace(name=None, n=4):
    measure = "accuracy" if name == "strategyqa" else "exact match"
    searched = SimpleNamespace(searched="colbert")
    return SimpleNamespace(name=name, test=[None] * n, measure=measure, out=None, seed=0, left_out={}, indexes=searched)


def _sub(text, *below):
    return Node(question=text, depth=1, sub_questions=list(below)).conclude("direct", "known", "y")


def test_table4_counts_the_question_itself_and_shows_what_was_discarded():
    """The paper's "Sub" is 4.5 for NQ, whose questions are hardly ever broken down: the question is among them."""
    whole = {"1": _record("1", sub_questions=[_sub("a", _sub("b")), _sub("c")], cost={"retrievals": 2})}
    alone = {"1": _record("1", cost={"retrievals": 0, "discarded_retrievals": 1})}
    (section,) = tables.effort(_workspace("nq"), {"whole": whole, "alone": alone})
    assert [row[:4] for row in section.rows] == [
        ["whole", 2.0, 4.0, 0.0],
        ["alone", 0.0, 1.0, 1.0],
        ["the paper's, GPT-3.5", 2.8, 4.5, None],
        ["the paper's, Llama2-13B", 3.4, 5.3, None],
    ]
    assert "on NQ" in section.text and "mean over" not in section.text


def test_the_papers_figures_stand_beside_what_was_prompted_as_theirs_were():
    """BlendFilter's come of three demonstrations: they stood beside our zero-shot rows alone."""
    experiment = EXPERIMENTS["blendfilter-main"]
    answers = {"rag": _records(1.0), "rag, few-shot": _records(0.0)}
    section, others = experiment.sections(_workspace("hotpotqa"), answers)
    assert [row[-2:] for row in section.rows] == [[41.2, 53.7]] * 2
    assert [row[1:] for row in others.rows] == [[33.6, 18.0, 44.3, 31.0]] * 2
    assert experiment.sections(_workspace("strategyqa"), {"rag": _records(1.0)})[1].rows == [["rag", 62.4, 57.2]]
    assert not experiment.sections(_workspace("musique"), answers)[1].rows, "no table of nothing"
    closed = experiment.sections(_workspace(None), {"rag": _records(1.0)})[1]
    assert closed.rows == [["rag", 39.0, 27.87, 36.35, 25.5]] and "mean over its 3 sets; of F1, the mean" in closed.text
    workspace = _workspace("hotpotqa")
    workspace.left_out = {"blendfilter": "down", "react, few-shot": "no demonstrations"}
    first, second = experiment.sections(workspace, answers)
    assert second.rows[-2] == ["blendfilter", 39.6, 31.4, 52.7, 44.2]
    # Also of one that could not be run: it stood in the second table and not in the first.
    assert [row[0] for row in first.rows] == [row[0] for row in second.rows]
    assert first.rows[-1][0] == "react, few-shot" and first.rows[-1][-2:] == [36.0, 47.5]
    assert "prompted with three demonstrations: hold them against our few-shot rows" in section.text
    alone, _ = experiment.sections(_workspace("hotpotqa"), {"rag": _records(1.0)})
    assert "three demonstrations; ours show none" in alone.text
    # Of RA-ISF's Table 1 it is not told which rows had any.
    found = EXPERIMENTS["table1"].sections(_workspace("hotpotqa"), answers)[0]
    assert [row[-2:] for row in found.rows] == [[32.2, 17.6], [None, None]] and "prompted with" not in found.text


def test_a_caption_explains_no_row_that_the_table_has_not():
    """`--only rag` told of REPLUG's index, of Self-RAG's checkpoint and of RA-ISF's demonstrations."""

    def told(name, label=None, **options):
        rows = EXPERIMENTS[name].rows(_workspace(), only=label.split(", ") if label else (), **options)
        *sentences, always, forms = EXPERIMENTS[name].known_of(rows.values())
        assert forms.startswith("Prompts are ours")
        return [*sentences, always] if always else sentences

    every = told("table1")
    assert told("table1", "rag") == ["The baselines' plain rows are zero-shot.", every[-1]]
    assert told("table1", "ra-isf, zero-shot") == every[-1:] != told("table1", "ra-isf, prompts")
    assert told("table1", "replug, tuned index") == ["REPLUG's tuned index is a dense one (LSR).", every[-1]]
    assert len(every) == 8 and "ours prompts the LM that answers" in told("table1", "self-rag")[1]
    assert told("fig2", "ra-isf, weights, max_depth 1") == [] != told("fig2", "direct")
    assert told("table7", "ra-isf, weights") == [] != told("table7", "ra-isf, weights, listwise")
    assert told("table2", variant="zero-shot") == [] != told("table2"), "its judges have learnt nothing"


def test_the_best_of_three_samples_is_what_any_of_them_has_right():
    drawn = [_records(1.0, 0.0), _records(0.0, 0.0), _records(1.0, 0.0)]
    answers = {f"cot, top_p 1, sample {number}": records for number, records in enumerate(drawn, 1)}
    answers = {"cot, top_p 0, sample 1": _records(1.0, 1.0), **answers}
    section, f1 = blendfilter_tables.best_of(_workspace(n=2), answers)
    assert section.columns == ["exact match", "top_p 0", "top_p 1, one", "top_p 1, best of three", "best of the top_p"]
    for (row,) in (section.rows, f1.rows):
        assert [cell.value for cell in row[1:]] == pytest.approx([1.0, 1 / 3, 0.5, 1.0])
    # The paper's: of the first sample at each top_p any is right.
    answers = {"cot, top_p 0, sample 1": _records(1.0, 0.0), "cot, top_p 1, sample 1": _records(0.0, 0.0)}
    answers |= {f"{name}, sample 1": _records(1.0, 1.0) for name in ("rag, top_p 0", "rag, top_p 0.5")}
    answers["cot, top_p 1, sample 2"] = _records(1.0, 1.0)
    (section,) = blendfilter_tables.best_of(_workspace("strategyqa", n=2), answers)  # which has no F1
    tops = "cot: of the first at top_p 0, top_p 1; rag: of the first at top_p 0, top_p 0.5"
    assert section.rows[0][-1].value == 0.5 and f"best of the top_p, as in the paper: {tops}. Every" in section.text
    answers = {name: answers[name] for name in ("cot, top_p 0, sample 1", "cot, top_p 1, sample 2")}  # with --only
    section, _ = blendfilter_tables.best_of(_workspace(n=2), answers)
    assert section.columns == ["exact match", "top_p 0", "top_p 1"] and "as in the paper" not in section.text


def test_figure2_has_level_lines_for_programs_without_depth_and_the_cost_of_each_depth():
    answers = {"ra-isf, weights, max_depth 0": _records(0.0, cost={"lm_calls": 2})}
    answers |= {"ra-isf, weights, max_depth 1": _records(1.0, cost={"lm_calls": 7}), "rag": _records(1.0)}
    curve, cost = tables.depths(_workspace(), answers)
    assert curve.columns == ["exact match", "max_depth 0", "max_depth 1"]
    assert {row[0]: [cell.value for cell in row[1:]] for row in curve.rows} == {
        "ra-isf, weights": [0, 1],
        "rag": [1, 1],
    }
    assert [row[1] for row in cost.rows] == [2, 7, 0]


def test_strategyqa_has_no_f1_and_a_public_set_of_another_paper_no_figure():
    from raisf.experiments import published_results as published

    lm = "GPT-3.5"
    made = tables.table(published.BLENDFILTER_MAIN[lm], f1=published.BLENDFILTER_MAIN_F1[lm])
    (section,) = made(_workspace("strategyqa"), {"cot": _records(1.0)})
    assert "F1" not in " ".join(section.columns) and section.rows[0][-1] == 70.0
    (section,) = made(_workspace("hotpotqa"), {"cot": _records(1.0)})
    assert section.rows[0][-2:] == [30.2, 43.2]
    # In a CSV ours are shares of one.
    assert section.columns[-2:] == ["paper*, %", "paper's F1*, %"]
    (section,) = made(_workspace("musique"), {"cot": _records(1.0)})
    assert section.rows[0][-2:] == [None, None] and "none for musique" in section.text


def test_errors_and_unreadable_outputs_are_named_beside_the_table():
    (section,) = tables.table()(_workspace(), {"rag": _records(0.0, error="LMError: down"), "cot": _records(1.0)})
    assert "rag 1" in section.text
    (section,) = tables.table()(_workspace(), {"rag": _records(0.0, unreadable=2)})
    assert section.columns[-1] == "unreadable" and section.rows[0][-1] == "2 of 3"


@pytest.mark.parametrize("name", ["fig2", "fig3", "blendfilter-k", "blendfilter-sampling", "table7", "judges"])
def test_errors_and_unreadable_outputs_are_named_below_curves_too(name):
    """A model whose outputs nobody could read was a low curve, and nothing said why."""
    labels = {"fig2": "rag, max_depth 1", "blendfilter-sampling": "rag, top_p 0, sample 1", "judges": "way: none"}
    label = labels.get(name, "rag, k 3")
    workspace = _workspace(n=1)
    workspace.left_out, workspace.judge = {}, lambda settings: {}
    (first, *_) = EXPERIMENTS[name].sections(workspace, {label: _records(0.0, error="LMError: down", unreadable=2)})
    assert f"could not be read, an answer among which counts as wrong: {label} 2 of 3." in first.text
    assert f"Questions that ended in an error, and count as wrong: {label} 1." in first.text


def test_a_curve_of_a_kind_says_how_many_questions_it_rests_on():
    """The text gave the number of all questions, for curves that rest on a few each."""
    answers = _records(1.0, 0.0, 1.0)
    for name, kind in zip(answers, ("bridge", "bridge", "yesno"), strict=True):
        answers[name]["kind"] = kind
    (section,) = EXPERIMENTS["fig4"].sections(_workspace(n=3), {"ra-isf, weights, k 1": answers})
    assert [row[0] for row in section.rows] == ["bridge (n=2)", "yesno (n=1)"]
    assert "n = 3 over all kinds." in section.text and "bridge (n=2)" in section.drawings[0]


def test_figure4_is_refused_before_anything_is_asked_where_all_questions_are_of_a_kind():
    """It was an empty table."""
    workspace = _workspace()
    workspace.test = [SimpleNamespace(kind="question")] * 4
    with pytest.raises(InputError, match="all 4 test questions are of the kind 'question': give them"):
        EXPERIMENTS["fig4"].run(workspace, None)


def test_questions_without_gold_passages_are_told_before_passages_are_held_to_gold():
    """On StrategyQA and NQ all was answered for a table of dashes."""
    workspace = _workspace()
    workspace.test = [dspy.Example(question="Who?", gold_pids=[], gold_titles=[])] * 4
    with pytest.raises(InputError, match="none of the 4 test questions names any: give them gold_pids"):
        EXPERIMENTS["blendfilter-retrieval"].run(workspace, None)


def test_the_papers_figure_of_a_row_that_cannot_be_run_is_shown():
    """At an endpoint, where no judges are trained, nothing told what the paper's RA-ISF has."""
    workspace = _workspace("hotpotqa")
    workspace.left_out = {"ra-isf, weights": "elsewhere", "rag, few-shot": "no demonstrations", "react": "down"}
    first = EXPERIMENTS["table1"].sections(workspace, {"direct": _records(1.0)})[0]
    assert [row[0] for row in first.rows] == ["direct", "ra-isf, weights"]
    assert first.rows[1][1:4] == [None] * 3 and first.rows[1][-2:] == [46.5, 28.9]


def test_a_set_of_which_the_paper_has_no_figures_gets_no_empty_row_of_them():
    (section,) = tables.effort(_workspace("2wiki"), {"whole": _records(1.0)})
    assert [row[0] for row in section.rows] == ["whole"]
    assert "The paper's figures, of which there is none for 2WikiMultihopQA." in section.text


def test_a_judge_without_gold_is_named_below_table5(tmp_path):
    """It was told on the terminal alone, by a warning."""
    know = {"scores": {"accuracy": {"value": 1.0, "low": 0.5, "high": 1.0, "n": 3}}, "rows": 3}
    first, *_ = tables.reliability(_workspace("nq"), {"ra-isf, zero-shot": {"know": know}})
    told = "no gold for them: relevance (the paper's agreement: people 93.5, GPT-4 95.0); decomposition (the paper's"
    assert told in first.text and "The paper's agreement: GPT-4 97.0." in first.text


def test_each_question_is_held_to_its_gold_by_the_name_that_it_gives():
    """Where some give ids, the titles of the others were compared with ids: recall 0."""
    passages = [JudgedPassage(pid="7", title="Ulm", text="")]
    node = Node(question="Q?", depth=0, passages=passages).conclude("passages", "from 1 of 1", "x")
    tree = Trace(system="rag", root=node, cost=Cost()).model_dump(mode="json")
    gold = [{"gold_pids": ["7", ""], "gold_titles": ["Ulm"]}, {"gold_titles": ["Ulm"]}, {}, {"gold_pids": [""]}]
    workspace = _workspace()
    workspace.test = [
        dspy.Example(id=str(n), **{"gold_pids": [], "gold_titles": [], **one}) for n, one in enumerate(gold)
    ]
    (section,) = blendfilter_tables.kept(workspace, {"retrieved": _records(1.0, 1.0, 1.0, 1.0, trace=tree)})
    assert section.columns[-1] == "n" and section.rows[0][-1] == 2
    assert [score.value for score in section.rows[0][1:4]] == [1.0, 1.0, 1.0]


def test_what_the_papers_modules_settle_stands_below_our_routes():
    """Of Table 7 it was the share right from memory alone."""

    def last(name):
        section = tables.routes(_workspace(name), {"whole": _records(1.0)})[0]
        return section.rows[-1], section.text

    row, text = last("strategyqa")
    assert row == ["the paper's, GPT-3.5", "52.1% (78.9%)", "24.7% (76.7%)", "23.2% (68.3%)", None]
    assert "on StrategyQA: the share that is right is worked out from its Tables 6 and 7" in text
    row, _ = last("hotpotqa")
    assert row[1:] == ["24.3% (42.3%)", "32.8%", "42.9%", None], "no copy of the other two counts can be read"
    row, text = last(None)
    four = "(4 of 5 sets)"
    assert row[1:] == ["48.96% (54.4%)", f"26.76%, right 53.88 {four}", f"24.28%, right 58.40 {four}", None]
    assert "the mean over its 5 sets" in text
    assert last("musique")[0][0] == "whole"


def test_the_papers_rows_stand_below_ours_where_they_are_of_other_models():
    from raisf.experiments import published_results as published

    (section,) = tables.table(published.TABLE_3, besides=True)(_workspace("nq"), {"pocket, LoRA": _records(1.0)})
    assert section.rows[0][-1] is None
    assert [row[-1] for row in section.rows[1:]] == [40.2, 39.6, 42.3] and section.rows[1][1] is None


def test_cases_are_those_the_filter_decides_and_their_trees_are_shown(tmp_path):
    passage = JudgedPassage(pid="1", title="<b>Tree</b>", text="", judgement=Judgement(verdict="relevant"))
    node = Node(question="Q1?", depth=0, passages=[passage]).conclude("passages", "from 1 of 2", "x")
    tree = Trace(system="blendfilter", root=node, cost=Cost()).model_dump(mode="json")
    before, after = _records(1.0, 0.0), _records(1.0, 1.0)
    after["1"]["trace"] = tree
    (section,) = cases(_workspace(), {"cot-rag": before, "blendfilter": after})
    assert [row[0] for row in section.rows] == ["Q1?", "Q1?"] and [row[-1] for row in section.rows] == ["no", "yes"]
    assert "<b>Tree</b>" in section.blocks[1] and "\n" in section.blocks[1]
    section.title = "Cases"
    assert Section.of(section.as_dict()).blocks == section.blocks
    write_page(tmp_path / "page.html", "t", {}, [section])
    assert "&lt;b&gt;Tree&lt;/b&gt;" in (tmp_path / "page.html").read_text("utf-8")


def _judged():
    passages = [("Who?", f"passage {number}", number % 2 == 0) for number in range(6)]
    relevance = [
        {"question": q, "passage": text, "gold": gold, "said": True, "readable": True} for q, text, gold in passages
    ]
    decomposition = [{"question": "Who?", "gold": ["=a"], "listed": ["=a", "b"], "readable": True}]
    return {"zero-shot": {"relevance": relevance, "decomposition": decomposition}}


def test_people_label_a_sample_blindly_and_their_agreement_is_computed(tmp_path):
    judged, path = _judged(), tmp_path / "table5" / by_hand.FILE
    by_hand.write_sample(path, judged)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7 and not {"gold", "said"} & rows[0].keys() and all(row["label"] == "" for row in rows)
    assert by_hand.labels(path) == {}
    assert next(row["to judge"] for row in rows if row["judge"] == "decomposition").startswith("'="), "no formula"
    for row in rows:  # this person thinks as gold does, but for one passage
        even = row["to judge"][-1] in "024" and row["to judge"] != "passage 4"
        row["label"] = "good" if row["judge"] == "decomposition" else " Relevant" if even else "irrelevant"
    _write(path, rows)
    said = by_hand.labels(path)
    found = {row[0]: row[1:] for row in by_hand._agreement(judged, said).rows}
    gold, zero, listed = found["relevance: gold"], found["relevance: zero-shot"], found["decomposition: zero-shot"]
    assert (gold[0].value, gold[2]) == (pytest.approx(5 / 6), 6) and gold[1] == pytest.approx(2 / 3)
    assert zero[0].value == pytest.approx(2 / 6) and zero[1] == 0.0, "who says relevant to all agrees by chance"
    assert (listed[0].value, listed[1]) == (1.0, None)
    rows[0]["label"] = "perhaps"
    _write(path, rows)
    with pytest.raises(InputError, match=r"line 2: the label is 'perhaps': write"):
        by_hand.labels(path)


def test_people_are_held_against_passages_judged_alone_and_labels_of_other_rows_are_counted(tmp_path):
    """Gold of the reading as a set overwrote gold of each passage alone, which is what people label."""
    (of,) = _judged().values()
    as_a_set = {"relevance": [{**row, "gold": False} for row in of["relevance"]]}
    judged = {}
    for label, rows in (("zero-shot", of), ("one that is given", as_a_set)):
        told = {"scores": {}, "as_a_set": rows is as_a_set}
        judged[label] = {judge: {"verdicts": f"{label}-{judge}.jsonl", **told} for judge in rows}
        for judge, given in rows.items():
            write_jsonl(tmp_path / "judges" / f"{label}-{judge}.jsonl", given)
    workspace, path = SimpleNamespace(out=tmp_path, seed=0, teacher=None), tmp_path / "table5" / by_hand.FILE
    by_hand.reliability_and_people(workspace, judged)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        right = "relevant" if row["to judge"][-1] in "024" else "irrelevant"
        row["label"] = right if row["judge"] == "relevance" else "good"
    _write(path, [*rows, {**rows[0], "id": "of another run"}])
    first, *_, agreed = by_hand.reliability_and_people(workspace, judged)
    assert {row[0] for row in agreed.rows} == {"relevance: gold", "relevance: zero-shot", "decomposition: zero-shot"}
    assert agreed.rows[0][1].value == 1.0, "this person thinks as gold does"
    assert "1 of the 8 labels" in first.text and "that this run does not have" in first.text


@pytest.mark.parametrize(
    ("encoding", "delimiter"), [("utf-8", ";"), ("utf-8", "\t"), ("utf-16", ","), ("utf-16", "\t")]
)
def test_labels_are_read_as_spreadsheets_save_them(encoding, delimiter, tmp_path):
    lines = [["id", "judge", "question", "label"], ["ra", "relevance", "Where, in Köln?", "relevant"]]
    path = tmp_path / "labels.csv"
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(lines)
    assert by_hand.labels(path) == {"ra": "relevant"}


def test_where_nothing_was_judged_no_file_asks_for_labels(tmp_path):
    path = tmp_path / "table5" / by_hand.FILE
    assert by_hand.write_sample(path, {"zero-shot": {}}) == 0 and not path.exists(), "it would be taken for the sample"


def _write(path, rows):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
