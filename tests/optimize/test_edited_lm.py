"""If this failed, who mends her LM, its engine, adapter or retriever would go on with what the old one said."""

import types
from collections.abc import Callable
from functools import partial
from typing import Any

import dspy
import pytest

from raisf.evaluation.identity import digest
from raisf.optimize.identity import identity_of
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.adapting import as_retriever

HERS = """
import dspy
def mend(text):
    return text.{how}()
class LM(dspy.BaseLM):
    def __init__(self):
        super().__init__(model="hers/lm")
    def forward(self, prompt=None, messages=None, **options):
        return {lm}
class Engine:
    def complete(self, request):
        return {engine}
class Adapter(dspy.ChatAdapter):
    def parse(self, signature, completion):
        return super().parse(signature, mend(completion))
class Search:
    least = {least}
    def __call__(self, query, k):
        return ["{found}"][:k]
    def also(self, query, k):
        return self(query, k)
def find(query, k):
    return [mend("A text")][:k]
"""
GIVEN = {"how": "strip", "lm": "1", "engine": "1", "least": 1, "found": "a text"}
CHANGED = {"how": "lower", "lm": "2", "engine": "2", "least": 2, "found": "another"}


def asked(**changed: Any) -> set[str]:
    """The identities of three programs, as the next process would find them after a change."""
    made = types.ModuleType("hers_in_this_file")
    exec(HERS.format(**GIVEN | changed), made.__dict__)
    first, second, third = RAISF(made.Search()), RAISF(made.Search().also), RAISF(as_retriever(lambda query, k: []))
    first.set_lm(made.LM())
    second.set_lm(dspy.LM("hers/x", engine=made.Engine()))
    with dspy.context(adapter=made.Adapter(), lm=made.LM()):
        return {digest(identity_of(program)) for program in (first, second, third)}


@pytest.mark.parametrize(
    ("retriever", "name"),
    [
        (lambda made: made.find, "how"),
        (lambda made: partial(made.find), "how"),
        (lambda made: partial(made.Search().also, k=3), "found"),
    ],
)
def test_what_a_function_that_searches_calls_is_known_too(retriever: Callable[[Any], Any], name: str) -> None:
    """The function alone was looked at, and of a partial's object nothing."""

    def identity(**changed: Any) -> str:
        made = types.ModuleType("hers_in_this_file")
        exec(HERS.format(**GIVEN | changed), made.__dict__)
        return digest(identity_of(RAISF(retriever(made))))

    assert identity() == identity()
    assert identity() != identity(**{name: CHANGED[name]})


@pytest.mark.parametrize("name", CHANGED)
def test_who_mends_what_answers_or_finds_goes_on_with_no_replies_of_the_one_before(name: str) -> None:
    """A compilation that was stopped to mend an adapter took verdicts that the old one had misread."""
    assert asked() == asked()
    assert asked() != asked(**{name: CHANGED[name]})
