"""Whoever has a retriever, of DSPy or her own, asks with it; whoever has an index gives it to DSPy."""

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dspy
import numpy as np
import pytest

import raisf
from raisf.evaluation.identity import describe
from raisf.retrieval.adapting import as_retriever
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage, Retriever
from raisf.retrieval.serving.server import IndexServer
from raisf.utils.errors import InputError, RaisfError
from tests.scripted import ScriptedLM

TEXTS = ["The Danube flows into the Black Sea.", "Hamlet is a tragedy.", "Chess is a board game."]


def embed(texts: list[str]) -> np.ndarray:
    """Counts of letters: enough to tell these texts apart."""
    return np.array([[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], float)


def function(query: str, k: int) -> list[str]:
    return TEXTS[:k]


@pytest.mark.parametrize(
    ("give", "wanted"),
    [
        (lambda query, k: TEXTS, TEXTS[:2]),
        (lambda query: TEXTS, TEXTS[:2]),
        (lambda query, top_k: TEXTS[:top_k], TEXTS[:2]),
        (lambda query, n: TEXTS[:n], TEXTS[:2]),
        (lambda query, n_results=1: TEXTS[:n_results], TEXTS[:2]),
        (lambda query, n, /: TEXTS[:n], TEXTS[:2]),
        (lambda query, k, /: TEXTS[:k], TEXTS[:2]),
        (lambda query, top_k, **options: TEXTS[:top_k], TEXTS[:2]),
        (lambda query, language="en", most=1: TEXTS[:most] if language == "en" else [], TEXTS[:2]),
        (lambda query, language="en": TEXTS if language == "en" else [], TEXTS[:2]),
        (lambda query, **options: TEXTS[: options["k"]], TEXTS[:2]),
        (lambda query, page=0: TEXTS[page:], TEXTS[:2]),
        (lambda query, page=0, n=5: TEXTS[page * n :][:n], TEXTS[:2]),
        (lambda query, timeout=30, limit=10: TEXTS[:limit] if timeout == 30 else [], TEXTS[:2]),
        (lambda query, fuzziness=0, retries=1: TEXTS if (fuzziness, retries) == (0, 1) else [], TEXTS[:2]),
        (lambda query, k: dspy.Prediction(passages=TEXTS), TEXTS[:2]),
        (lambda query, k: [{"text": text} for text in TEXTS], TEXTS[:2]),
        (lambda query, k: [{"content": text} for text in TEXTS], TEXTS[:2]),
        (lambda query, k: [SimpleNamespace(long_text=text) for text in TEXTS], TEXTS[:2]),
        (lambda query, k: [Passage("p", text) for text in TEXTS], TEXTS[:2]),
        (lambda query, k: (text for text in TEXTS), TEXTS[:2]),
        (lambda query, k: TEXTS[0], TEXTS[:1]),
        (lambda query, k: None, []),
    ],
)
def test_whatever_gives_passages_is_a_retriever(give: Callable[..., Any], wanted: list[str]):
    retriever = as_retriever(give)
    assert isinstance(retriever, Retriever) and retriever.path is None
    found = retriever("river", 2)
    assert [p.text for p in found] == wanted and all(p.pid for p in found)
    assert retriever.search_many(["a", "b"], 2) == [found, found]


def test_ids_titles_and_scores_are_kept_where_they_are_given():
    row = {"pid": 7, "long_text": "Danube | A river.", "text": "Danube | A river.", "score": 2.5}
    (found,) = as_retriever(lambda query, k: [row])("river", 1)
    assert (found.pid, found.title, found.text, found.score) == ("7", "Danube", "A river.", 2.5)
    assert found.prompt_text == found.long_text == row["text"]


def test_a_passage_that_comes_twice_counts_once_and_a_score_that_is_no_number_is_told():
    given = [{"text": "a", "score": float("nan")}, {"text": "b", "score": "2"}, "a", "a", "c"]
    found = as_retriever(lambda query: given)("who?", 3)
    assert [(passage.text, passage.score) for passage in found] == [("a", None), ("b", 2.0), ("c", None)]
    with pytest.raises(RaisfError, match="gives 'high' as a score"):
        as_retriever(lambda query: [{"text": "a", "score": "high"}])("who?", 3)


def test_passages_that_bear_their_documents_id_are_all_collected():
    parts = {"root": ["Ada wrote Ember."], "Ada wrote Ember.": ["Ada is from Velm."]}
    program = raisf.IRCoT(lambda query: [{"id": "doc", "text": text} for text in parts[query]], max_thoughts=1)
    lm = ScriptedLM(lambda fields: {"thought": "Ada wrote Ember.", "reasoning": "So.", "answer": "Velm"})
    with dspy.context(lm=lm):
        read = program(question="root").trace.root.passages
    assert [passage.text for passage in read] == ["Ada wrote Ember.", "Ada is from Velm."]


def test_dspys_colbert_client_and_embeddings_are_asked_by_programs(server: IndexServer, index: Index):
    with dspy.context(disk_cache_dir=None):
        colbert = as_retriever(dspy.ColBERTv2(url=server.url))
        found = colbert("Who wrote Hamlet, the tragedy?", 2)
    wanted = index("Who wrote Hamlet, the tragedy?", 2)
    assert [(p.pid, p.title, p.text) for p in found] == [(p.pid, p.title, p.text) for p in wanted]
    embeddings = dspy.retrievers.Embeddings(TEXTS, embed, k=1)
    for program in (raisf.RAG(embeddings, k=2), raisf.RAISF(embeddings, k=2)):
        assert [p.text for p in program.retriever("Hamlet is a tragedy", 1)] == ["Hamlet is a tragedy."]
        assert [len(program.retriever("Hamlet is a tragedy", k)) for k in (2, 3, 4, 1)] == [2, 3, 3, 1]
    assert len(embeddings("chess").passages) == 1, "they stay as they were given"
    assert program.retriever("chess", 1)[0].pid in ("0", "1", "2")


def test_what_is_no_retriever_and_what_gives_no_passages_is_told():
    for wrong in ("indexes/mine", 7, dspy.ColBERTv2, dspy.Tool(function)):
        with pytest.raises(InputError, match=r"give what raisf\.open_index opens"):
            as_retriever(wrong)
    for gives in ([7], 7, [{"body": "x"}]):
        with pytest.raises(RaisfError, match="gives"):
            as_retriever(lambda query, k, gives=gives: gives)("a", 1)

    async def later(query: str, k: int) -> list[str]:
        return TEXTS

    class Later:
        async def __call__(self, query: str, k: int) -> list[str]:
            return TEXTS

    for wrong in (later, partial(later, k=3), Later()):
        with pytest.raises(InputError, match=r"is async.*give a function that waits for it"):
            raisf.RAG(wrong)

    def broken(query: str, k: int) -> list[str]:
        raise KeyError("passages")

    with pytest.raises(RaisfError, match=r"broken failed \(KeyError"):
        as_retriever(broken)("a", 1)


def test_records_are_bound_to_what_is_known_of_a_retriever():
    def known(given: Any, name: str | None = None) -> str:
        return as_retriever(given, name).corpus_hash

    assert known(function) == known(function) != known(lambda query, k: TEXTS)
    assert known(dspy.ColBERTv2("http://a")) == known(dspy.ColBERTv2("http://a")) != known(dspy.ColBERTv2("http://b"))
    embeddings = [dspy.retrievers.Embeddings(texts, embed) for texts in (TEXTS, list(TEXTS), TEXTS[:2])]
    assert known(embeddings[0]) == known(embeddings[1]) != known(embeddings[2])
    assert known(function, "wiki") == known(dspy.ColBERTv2("http://a"), "wiki") != known(function, "news")


class Shelf:
    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def search(self, query: str, k: int) -> list[str]:
        return [*self.texts][:k]


def search(query: str, k: int, shelf: str) -> list[str]:
    return [shelf]


def test_records_are_bound_to_what_a_function_does_and_was_given():
    def known(given: Any, name: str | None = None) -> str:
        return describe(raisf.RAG(as_retriever(given, name)))["retriever"]

    for one, again, other in (
        (partial(search, shelf="old"), partial(search, shelf="old"), partial(search, shelf="new")),
        (Shelf(TEXTS).search, Shelf([*TEXTS]).search, Shelf(TEXTS[:1]).search),
        (lambda query, k: TEXTS[:k], lambda query, k: TEXTS[:k], lambda query, k: TEXTS[1:k]),
    ):
        assert known(one) == known(again) != known(other)
        assert known(one, "wiki") == known(other, "wiki")


class Reranking(dspy.Module):
    def __init__(self, index: Any) -> None:
        super().__init__()
        self._index = index

    def forward(self, query: str, k: int) -> list[Passage]:
        return self._index(query, k)[::-1]


def through(index: Any, query: str, k: int) -> list[Passage]:
    return index(query, k)


def test_records_are_bound_to_the_index_behind_a_retriever(index: Index, tmp_path: Path):
    """A run over another index was taken up with the answers from the first; over `dspy.Retrieve` none ever was."""
    other = raisf.index(TEXTS[:2], "bm25", out=tmp_path / "i")

    def known(given: Any) -> str:
        return describe(raisf.RAG(given))["retriever"]

    for make in (
        Reranking,
        lambda index: partial(through, index),
        lambda index: partial(Reranking(index).forward),
        lambda index: Reranking([index]),
        lambda index: Reranking({"wiki": Reranking(index)}),
    ):
        assert known(make(index)) == known(make(index)) != known(make(other))
    for make in (dspy.Retrieve, lambda: Reranking(dspy.Retrieve()), lambda: Reranking([Reranking(dspy.Retrieve())])):
        program = raisf.RAG(make())
        with dspy.context(rm=index):
            bound = describe(program)["retriever"]
            assert bound == known(make())
        with dspy.context(rm=other):
            assert bound != describe(program)["retriever"]


def test_what_a_client_keeps_of_its_searches_makes_no_other_retriever_of_it():
    class Client:
        def __init__(self) -> None:
            self.kept: dict[str, list[str]] = {}

        def search(self, query: str, k: int) -> list[str]:
            return self.kept.setdefault(query, TEXTS[:k])

    def keeping(query: str, k: int, cache: dict[str, list[str]]) -> list[str]:
        return cache.setdefault(query, TEXTS[:k])

    for given in (Client().search, partial(keeping, cache={})):
        program = raisf.RAG(given)
        before = describe(program)
        program.retriever("river", 2)
        assert describe(program) == before == describe(raisf.RAG(given))


@pytest.mark.parametrize(
    "said",
    [
        "Max retries exceeded with url: /s?api_key=SECRET (Caused by x)",
        "no answer from https://h/s?q=a&api_key=SECRET",
        "postgres://user:SECRET/x@h/db is down",
        "http://SECRET@h: refused",
    ],
)
def test_a_retrievers_complaint_tells_no_key(said: str):
    def broken(query: str, k: int) -> list[str]:
        raise OSError(said)

    with pytest.raises(RaisfError, match=r"broken failed \(OSError: .*\*\*\*") as told:
        as_retriever(broken)("a", 1)
    assert "SECRET" not in str(told.value)


def test_an_index_is_dspys_rm_for_retrieve_and_for_programs_without_a_retriever(index: Index):
    with dspy.context(rm=index):
        assert dspy.Retrieve(k=2)("Hamlet tragedy").passages == [p.prompt_text for p in index("Hamlet tragedy", 2)]
        lm = ScriptedLM(lambda *args, **options: {"answer": "Shakespeare", "evidence": "Hamlet"})
        with dspy.context(lm=lm):
            told = raisf.RAG(k=1)(question="Who wrote Hamlet?")
        assert told.trace.root.passages[0].title == "Hamlet"
        bound = describe(raisf.RAG())["retriever"]
    assert bound != describe(raisf.RAG())["retriever"] and index.corpus_hash in bound


def test_no_question_reads_all_texts_of_dspys_rm():
    """Each took half a second over 100,000 texts, for a hash that no question needs."""
    read = 0

    class Texts(list[str]):
        def __iter__(self):
            nonlocal read
            read += 1
            return super().__iter__()

    def found(query: str, k: int) -> list[str]:
        return texts[:k]

    texts = Texts(TEXTS)
    vars(found)["corpus"] = texts
    with dspy.context(rm=found, lm=ScriptedLM(lambda *args: {"answer": "Shakespeare", "evidence": "Hamlet"})):
        assert raisf.RAG(k=2)(question="Who wrote Hamlet?").answer == "Shakespeare" and read == 0
        bound = describe(raisf.RAG())["retriever"]
        texts.append("Go is a board game, too.")
        assert read > 0 and bound != describe(raisf.RAG())["retriever"]


def test_an_index_of_strings_takes_one_line_and_is_made_once(cache: Path):
    index = raisf.index(TEXTS, "bm25", progress=False)
    assert index("Hamlet", 1)[0].text == TEXTS[1] and index("Hamlet", 1)[0].pid == "1"
    made = sorted((cache / "indexes").iterdir())
    assert raisf.index(list(TEXTS), "bm25").path == index.path and sorted((cache / "indexes").iterdir()) == made
    assert raisf.index(TEXTS[:2], "bm25", progress=False).path != index.path
    (index.path / "manifest.json").write_text("{")
    assert raisf.index(TEXTS, "bm25", progress=False)("Hamlet", 1)[0].text == TEXTS[1], "what is damaged is made anew"
    assert raisf.remove_from_index(index.path, "id = '0'").removed
    assert [one.text for one in raisf.index(TEXTS, "bm25", progress=False).passages] == TEXTS, "what was changed, too"


def test_a_cache_that_has_the_index_may_be_read_only_and_one_that_has_not_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    index = raisf.index(TEXTS, "bm25", progress=False)
    lock = index.path.with_name(f".{index.path.name}.lock")
    lock.unlink()
    assert raisf.index(TEXTS, "bm25").path == index.path and not lock.exists(), "nothing was written"
    (tmp_path / "file").touch()
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"file/indexes cannot be written .* as RAISF_CACHE"):
        raisf.index(TEXTS, "bm25", progress=False)


