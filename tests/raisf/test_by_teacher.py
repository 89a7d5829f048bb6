"""Table 5's agreement with a teacher."""

from types import SimpleNamespace

import pytest

from raisf.experiments import by_hand
from raisf.experiments.by_teacher import SAMPLED, agreement_with_teacher
from raisf.utils.errors import LMError
from raisf.utils.files import write_jsonl
from tests.scripted import ScriptedLM


def _judged():
    """The judge calls every passage relevant and everything known; gold calls every second one so."""
    rows = [{"question": f"Q{n}?", "gold": n % 2 == 0, "said": True, "readable": True} for n in range(6)]
    return {
        "know": [{**row, "passage": None} for row in rows],
        "relevance": [{**row, "passage": f"P{number}"} for number, row in enumerate(rows)],
        "decomposition": [
            {"question": "Both?", "gold": ["Who?", "Where?"], "listed": ["Who?"], "readable": True},
            {"question": "Lost?", "gold": ["Who?", "Where?"], "listed": [], "readable": False},
        ],
    }


def test_a_teacher_is_asked_what_the_judges_were_and_held_against_each_and_gold():
    def teacher(fields):
        if "passage" in fields:  # thinks as gold does
            return {"verdict": "relevant" if fields["passage"][-1] in "024" else "irrelevant"}
        unread = "?" if fields["question"] == "Q5?" else "know"
        return {"verdict": unread, "sub_questions": ["Who", "where?"]}

    lm, of = ScriptedLM(teacher), _judged()
    others = {"relevance": [{**row, "said": row["gold"]} for row in of["relevance"][:2]]}
    section = agreement_with_teacher(lm, {"zero-shot": of, "weights": others}, seed=0, threads=2)
    found = {row[0]: (round(row[1].value, 3), row[2], row[3]) for row in section.rows}
    assert found == {
        "know: gold": (pytest.approx(3 / 5, abs=1e-3), 0.0, 5),
        "know: zero-shot": (1.0, None, 5),
        "relevance: gold": (1.0, 1.0, 6),
        "relevance: zero-shot": (0.5, 0.0, 6),
        "relevance: weights": (1.0, 1.0, 2),
        "decomposition: gold": (1.0, None, 1),
        "decomposition: zero-shot": (0.0, None, 1),
    }
    assert "by 13 calls; 1 gave nothing that can be read." in section.text and "relevance 95.0" in section.text


def test_a_teacher_is_asked_about_a_sample():
    rows = [{"question": f"Q{n}?", "passage": None, "gold": True, "said": True, "readable": True} for n in range(150)]
    lm = ScriptedLM(lambda fields: {"verdict": "know"})
    section = agreement_with_teacher(lm, {"zero-shot": {"know": rows}}, seed=0, threads=8)
    assert len(lm.calls) == SAMPLED == section.rows[0][3]


def test_failed_calls_and_those_that_cannot_be_read_are_counted_apart():
    def teacher(fields):
        if fields["question"] == "Q0?":
            raise LMError("the endpoint is busy")
        return {"verdict": "?" if fields["question"] == "Q1?" else "know"}

    section = agreement_with_teacher(ScriptedLM(teacher), {"a": {"know": _judged()["know"]}}, seed=0, threads=1)
    assert "by 6 calls; 1 failed; 1 gave nothing that can be read." in section.text and section.rows[0][3] == 4


def test_passages_of_one_question_are_drawn_together_for_the_interval():
    rows = [
        {"question": f"Q{n % 2}?", "passage": f"P{n}", "gold": n % 2 == 0, "said": True, "readable": True}
        for n in range(40)
    ]
    section = agreement_with_teacher(
        ScriptedLM(lambda fields: {"verdict": "relevant"}), {"a": {"relevance": rows}}, seed=0, threads=8
    )
    share = section.rows[0][1]
    assert (share.value, share.low, share.high) == (0.5, 0.0, 1.0)  # one question is all right, the other all wrong


def test_another_seed_draws_another_sample():
    rows = [{"question": f"Q{n}?", "passage": None, "gold": True, "said": True, "readable": True} for n in range(150)]
    drawn = []
    for seed in (0, 0, 1):
        lm = ScriptedLM(lambda fields: {"verdict": "know"})
        agreement_with_teacher(lm, {"zero-shot": {"know": rows}}, seed=seed, threads=8)
        drawn.append({call["question"] for call in lm.calls})
    assert drawn[0] == drawn[1] != drawn[2]


def test_gold_of_what_each_lm_knows_is_told_apart_where_it_differs():
    lm, of = ScriptedLM(lambda fields: {"verdict": "know"}), _judged()["know"]
    turned = {"know": [{**row, "gold": not row["gold"]} for row in of[:3]]}
    section = agreement_with_teacher(lm, {"a": {"know": of}, "b": turned}, seed=0, threads=1)
    found = {row[0]: (row[1].value, row[3]) for row in section.rows}
    assert found["know: gold of a"] == (0.5, 6) and found["know: gold of b"] == (pytest.approx(1 / 3), 3)


@pytest.mark.parametrize("fault", [LMError("the endpoint is down"), "rubbish"])
def test_a_teacher_of_whom_nothing_comes_is_told_of_and_costs_no_table(fault, tmp_path):
    def teacher(fields):
        if isinstance(fault, str):
            return fault
        raise fault

    rows = [{"question": f"Q{n}?", "passage": "P", "gold": True, "said": True, "readable": True} for n in range(30)]
    write_jsonl(tmp_path / "judges" / "rows.jsonl", rows)
    workspace = SimpleNamespace(out=tmp_path, seed=0, teacher=ScriptedLM(teacher), threads=1)
    judged = {"zero-shot": {"relevance": {"verdicts": "rows.jsonl", "scores": {}}}}
    first, *_ = by_hand.reliability_and_people(workspace, judged)
    told = "30 gave nothing that can be read" if fault == "rubbish" else "The teacher could not be asked: "
    assert told in first.text and (tmp_path / "table5" / by_hand.FILE).is_file()
