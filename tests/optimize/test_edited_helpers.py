"""If these failed, who edits what a metric calls, however it is reached, would go on with the grades of before."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.evaluation.identity import digest
from raisf.optimize.identity import identity_of

# By what is edited: where `{0}` stands, in a file of hers.
BESIDE = {
    "kin_of_hers/__init__.py": "",
    "kin_of_hers/grading.py": "LEAST = {0}\ndef grade(): return {0}\n",
    "kin_of_hers/deep/__init__.py": "",
    "kin_of_hers/deep/scale.py": "def grade(): return {0}\n",
    "kin_of_hers/base.py": """
class Base:
    def __call__(self, example, prediction, trace=None): return {0}
    def judge(self, example, prediction, trace=None): return self.helper()
    def helper(self): return {0}
    @staticmethod
    def least_of(): return {0}
""",
}
REACHED = {
    "a function of a module in a package": "import kin_of_hers.grading\n"
    "def metric(example, prediction, trace=None): return kin_of_hers.grading.grade()",
    "a constant of a module in a package": "import kin_of_hers.grading\n"
    "def metric(example, prediction, trace=None): return kin_of_hers.grading.LEAST",
    "a module deeper": "import kin_of_hers.deep.scale\n"
    "def metric(example, prediction, trace=None): return kin_of_hers.deep.scale.grade()",
    "an inherited call": "from kin_of_hers.base import Base\nclass Mine(Base): pass\nmetric = Mine()",
    "a bound method's inherited helper": """
from kin_of_hers.base import Base
class Mine(Base): pass
metric = Mine().judge""",
    "an inherited helper of what is called": """
from kin_of_hers.base import Base
class Mine(Base):
    def __call__(self, example, prediction, trace=None): return self.helper()
metric = Mine()""",
    "an inherited helper of an object": """
from kin_of_hers.base import Base
class Mine(Base): pass
mine = Mine()
def metric(example, prediction, trace=None): return mine.helper()""",
    "an inherited helper of a class": """
from kin_of_hers.base import Base
class Mine(Base): pass
def metric(example, prediction, trace=None): return Mine.least_of()""",
}


def _told(folder: Path, metric: str, value: int) -> str:
    """The identity that a metric in a file of hers has in the next process, after an edit."""
    for name, text in {**BESIDE, "metrics_of_hers.py": metric}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("{0}", str(value)))
    importlib.invalidate_caches()
    made = digest(identity_of(dspy.Predict("question -> answer"), importlib.import_module("metrics_of_hers").metric))
    for name in [one for one in sys.modules if "_of_hers" in one]:
        del sys.modules[name]
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize("metric", REACHED.values(), ids=REACHED)
def test_an_edited_helper_is_known_however_a_metric_reaches_it(folder: Path, metric: str) -> None:
    assert _told(folder, metric, 1) == _told(folder, metric, 1) != _told(folder, metric, 2)


CONSTANTS = {
    "an array": "import numpy as np\nLEAST = np.array([{0}])",
    "a number of numpy's": "import numpy as np\nleast = np.float32({0})",
    "a namespace": "from types import SimpleNamespace\nLEAST = SimpleNamespace(most={0})",
    "a mapping that stays": "from types import MappingProxyType\nleast = MappingProxyType(dict(most={0}))",
    "a getter": "from operator import itemgetter\nleast = itemgetter({0})",
    "a path": "from pathlib import Path\nleast = Path('{0}')",
    "a fraction": "from fractions import Fraction\nleast = Fraction({0}, 7)",
    "a complex number": "least = complex({0}, 1)",
    "a tensor": "import torch\nLEAST = torch.tensor([{0}])",
    "a table": "import pandas\nLEAST = pandas.DataFrame([{0}])",
    "a template": "import string\nLEAST = string.Template('{0}')",
    "a graph": "import networkx\nLEAST = networkx.path_graph({0})",
    "an object of a class": "class Most:\n    def __init__(self, most): self.most = most\n"
    "class least:\n    most = Most({0})",
    "a table of a class": "import pandas\nclass least:\n    most = pandas.DataFrame([{0}])",
    "a method of a class within": "class least:\n    class Inner:\n        def most(self): return {0}",
    "a signature within": "import dspy\nclass least:\n    class Asked(dspy.Signature):\n        'Be {0}.'\n"
    "        question: str = dspy.InputField()\n        answer: str = dspy.OutputField()",
    "a list of judges": "import dspy\nLEAST = [dspy.Predict(dspy.Signature('question -> answer', 'Be {0}.'))]",
    "a judge in a closure": "import dspy\ndef making():\n"
    "    judge = dspy.Predict(dspy.Signature('question -> answer', 'Be {0}.'))\n"
    "    return lambda question: judge(question=question)\nleast = making()",
    "an attribute of a function": "def least(): return 1\nleast.most = '{0}'",
    "what is done for a class": "import functools\n@functools.singledispatch\ndef least(one): return 0\n"
    "@least.register\ndef _(one: int): return {0}",
}
USES = """
def metric(example, prediction, trace=None):
    metric.calls += 1
    found.append(least if example else LEAST)
