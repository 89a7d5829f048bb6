"""A corpus on Qdrant finds what its index finds, goes on after a stop, and is never another one by mistake.

Its server is not needed: the client has an engine of its own that runs in this process.
"""

import itertools
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from raisf import cli
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines import qdrant
from raisf.retrieval.engines.base import Index
from raisf.retrieval.engines.qdrant import QdrantIndex
from raisf.retrieval.engines.qdrant_push import push_index
from raisf.retrieval.index import add_to_index, build_index, open_index, remove_from_index
from raisf.retrieval.passage import Passage, Retriever
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json, write_json

qdrant_client = pytest.importorskip("qdrant_client", reason="the extra `qdrant` is not installed")


@pytest.fixture(scope="module")
def index(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Index:
    with_pages = [Passage(p.pid, p.text, p.title, source="a.pdf", metadata={"page": n}) for n, p in enumerate(passages)]
    path = tmp_path_factory.mktemp("pushed") / "i"
    build_index(with_pages, path, progress=False)
    remove_from_index(path, "title = 'Chess'")
    return open_index(path)  # pyright: ignore[reportReturnType]


@pytest.fixture
def client() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qdrant_client.QdrantClient(":memory:")


def test_a_collection_finds_what_its_index_finds(index: Index, client: Any):
    assert index.path and push_index(index.path, client, "mine", progress=False) == 11
    pushed = QdrantIndex(client, "mine")
    assert isinstance(pushed, Retriever) and pushed.corpus_hash == index.corpus_hash
    queries = ["Who wrote Hamlet?", "Which animal has several hearts?", "العربية", "", "word " * 10_000, "\ud800 sea"]
    for ours, theirs in zip(pushed.search_many(queries, 4), index.search_many(queries, 4), strict=True):
        assert [(p.pid, p.text, p.title, p.citation, p.metadata) for p in ours] == [
            (p.pid, p.text, p.title, p.citation, p.metadata) for p in theirs
        ]
        assert [p.score for p in ours] == pytest.approx([p.score for p in theirs], abs=0.01)
    assert len(pushed("chess", 100)) == 11 and "Chess" not in {p.title for p in pushed("chess", 100)}
    assert pushed.search_many([], 4) == []
    with ThreadPoolExecutor(16) as pool:
        assert {row[0].title for row in pool.map(lambda _: pushed("Who wrote Hamlet?", 1), range(32))} == {"Hamlet"}


def test_what_is_measured_next_encodes_its_queries_itself(index: Index, client: Any):
    assert index.path and push_index(index.path, client, "mine", progress=False) == 11
    pushed, encode = QdrantIndex(client, "mine"), find_checkpoint(index.manifest.checkpoint or "").encoder()
    (kept,) = encode.encode_queries(["Who wrote Hamlet?"])
    pushed.forget_searches()
    assert encode.encode_queries(["Who wrote Hamlet?"])[0] is not kept


def test_a_push_that_was_stopped_goes_on(index: Index, client: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(qdrant, "_NUMBERS", 1)  # a passage a request
    upsert, sent = client.upsert, []

    def stop(*args: Any, **options: Any) -> Any:
        if len(sent) == 8:
            raise KeyboardInterrupt
        sent.append(args)
        return upsert(*args, **options)

    monkeypatch.setattr(client, "upsert", stop)
    assert index.path
    with pytest.raises(KeyboardInterrupt):
        push_index(index.path, client, "mine", progress=False)
    with pytest.raises(InputError, match=r"has 8 of 11 passages: its `raisf index push` was\s+stopped"):
        QdrantIndex(client, "mine")
    monkeypatch.setattr(client, "upsert", lambda *args, **options: sent.append(args) or upsert(*args, **options))
    assert push_index(index.path, client, "mine", progress=False) == 11
    assert [point.id for _, (point,) in sent] == list(range(11))  # nothing went twice
    assert QdrantIndex(client, "mine")("Who wrote Hamlet?", 1)[0].title == "Hamlet"


def test_a_push_goes_on_only_where_the_passages_lie_as_they_did(client: Any, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(qdrant, "_NUMBERS", 1)
    texts = [Passage(str(number), f"Fact {number} is a fact.") for number in range(4)]
    build_index(texts, tmp_path / "i", progress=False)
    upsert, sent = client.upsert, []

    def stop(*args: Any, **options: Any) -> Any:
        if len(sent) == 3:
            raise KeyboardInterrupt
        sent.append(args)
        return upsert(*args, **options)

    monkeypatch.setattr(client, "upsert", stop)
    with pytest.raises(KeyboardInterrupt):
        push_index(tmp_path / "i", client, "mine", progress=False)
    monkeypatch.setattr(client, "upsert", upsert)
    before = open_index(tmp_path / "i").corpus_hash
    remove_from_index(tmp_path / "i", "id = '0'")
    add_to_index(tmp_path / "i", texts[:1], progress=False)
    assert open_index(tmp_path / "i").corpus_hash == before  # the same passages, in another order
    with pytest.raises(InputError, match="holds 3 of these passages, which may have lain in another order"):
        push_index(tmp_path / "i", client, "mine", progress=False)


def test_a_push_that_qdrant_refuses_says_what_to_do_and_goes_on(
    index: Index, client: Any, monkeypatch: pytest.MonkeyPatch
):
    assert index.path
    monkeypatch.setattr(qdrant, "_NUMBERS", 1)
    upsert, sent = client.upsert, []

    def refuse(*args: Any, **options: Any) -> Any:
        if len(sent) == 3:
            raise qdrant_client.http.exceptions.UnexpectedResponse(413, "Payload Too Large", b"too large", {})
        sent.append(args)
        return upsert(*args, **options)

    monkeypatch.setattr(client, "upsert", refuse)
    with pytest.raises(RaisfError, match=r"store .* 'mine' .*413 \(Payload Too Large\).*: push again, it goes on"):
        push_index(index.path, client, "mine", progress=False)
    monkeypatch.setattr(client, "upsert", upsert)
    assert client.count("mine").count == 3
    assert push_index(index.path, client, "mine", progress=False) == 11
    for gone in ("count", "collection_exists"):
        monkeypatch.setattr(client, gone, lambda *args, **options: 1 / 0)
        with pytest.raises(RaisfError, match=r"'mine' .*: see that it runs, then try again"):
            QdrantIndex(client, "mine")
        with pytest.raises(RaisfError, match=r"'mine' .*: see that it runs, then try again"):
            push_index(index.path, client, "mine", progress=False)


def test_requests_stay_below_what_qdrant_takes(index: Index, client: Any, monkeypatch: pytest.MonkeyPatch):
    assert index.path
    vectors = torch.nn.functional.normalize(torch.randn(qdrant._NUMBERS // 128, 128), dim=1)
    assert len(json.dumps(vectors.tolist())) < 32e6 / 2  # half of it is left for the texts
    upsert, search = client.upsert, client.query_batch_points
    pushed, asked = [], []

    def push(name: str, points: list[Any], **options: Any) -> Any:
        pushed.append([len(point.vector["tokens"]) * 128 for point in points])
        return upsert(name, points, **options)

    def ask(name: str, requests: list[Any]) -> Any:
        asked.append([len(request.query) * 128 for request in requests])
        return search(name, requests=requests)

    monkeypatch.setattr(client, "upsert", push)
    monkeypatch.setattr(client, "query_batch_points", ask)
    queries = ["Who wrote Hamlet?", "Which animal has several hearts?", "chess", "word " * 10_000, "sea"]
    push_index(index.path, client, "whole", progress=False)
    whole = QdrantIndex(client, "whole").search_many(queries, 3)
    assert len(pushed) == len(asked) == 1
    monkeypatch.setattr(qdrant, "_NUMBERS", 60 * 128)
    push_index(index.path, client, "parts", progress=False)
    assert QdrantIndex(client, "parts").search_many(queries, 3) == whole
    for requests in (pushed, asked):
        first, *parts = requests
        assert list(itertools.chain(*parts)) == first and 1 < len(parts) < len(first)
        assert all(sum(part) <= 60 * 128 or len(part) == 1 for part in parts)


def test_another_collection_is_never_searched_or_overwritten(
    index: Index, passages: list[Passage], client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert index.path
    push_index(index.path, client, "mine", progress=False)
    build_index(passages[:3], tmp_path / "other", progress=False)
    with pytest.raises(InputError, match="holds something else: choose a new name"):
        push_index(tmp_path / "other", client, "mine", progress=False)
    client.create_collection("strange", vectors_config={})
    with pytest.raises(InputError, match="was not made by `raisf index push`"):
        QdrantIndex(client, "strange")
    with pytest.raises(InputError, match="Qdrant has no collection 'nothing'"):
        QdrantIndex(client, "nothing")
    other = tmp_path / "checkpoint"
    other.mkdir()
    for file in find_checkpoint("minilm").path.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    write_json(other / "artifact.metadata", {**read_json(other / "artifact.metadata"), "query_maxlen": 64})
    with pytest.raises(InputError, match=r"was made with the checkpoint (raisf-)?minilm"):
        QdrantIndex(client, "mine", other)
    pushed = QdrantIndex(client, "mine")
    with pytest.raises(InputError, match="k is 0"):
        pushed("Hamlet", 0)
    with pytest.raises(InputError, match="leave --where out"):
        pushed.where("page = 1")
    client.delete_collection("mine")
    with pytest.raises(RaisfError, match="Qdrant cannot search the collection 'mine'"):
        pushed("Hamlet", 1)


def test_an_index_without_such_vectors_is_refused(passages: list[Passage], client: Any, tmp_path: Path):
    for engine in ("bm25", "dense"):
        build_index(passages, tmp_path / engine, engine, progress=False)
        with pytest.raises(InputError, match="only a colbert or hybrid index made with"):
            push_index(tmp_path / engine, client, "mine", progress=False)
    assert not client.collection_exists("mine")


def test_of_a_hybrid_index_it_is_told_that_the_vectors_alone_are_searched(
    passages: list[Passage], client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Its BM25 was left behind in silence: names that only it finds were no longer found."""
    build_index(passages, tmp_path / "i", "hybrid", progress=False)
    push_index(tmp_path / "i", client, "mine", progress=False)
    assert QdrantIndex(client, "mine")("Who wrote Hamlet?", 1)[0].title == "Hamlet"
    assert f"{tmp_path / 'i'} is hybrid: the collection is searched by its vectors alone, without BM25" in caplog.text


def test_an_address_that_leads_nowhere_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for url, message in {
        "qdrant+http://127.0.0.1:9/mine": "no Qdrant answers at qdrant+http://127.0.0.1:9/mine",
        "qdrant+http://127.0.0.1:9": "is no address of a collection: write qdrant+http://HOST:6333/NAME",
        "mine": "is no address of a collection",
    }.items():
        assert cli.main(["index", "push", str(tmp_path), url]) == 2
        shown = capsys.readouterr()
        assert message in shown.err and shown.out == ""
    with pytest.raises(InputError, match="no Qdrant answers"):
        open_index("qdrant+http://127.0.0.1:9/mine")
