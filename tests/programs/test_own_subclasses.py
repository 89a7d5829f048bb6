"""Subclasses of a user's own, and programs within programs: they are asked, saved and loaded like ours."""

import asyncio
import logging

import dspy
import pytest

import raisf
from raisf.programs.baselines.direct import Direct
from raisf.programs.concurrency import holding, semaphore
from raisf.programs.ra_isf import RAISF
from raisf.signatures.answers import DirectAnswer
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def test_a_program_within_a_program_gets_its_options_back(tmp_path):
    class Outer(raisf.Program):
        system = "outer"

        def __init__(self, max_calls=None, max_seconds=None):
            super().__init__(None, max_calls, max_seconds)
            self.inner = raisf.RAG(k=3)

    saved, opened = Outer(), Outer()
    saved.inner.k = 9
    saved.save(tmp_path / "outer.json")
    opened.load(tmp_path / "outer.json")
    assert opened.inner.k == 9


class Shouting(Direct):
    """Post-processes what the program answers."""

    def forward(self, question):
        return dspy.Prediction(answer=super().forward(question=question).answer.upper())


def test_a_forward_of_ones_own_is_called_by_coroutines_too():
    program = Shouting()
    program.set_lm(ScriptedLM(lambda fields: {"answer": "ada"}))
    assert program(question="Who?").answer == asyncio.run(program.acall(question="Who?")).answer == "ADA"


class Both(Shouting):
    """Has a coroutine beside its `forward`, as DSPy's own modules have."""

    def forward(self, question):
        return dspy.Prediction(answer=super().forward(question=question).answer + "!")

    async def aforward(self, question):
        return dspy.Prediction(answer=(await super().aforward(question=question)).answer + "!")


class Renamed(Direct):
    def forward(self, query):
        return super().forward(question=query)


def test_a_coroutine_does_once_what_a_forward_of_ones_own_does(caplog, monkeypatch):
    """The work of a class with both was done twice, and not at all once `dspy.syncify` had made its forward."""
    monkeypatch.setattr(logging.getLogger("dspy"), "propagate", True)

    def both(kind, **asked):
        program = kind()
        program.set_lm(ScriptedLM(lambda fields: {"answer": "ada"}))
        return [program(**asked).answer, asyncio.run(program.acall(**asked)).answer]

    assert both(Both, question="Who?") == ["ADA!", "ADA!"]
    assert both(lambda: dspy.syncify(Shouting()), question="Who?") == ["ADA", "ADA"]
    assert both(Renamed, query="Who?") == ["ada", "ada"]
    assert not caplog.records  # DSPy warns of who calls forward


class Owning(RAISF):
    """Needs what is no option."""

    def __init__(self, retriever, client, **options):
        super().__init__(retriever, **options)
        self.client = client


def test_a_subclass_that_needs_more_is_saved_checked_and_loaded(tmp_path):
    client = object()
    saved, opened = Owning(None, object(), k=3), Owning(None, client)
    saved.know_threshold = 0.7
    saved.save(tmp_path / "own.json")
    opened.load(tmp_path / "own.json")
    assert (opened.k, opened.know_threshold, opened.client) == (3, 0.7, client)
    with pytest.raises(InputError, match="k is 'many'"):
        saved.k = "many"


class Chained(RAISF):
    """Decides on an option itself and hands on the others."""

    def __init__(self, retriever=None, hops=2, **options):
        super().__init__(retriever, decomposition="chains", max_depth=hops, **options)
        self.hops = hops


def test_a_subclass_that_decides_on_an_option_is_saved_checked_and_loaded(tmp_path):
    """What was compiled could be saved, and never be loaded."""
    saved = Chained(hops=1, k=3)
    saved.insist = True
    raisf.save(saved, tmp_path / "artifact")
    saved.save(tmp_path / "own.json")
    opened = Chained()
    opened.load(tmp_path / "own.json")
    for one in (opened, raisf.load(tmp_path / "artifact", program=Chained)):
        assert one.options() == saved.options() and (one.hops, one.k, one.insist) == (1, 3, True)
    with pytest.raises(InputError, match="k is 'many'"):
        saved.k = "many"


def test_demonstrations_are_read_back_as_dspy_writes_them():
    program = Direct()
    program.answer_directly.demos = [dspy.Example(question="Who?", answer="Ada")]
    opened = Direct()
    opened.load_state(program.dump_state(json_mode=False))
    assert opened.answer_directly.demos[0]["answer"] == "Ada"


def test_a_forward_that_asks_its_coroutine_ends():
    program = dspy.syncify(Direct())
    program.set_lm(ScriptedLM(lambda fields: {"answer": "ada"}))
    assert program(question="Who?").answer == asyncio.run(program.acall(question="Who?")).answer == "ada"


class Asking(dspy.Predict):
    """Asks another program before it answers."""

    def forward(self, **inputs):
        self.told = self.first(question="Where?").answer
        return super().forward(**inputs)


def test_a_predictor_that_asks_a_program_itself_waits_for_no_place_but_its_own(one_at_a_time):
    program, asking = Direct(), Asking(DirectAnswer)
    asking.first = Direct(max_seconds=9)  # it would wait for the place of the call that waits for it
    program.answer_directly = asking
    with dspy.context(lm=ScriptedLM(lambda fields: {"answer": "Velm" if fields["question"] == "Where?" else "Ada"})):
        assert program(question="Who?").answer == "Ada"
    assert asking.told == "Velm"


def test_what_a_call_asks_has_that_calls_place_one_at_a_time(one_at_a_time):
    place = semaphore()
    place.acquire()
    with holding(place):
        assert semaphore() is semaphore() is not place
    assert semaphore() is place


@pytest.mark.parametrize("options", [["k"], "k", 3])
def test_options_within_that_are_none_are_refused(options):
    class Outer(raisf.Program):
        system = "outer"

        def __init__(self, max_calls=None, max_seconds=None):
            super().__init__(None, max_calls, max_seconds)
            self.inner = raisf.RAG(k=3)

    with pytest.raises(InputError, match="the file is damaged"):
        Outer().load_state({**Outer().dump_state(), "inner.options": options})
