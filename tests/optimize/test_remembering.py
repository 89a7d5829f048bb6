"""What is asked again and again while thresholds are tried costs one call."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy

import raisf
from raisf.optimize.remembering import remember, remembering
from raisf.programs.calls import Run
from raisf.retrieval.passage import Passage
from raisf.signatures.judges import Decomposition
from tests.scripted import ScriptedLM


def test_searches_of_many_questions_are_made_together_and_once() -> None:
    asked: list[list[str]] = []

    class Shelf:
        path, corpus_hash = None, "shelf"

        def __call__(self, query: str, k: int) -> list[Passage]:
            return self.search_many([query], k)[0]

        def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            asked.append(list(queries))
            return [[Passage(query, f"about {query}")] for query in queries]

    shelf = remembering(raisf.RAISF(Shelf(), k=2)).retriever
    first, second, again = shelf.search_many(["a", "b", "a"], 2)
    assert first == again == shelf("a", 2) and second == shelf("b", 2) != first
    assert shelf.search_many(["b", "c"], 2)[0] == second and asked == [["a", "b"], ["c"]]


def test_a_second_format_is_asked_for_what_the_first_gave_no_sense() -> None:
    def script(fields: dict) -> Any:
        if len(lm.calls) == 1:
            return {"sub_questions": ["I cannot break this question down."]}
        return '{"sub_questions": ["Where was Ada born?", "In which country is #1?"]}'

    lm = ScriptedLM(script)
    lm.adapter = dspy.ChatAdapter()
    predictor = dspy.Predict(Decomposition)
    predictor.lm = lm
    remember(predictor)
    assert len(Run(None, None, None).ask(predictor, question="Where?").sub_questions) == 2 == len(lm.calls)


def test_equal_calls_that_come_together_are_one() -> None:
    """Each was made, and of an LM that samples the last took the place of what the others had been given."""
    together = threading.Event()

    def script(fields: dict) -> Any:
        if len(lm.calls) > 1:
            together.set()
        together.wait(0.2)
        return {"sub_questions": ["Where was Ada born?"]}

    lm = ScriptedLM(script)
    predictor = dspy.Predict(Decomposition)
    predictor.lm = lm
    remember(predictor)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: Run(None, None, None).ask(predictor, question="Where?"), range(2)))
    assert found[0] is found[1] and len(lm.calls) == 1
