"""A device that has no memory for all texts at once: they wait for each other, and none is another for it."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from raisf.lm.connect import connect
from raisf.lm.failures import explain
from raisf.lm.local.decoding import Decoding
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.inference import Rows
from raisf.lm.local.shelf import Shelf
from tests.lm.conftest import Given, generated, random_tokens, written


def room_for(monkeypatch: pytest.MonkeyPatch, rows: int) -> list[Any]:
    """A device without memory for the keys of more rows; gives what it was asked to keep of more, by weak reference."""
    refused, admit = list[Any](), Shelf.admit

    def admitted(shelf: Shelf, layer: Any, places: Any, lengths: Any) -> None:
        if shelf._rows + len(lengths) > rows:
            refused.append(weakref.ref(layer))
            raise torch.OutOfMemoryError("CUDA out of memory")
        admit(shelf, layer, places, lengths)

    monkeypatch.setattr(Shelf, "admit", admitted)
    return refused


def test_texts_for_which_there_is_no_memory_together_are_written_after_each_other(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [generated(f"Who founded {name}?") for name in ("Velmora", "Kastrel", "A", "B", "the town of C")] * 3
    alone = [InferenceEngine(llama).complete(request).text for request in requests]
    refused, engine = room_for(monkeypatch, 3), InferenceEngine(llama)
    with ThreadPoolExecutor(len(requests)) as pool:
        assert [answer.text for answer in pool.map(engine.complete, requests)] == alone
    assert 1 <= len(refused) <= 4  # and what there was room for is remembered


def test_what_there_was_no_memory_for_is_told_and_held_by_nobody(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run keeps its last error, and with it kept what the reading that failed had taken of the device."""
    refused, lm = room_for(monkeypatch, 0), connect(f"local/{llama}")
    with pytest.raises(Exception, match="CUDA out of memory") as told:
        lm("Who?")
    explained = explain(told.value, lm)
    assert "the GPU has no room left (CUDA out of memory)" in str(explained) and "--threads" in str(explained)
    gc.collect()
    assert [kept() for kept in refused] == [None]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("tensor", [1, 2])
def test_a_text_that_finds_no_memory_leaves_the_others_as_they_were(
    model: Any, layer: int, tensor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = random_tokens(3, 9, 200)
    rows = Rows(model)
    batch, draft = Decoding[Any](rows), Given(first, 12)
    batch.join([draft])
    batch.step()
    made, zeros, target = list[int](), torch.Tensor.new_zeros, rows._cache.layers[layer]

    def new_zeros(of: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
        if any(of is held for held in target._held):
            made.append(1)
            if len(made) == tensor:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return zeros(of, *given, **options)

    with monkeypatch.context() as patched, pytest.raises(torch.OutOfMemoryError):
        patched.setattr(torch.Tensor, "new_zeros", new_zeros)
        batch.join([Given(second, 12)])
    while batch.drafts:
        batch.step()
    assert draft.tokens == written(model, [first], [12])[0]
