"""Table 5's agreement with a teacher."""

import pytest

from raisf.experiments.by_teacher import SAMPLED, agreement_with_teacher
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
    assert "Of 1 there is no reply that can be read." in section.text and "relevance 95.0" in section.text


def test_a_teacher_is_asked_about_a_sample():
    rows = [{"question": f"Q{n}?", "passage": None, "gold": True, "said": True, "readable": True} for n in range(150)]
    lm = ScriptedLM(lambda fields: {"verdict": "know"})
    section = agreement_with_teacher(lm, {"zero-shot": {"know": rows}}, seed=0, threads=8)
    assert len(lm.calls) == SAMPLED == section.rows[0][3]
