"""What the viewer's script does by itself, without a browser."""

import json
from typing import Any

import pytest

from raisf.viewing.page import script
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
