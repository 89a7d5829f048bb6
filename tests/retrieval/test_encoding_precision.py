"""An index says in which precision it was encoded, and its queries are encoded in that one, on whatever machine."""

from pathlib import Path
from typing import Any

import pytest
import torch

from raisf.retrieval.encoders import colbert_shims
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.encoders.encoder import ColBERTEncoder
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.index import add_to_index, index_info
from raisf.retrieval.passage import Passage
from raisf.utils.files import read_json, write_json


def machine(monkeypatch: pytest.MonkeyPatch, *, able: bool) -> None:
    """A CPU with instructions for bfloat16, or without, and no GPU."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": able})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def precision_of(index: Any) -> str:
    return index._searchers[0]._encode._work.__self__._precision


@pytest.mark.parametrize(("able", "chosen"), [(True, "bfloat16"), (False, "float32")])
def test_queries_are_encoded_as_the_index_was(
    able: bool, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, able=able)
    passages = [Passage(pid=f"{n}", title=f"Town {n}", text=f"Town {n} lies on a river.") for n in range(3)]
    built = ColBERT.build(passages, tmp_path / "index", progress=False)
    assert (built.manifest.precision, precision_of(built)) == (chosen, chosen)
    assert read_json(tmp_path / "index" / "manifest.json")["precision"] == chosen
    assert index_info(tmp_path / "index")["precision"] == chosen  # so that a user can tell which
    machine(monkeypatch, able=not able)  # it is moved
    moved = ColBERT.load(tmp_path / "index")
    assert precision_of(moved) == chosen
    assert moved("Which town is number 2?", 1)[0].pid == built("Which town is number 2?", 1)[0].pid
    (tmp_path / "more.jsonl").write_text('{"title": "Town 9", "text": "Town 9 lies on a hill."}\n')
    add_to_index(tmp_path / "index", tmp_path / "more.jsonl", progress=False)  # and grows there, in its precision
    assert ColBERT.load(tmp_path / "index").manifest.precision == chosen


def test_an_index_that_does_not_say_was_made_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, able=True)
    ColBERT.build([Passage(pid="1", title="Town", text="It lies on a river.")], tmp_path / "index", progress=False)
    manifest = read_json(tmp_path / "index" / "manifest.json")
    del manifest["precision"]
    write_json(tmp_path / "index" / "manifest.json", manifest)
    old = ColBERT.load(tmp_path / "index")
    assert (old.manifest.precision, precision_of(old)) == (None, "float32")


def test_a_gpu_encodes_in_the_indexs_precision_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """colbert-ai's own autocast made float16 of every precision."""
    colbert_shims.colbert()  # its device is the CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found, seen = find_checkpoint("minilm"), []
    encoder = ColBERTEncoder(found.path, found.augment, "float32")
    forward = encoder._checkpoint.bert.forward
    monkeypatch.setattr(
        encoder._checkpoint.bert,
        "forward",
        lambda *given, **options: seen.append(torch.is_autocast_enabled("cuda")) or forward(*given, **options),
    )
    encoder.encode_queries(["Which town lies on a river?"])
    encoder.encode_passages(["Town 1 lies on a river."])
    assert seen == [False, False]