def test_an_index_of_rows_keeps_their_ids_and_columns_and_cuts_long_texts(tmp_path: Path):
    rows = [{"id": "x", "title": "T", "text": "A river.", "year": 1999}, "word " * 400, Passage("p", "Chess.")]
    index = raisf.index(rows, "bm25", out=tmp_path / "i")
    assert index.path == tmp_path / "i" and index("river", 1, "year > 1990")[0].title == "T"
    assert [p.pid for p in index.passages] == ["x", "1#1", "1#2", "1#3", "1#4", "p"]
    dated = [raisf.index([{"text": "A river.", "year": year}], "bm25", progress=False) for year in (1999, 2000)]
    assert [one.passages[0].metadata for one in dated] == [{"year": 1999}, {"year": 2000}], "the second is made, too"


@pytest.mark.parametrize("texts", ["a text", Path("folder"), {"text": "x"}, [7], [{"body": "x"}], [], ["", " "]])
def test_what_is_no_list_of_texts_is_told(texts: Any):
    with pytest.raises(InputError):
        raisf.index(texts, "bm25")


@pytest.mark.slow
def test_an_index_whose_checkpoint_was_moved_pickles_with_its_place(tmp_path: Path):
    shutil.copytree(find_checkpoint("minilm").path, tmp_path / "encoder")
    build_index([Passage("0", TEXTS[0])], tmp_path / "i", checkpoint=tmp_path / "encoder", progress=False)
    shutil.move(tmp_path / "encoder", tmp_path / "elsewhere")
    pickled = pickle.dumps(raisf.open_index(tmp_path / "i", tmp_path / "elsewhere"))
    (tmp_path / "pickled").write_bytes(pickled)
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).path)"
    command = [sys.executable, "-c", code, str(tmp_path / "pickled")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == str(tmp_path / "i")


def test_an_index_pickles_as_its_folder(tmp_path: Path):
    index = raisf.index(TEXTS, "bm25", out=tmp_path / "i")
    for dumps in (pickle.dumps, cloudpickle.dumps):
        assert len(dumps(index)) < 2_000 and pickle.loads(dumps(index)) is index
    (tmp_path / "pickled").write_bytes(pickle.dumps(index))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))('hamlet', 1)[0].text)"
    command = [sys.executable, "-c", code, str(tmp_path / "pickled")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == TEXTS[1]
    shutil.move(tmp_path / "i", tmp_path / "moved")
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode and "cannot be opened here" in ended.stderr and "put the folder back" in ended.stderr
    raisf.index(["Other."], "bm25", out=tmp_path / "i")
    assert (
        "has other passages than when it was pickled" in subprocess.run(command, capture_output=True, text=True).stderr
    )
