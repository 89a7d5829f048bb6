"""What the viewer's script does by itself, without a browser."""

import json
from pathlib import Path
from typing import Any

import pytest

from raisf.viewing.page import _asset, script
from raisf.viewing.view import View
from tests.raisf.serving.page_script import run_in_node


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (
            {"cost": {"lm_calls": 1, "prompt_tokens": 9, "completion_tokens": 2, "retrievals": 2, "seconds": 0.5}},
            "1 LM call · 9 + 2 tokens · 2 retrievals · 0.50 s",
        ),
        (
            {"cost": {"lm_calls": 3, "prompt_tokens": 0, "completion_tokens": 0, "unmetered_calls": 3}, "failed": 1},
            "3 LM calls · 0 + 0 tokens (3 calls cached or uncounted) · ? retrievals · - s · 1 failed call",
        ),
    ],
)
def test_a_cost_that_nobody_counted_is_told_as_in_the_terminal(trace: dict[str, Any], told: str) -> None:
    work = f"""
    const number = (value, digits) => value === undefined ? "-" : value.toFixed(digits);
    const el = (tag, attributes, ...children) => children.flat().join("");
    console.log(JSON.stringify(costLine({json.dumps(trace)})));"""
    assert run_in_node(work, "costLine", script=script()) == told


def test_options_that_are_false_or_unset_are_told() -> None:
    """A run without the judge of knowledge had a blank beside use_know."""
    work = """
    class Node {
      setAttribute() {}
      append(...more) { this.text = more.map((one) => one.text ?? one).join(" "); }
    }
    const document = { createElement: () => new Node() }, visible = String;
    console.log(JSON.stringify(facts({ use_know: false, evidence: true, k: 5, max_calls: null, a: [1] }).text));"""
    told = "use_know false evidence true k 5 max_calls none a [1]"
    assert run_in_node(work, "el", "facts", script=script()) == told


def test_trees_that_could_not_be_had_are_asked_for_again() -> None:
    """The server was started again; its questions stayed "Failed to fetch" until the page was loaded anew."""
    work = """
    const blocks = new Map(), data = { block: 50, version: "v" };
    let asked = 0;
    const load = async () => { if (!asked++) throw new Error("gone"); return { trees: [["tree"]], texts: {} }; };
    const told = await treesOf(0).catch((error) => error.message);
    console.log(JSON.stringify([told, (await treesOf(0)).trees, (await treesOf(0)).trees, asked]));"""
    assert run_in_node(work, "treesOf", script=script()) == ["gone", ["tree"], ["tree"], 2]


def test_filters_and_orders_take_the_questions_that_they_name(records: Any, tmp_path: Path) -> None:
    a = [records.record(number, number % 2 == 0) for number in range(6)]
    b = [records.record(number, number % 2 == 0 or number == 3) for number in range(7)]
    a[4]["cost"] |= {"seconds": 2.0}
    a[1] |= {"error": "no reply"}
    a[4]["gold"]["known"] = False
    del a[5]["gold"]["known"]
    a[5]["gold"]["gold_pids"] = ["p2"]
    both = {"a": "A", "b": "B"}
    wanted: list[tuple[dict[str, str], list[int]]] = [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"a": "B"}, [0, 1, 2, 3, 4, 5, 6]),
        ({"a": "B", "b": "A"}, [0, 1, 2, 3, 4, 5]),
        ({"show": "right"}, [0, 2, 4]),
        ({"show": "wrong"}, [1, 3, 5]),
        ({"a": "B", "b": "A", "show": "won"}, [3]),
        ({**both, "show": "won"}, []),
        ({**both, "show": "lost"}, [3]),
        ({**both, "show": "both"}, [0, 2, 4]),
        ({**both, "show": "neither"}, [1, 5]),
        ({**both, "show": "differ"}, [3]),
        ({"kind": "lookup"}, [1, 3, 5]),
        ({"route": "passages"}, [0, 3]),
        ({"flag": "know"}, [0, 1, 2, 3]),
        ({"flag": "relevance"}, [0, 1, 2, 3, 4]),
        ({"flag": "unreadable"}, [0]),
        ({"flag": "error"}, [1]),
        ({"q": "RIVER 4"}, [4]),
        ({"q": "a lake"}, [1, 3, 5]),
        ({"sort": "calls"}, [2, 5, 1, 4, 0, 3]),
        ({"sort": "seconds"}, [4, 0, 1, 2, 3, 5]),
    ]
    view = View([records.write_report(tmp_path / "report", {"A": a, "B": b})])
    work = f"""
    const data = {json.dumps(view.summary)}, runOf = (label) => data.runs.findIndex((run) => run.label === label);
    {_asset("questions.js")}
    console.log(JSON.stringify({json.dumps([state for state, _ in wanted])}.map((state) => filtered(state))));"""
    assert [*zip([state for state, _ in wanted], run_in_node(work), strict=True)] == wanted