"""


@pytest.mark.parametrize("constant", CONSTANTS.values(), ids=CONSTANTS)
def test_an_edited_constant_is_known_whatever_it_is(constant: str) -> None:
    def told(value: int, calls: int = 0) -> str:
        made = types.ModuleType("constants_of_hers")
        text = constant.replace("{0}", str(value))
        exec(f"found = []\n{text}{USES}metric.calls = {calls}", made.__dict__)
        return digest(identity_of(dspy.Predict("question -> answer"), made.metric))

    assert told(1) == told(1, calls=3) != told(2)


class Reading(dspy.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.retrieve: Any = dspy.Retrieve(k=k)
        self.answer = dspy.Predict("context, question -> answer")


def test_who_mends_her_retrieve_goes_on_with_nothing_that_the_one_before_found() -> None:
    def told(text: str) -> str:
        made = types.ModuleType("retrieve_of_hers")
        code = f"import dspy\nclass Mine(dspy.Retrieve):\n    def forward(self, query, k=None): return ['{text}']"
        exec(code, made.__dict__)
        program = Reading(3)
        program.retrieve = made.Mine()
        return digest(identity_of(program))

    assert told("a") == told("a") != told("b")


def test_a_journal_is_of_a_program_that_finds_as_many_passages() -> None:
    assert identity_of(Reading(3)) == identity_of(Reading(3)) != identity_of(Reading(5))


class Given(dspy.Module):
    """Asks by what it is given."""

    def __init__(self, tools: Any) -> None:
        super().__init__()
        self._tools, self._met = tools, []
        self.answer = dspy.Predict("context, question -> answer")


HELPER = "def helper(text): return {0}\n"
TOOLS = {
    "a function": "def tools(text): return helper(text)",
    "its own code": "def tools(text): return {0}",
    "one that is cached": "import functools\n@functools.cache\ndef tools(text): return helper(text)",
    "a class": "class tools:\n    def one(self, text): return helper(text)",
    "its judge": "import dspy\njudge = dspy.Predict(dspy.Signature('question -> answer', 'Be {0}.'))\n"
    "def tools(text, judge=judge): return judge(question=text)",
    "one of a list": "def one(text): return helper(text)\ntools = [one]",
    "one of a table": "def one(text): return helper(text)\nTABLE = {'one': one}\n"
    "def tools(text): return TABLE['one'](text)",
    "one in a closure": "def making():\n    def one(text): return helper(text)\n    return lambda text: one(text)\n"
    "tools = making()",
    "a tool": "import dspy\ndef one(text: str): return helper(text)\ntools = [dspy.Tool(one)]",
    "a method of an object": "class One:\n    def one(self, text): return helper(text)\ntools = One()",
    "a class within a class": "class One:\n    class Options:\n        most = {0}\ntools = One()",
}


@pytest.mark.parametrize("tools", TOOLS.values(), ids=TOOLS)
def test_an_edit_is_known_of_what_a_program_is_given_to_use(tools: str) -> None:
    def told(value: int, *met: object) -> str:
        made = types.ModuleType("tools_of_hers")
        exec((HELPER + tools).replace("{0}", str(value)), made.__dict__)
        program = Given(made.tools)
        program._met.extend(met)
        return digest(identity_of(program))

    assert told(1) == told(1, Reading(3).retrieve, types.SimpleNamespace()) != told(2)
