"""If this failed, who edits what her metric judges by would go on with grades of the old one, in silence."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.evaluation.identity import digest
from raisf.optimize.identity import identity_of

CONSTANTS = """
import dspy, functools, re
class Assess(dspy.Signature):
    \"\"\"Be {manner}.\"\"\"
    answer: str = dspy.InputField()
    score: {kind} = dspy.OutputField()
class Config:
    least = {least}
Mend = dspy.Signature("answer -> mended", "Mend {mending}.")
said = re.compile("{said}")
def _long(answer, length):
    return len(answer) > length
long = functools.partial(_long, length={length})
class Rule:
    def __init__(self, most):
        self.most = most
        self.mend = dspy.Predict("answer -> {mends}")
    def holds(self, score):
        return score {sign} self.most
rule, judge = Rule({most}), dspy.LM("openai/{judge}", temperature={warm})
others = functools.partial(list, [dspy.LM("openai/{judge}", temperature={warmer})])
ALIASES = {{"uk": "{alias}"}}
found = []
class Own(dspy.Module):
    style = "{style}"
    def forward(self, question):
        return dspy.Prediction(answer=self.style)
class Grader:
    weight = {weight}
    def __call__(self, example, prediction, trace=None):
        found.append(prediction)
        if long(prediction.answer) or others() or said.search(prediction.answer):
            return dspy.Predict(Mend)(answer=prediction.answer).mended == example.answer
        with dspy.context(lm=judge):
            score = dspy.Predict(Assess)(answer=ALIASES.get(prediction.answer)).score
        return self.weight * (score > Config.least and rule.holds(score))
"""


def test_who_changes_what_a_metric_judges_by_goes_on_with_no_values_of_the_one_before() -> None:
    """A metric that asks an LM went on with the grades that another instruction had given."""
    given = {"manner": "kind", "kind": "float", "least": 1, "alias": "gb", "style": "short", "weight": 1}
    given |= {"most": 5, "sign": "<", "judge": "small"}
    given |= {"mending": "little", "said": "yes", "length": 10, "mends": "better", "warm": 0.0, "warmer": 0.5}

    def told(**changed: Any) -> str:
        made = types.ModuleType("own_constants")
        exec(CONSTANTS.format(**given | changed), made.__dict__)
        made.found.append(len(changed))  # what changes with each call tells nothing
        return digest(identity_of(made.Own(), made.Grader()))

    changes = {"manner": "strict", "kind": "int", "least": 2, "alias": "en", "style": "long", "weight": 2}
    changes |= {"most": 6, "sign": "<=", "judge": "large"}
    changes |= {"mending": "all", "said": "ja", "length": 11, "mends": "worse", "warm": 1.0, "warmer": 0.7}
    assert told() == told()
    assert len({told(), *(told(**{name: value}) for name, value in changes.items())}) == 1 + len(changes)


METRICS = "late_of_hers.metrics"
LATE = {
    "late_of_hers/__init__.py": "",
    "late_of_hers/beside.py": "def least(): return {0}",
    "late_of_hers/limits.py": "MOST = {0}",
    "apart_of_hers.py": "def wanted(): return {0}",
    "late_of_hers/metrics.py": """
def metric(example, prediction, trace=None):
    import json
    from apart_of_hers import wanted
    from . import limits
    from .beside import least
    from nowhere_at_all import anything
    return least() <= wanted() <= limits.MOST and json.loads(prediction.answer)
""",
}


def test_what_a_metric_imports_when_it_runs_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it was, as it had not been imported when the journal got its name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def told(**changed: int) -> str:
        for name, text in LATE.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace("{0}", str(changed.get(Path(name).stem, 1))))
        importlib.invalidate_caches()
        made = digest(identity_of(dspy.Predict("question -> answer"), importlib.import_module(METRICS).metric))
        for name in [one for one in sys.modules if "_of_hers" in one]:
            del sys.modules[name]
        return made

    assert told() == told()
    assert len({told(), told(beside=2), told(limits=2), told(apart_of_hers=2)}) == 4
