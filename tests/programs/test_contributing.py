"""If this failed, whoever adds a program as CONTRIBUTING.md shows it would begin with a broken one."""

import random
import re
from pathlib import Path

import dspy

from raisf.programs.registry import PROGRAMS, about, build, options
from raisf.programs.trace import Trace
from tests.scripted import ScriptedLM

ROOT = Path(__file__).parents[2]


def test_the_program_that_contributing_shows_keeps_what_every_program_promises(shelf, monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    monkeypatch.setitem(PROGRAMS, "twice", names["Twice"])
    assert about(names["Twice"])
    for seed in range(60):
        rng = random.Random(seed)
        said = {"evidence": "e.", "reasoning": "r.", "answer": rng.choice(["Ada", "unknown", "", "x" * 300])}
        lm = ScriptedLM(lambda fields, rng=rng, said=said: said if rng.random() < 0.7 else "mumble")
        limit = rng.choice([None, 1, 2])
        with dspy.context(lm=lm):
            trace = build("twice", shelf, max_calls=limit)(question="root?").trace
        assert trace.root.answer and trace.cost.lm_calls == len(lm.calls) <= (limit or 9)
        assert Trace.model_validate_json(trace.model_dump_json()) == trace
    assert options(build("twice", shelf, k=3)) == {"k": 3, "max_calls": None, "max_seconds": None}
