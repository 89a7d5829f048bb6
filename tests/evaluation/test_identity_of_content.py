"""If these failed, a program that holds a table, a tensor or an estimator would take the records of another's."""

import collections
import functools
import json
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import faiss
import networkx as nx
import numpy as np
import pandas as pd
import pydantic
import pytest
import requests
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsClassifier

from raisf.evaluation.identity import describe
from raisf.evaluation.values import code_of, content_of, digest

ROWS, KINDS = np.arange(24.0).reshape(8, 3) % 7, np.arange(8) % 2


class Holding(dspy.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


def _frame(answer: str) -> pd.DataFrame:
    """Column by column, as pandas joins in memory later, with values that are no JSON."""
    frame = pd.DataFrame({"number": range(3), "answer": [answer, "b", "c"]})
    frame["share"] = 0.5
    frame["words"] = [{"one", "two", "three"}, None, ["four"]]
    return frame


def _network(fill: float, *, inner: type[torch.nn.Module] = torch.nn.ReLU) -> torch.nn.Module:
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), inner())
    for weights in network.parameters():
        torch.nn.init.constant_(weights, fill)
    return network


def _graph(graph: Any, to: int, **attributes: str) -> Any:
    graph.add_edge(1, to, **attributes)
    return graph


def _index(value: float) -> Any:
    index = faiss.IndexFlatL2(2)
    index.add(np.full((1, 2), value, np.float32))  # pyright: ignore[reportCallIssue]
    return index


def _counted(more: int) -> Any:
    @functools.lru_cache
    def add(number: int) -> int:
        return number + more

    return add


MAKES: dict[str, Any] = {
    "frame": lambda one: _frame("a" if one else "b"),
    "columns": lambda one: pd.DataFrame([[1]], columns=["a" if one else "b"]),
    "rows": lambda one: pd.DataFrame({"a": [1]}, index=["a" if one else "b"]),
    "series": lambda one: pd.Series([1, 2 if one else 3]),
    "graph": lambda one: _graph(nx.Graph(), 2 if one else 3),
    "edges": lambda one: _graph(nx.MultiDiGraph(), 2, said="a" if one else "b"),
    "index": lambda one: _index(1.0 if one else 2.0),
    "tensor": lambda one: torch.tensor([1.0, 2.0 if one else 3.0]),
    "half": lambda one: torch.tensor([1.0, 2.0 if one else 3.0], dtype=torch.bfloat16),
    "sparse": lambda one: torch.diag(torch.tensor([1.0, 2.0 if one else 3.0])).to_sparse(),
    "weights": lambda one: _network(1.0 if one else 2.0),
    "layers": lambda one: _network(1.0, inner=torch.nn.ReLU if one else torch.nn.GELU),
    "forest": lambda one: RandomForestClassifier(3, random_state=0).fit(ROWS if one else ROWS[::-1] + 1, KINDS),
    "neighbours": lambda one: KNeighborsClassifier(2).fit(ROWS if one else ROWS[::-1] + 1, KINDS),
    "counts of words": lambda one: TfidfVectorizer().fit(["a text", "this text" if one else "another text"]),
    "bytes": lambda one: bytearray(b"a" if one else b"b"),
    "cached function": lambda one: _counted(1 if one else 2),
    "module": lambda one: json if one else re,
    "deep": lambda one: [[[[[np.array([1 if one else 2])]]]]],
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_programs_that_hold_other_content_are_described_differently(make: Any) -> None:
    assert describe(Holding(make(True))) == describe(Holding(make(True))) != describe(Holding(make(False)))


def test_content_is_told_alike_by_another_process() -> None:
    """Addresses, and sets in another order, would make another program of it: nobody could go on."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import {Path(__file__).stem} as here
print(here.told_of_libraries())
"""
    there = os.environ | {"PYTHONHASHSEED": "7"}
    made = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True, check=False)
    assert made.stdout.strip() == told_of_libraries(), made.stderr


def told_of_libraries() -> str:
    """The prints of what is made, but for what is of a class or function in this file, whose module has two names."""
    names = MAKES.keys() - {"cached function"}
    return json.dumps({name: digest(code_of(MAKES[name](True))) for name in sorted(names)})


def test_who_uses_what_a_program_holds_makes_no_other_program_of_it() -> None:
    frame, forest, neighbours, words, graph = (
        MAKES[name](True) for name in ("frame", "forest", "neighbours", "counts of words", "graph")
    )
    held = [frame, forest, neighbours, words, np.random.RandomState(0), torch.Generator(), torch.nn.Identity(), graph]
    before = [describe(Holding(one)) for one in held]
    assert frame.values.shape == (3, 4) and len(frame.describe()) and frame.set_index("answer").loc["b"]["number"] == 1
    for used in (forest.predict, neighbours.predict):
        assert len(used(ROWS)) == len(ROWS)
    assert words.transform(["a text"]).shape[0] == len(held[4].rand(1)) == len(torch.rand(1, generator=held[5]))
    assert len(graph.nodes) == len(graph.adj) == 2 * len(graph.edges)
    assert [describe(Holding(one)) for one in held] == before


class Working(dspy.Module):
    """Has what runs beside it, and works something out when it is first wanted."""

    def __init__(self) -> None:
        super().__init__()
        embedder = dspy.Embedder(lambda texts: np.ones((len(texts), 2)))
        self.search = dspy.Embeddings(["a", "b"], embedder, k=1)  # asked by a thread of its own
        self.pool = ThreadPoolExecutor(1)
        self.process = multiprocessing.Process(target=print)

    @functools.cached_property
    def table(self) -> dict[str, str]:
        return {"a": self.search("a").passages[0]}


def test_what_runs_beside_a_program_and_what_it_works_out_once_make_no_other_program_of_it() -> None:
    """Threads are numbered: who went on, or measured twice, was told that the records were another program's."""
    first, second = Working(), Working()
    assert describe(first) == describe(second)
    assert first.table == {"a": "a"} and first.pool.submit(len, "ab").result() == 2
    assert describe(first) == describe(second)
    first.search.k = 2
    assert describe(first) != describe(second)


class Manner(pydantic.BaseModel):
    loud: bool = False


def test_who_sets_an_option_to_what_it_was_makes_no_other_program_of_it() -> None:
    """Pydantic keeps which fields were set."""
    manner = Manner()
    before = describe(Holding(manner))
    manner.loud = False
    assert describe(Holding(manner)) == before != describe(Holding(Manner(loud=True)))


class Locked:
    """A user's class that leaves its lock out when it is pickled, and counts."""

    def __init__(self, k: int) -> None:
        self.k, self._count, self._lock = k, 0, threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"k": self.k, "_count": f"{self._count}"}


def test_odd_objects_are_described_and_counts_are_left_out() -> None:
    locked, ring = Locked(1), collections.deque[Any]()
    ring.extend([ring, ring, [ring]])
    held = [locked, threading.Lock(), (one for one in "ab"), requests.Session(), ring, torch.ones(1, device="meta")]
    held += [logging.getLogger("hers"), collections.deque([threading.Lock()]), collections.deque([lambda: 1])]
    before = [describe(Holding(one)) for one in held]
    locked._count = 3
    assert [describe(Holding(one)) for one in held] == before
    assert content_of(locked) is None and describe(Holding(locked)) != describe(Holding(Locked(2)))
