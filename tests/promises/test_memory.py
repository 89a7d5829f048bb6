"""What a user whose process runs for days is promised: what it keeps does not grow with what it is asked."""

import gc
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY

from raisf.experiments.opening import LMChoice, open_program, without_cache
from raisf.optimize.artifact import save


def test_commands_keep_no_history_of_calls(faulty: Any, tmp_path: Path) -> None:
    """DSPy's own keeps the prompts and answers of 10,000 calls, three times over."""
    with faulty.serve() as endpoint:
        program = open_program("direct", lm=LMChoice("openai/x", api_base=endpoint.url))
        save(program, tmp_path / "a")
        again = open_program(str(tmp_path / "a"), lm=LMChoice(api_base=endpoint.url))
        before = len(GLOBAL_HISTORY)
        for one in (program, again, without_cache(program)):
            assert one(question="Who?").answer.startswith("answer ")
            assert one.answer_directly.lm.history == one.answer_directly.history == []
    assert len(GLOBAL_HISTORY) == before


@pytest.mark.slow
def test_an_endpoints_lm_leaves_nothing_behind_for_a_call(faulty: Any) -> None:
    from raisf.lm.connect import connect

    with faulty.serve() as endpoint, dspy.context(disable_history=True):
        lm = connect("openai/x", api_base=endpoint.url).copy(cache=False)
        for number in range(20):
            lm(f"warm up {number}")
        before = _objects(endpoint)
        for number in range(100):
            lm(f"question {number}")
        assert _objects(endpoint) - before < 100


def _objects(endpoint: Any) -> int:
    endpoint.seen.clear()
    gc.collect()
    return len(gc.get_objects())
