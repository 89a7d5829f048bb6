"""Tuning the query side of a dense index: its passages keep their vectors, so the index need not be made again."""

import dataclasses
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.retrieval.engines.base import Index
from raisf.retrieval.engines.checkpoints import find_again, place_of
from raisf.retrieval.engines.dense import BATCH, LONGEST, QUERIES, DenseModel, Tower, find_model
from raisf.retrieval.store.manifest import INDEX, MANIFEST
from raisf.retrieval.store.segments import alive_in, vectors_folder
from raisf.retrieval.store.vectors import Vectors
from raisf.utils import schedule
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, link_or_copy, write_json

if TYPE_CHECKING:
    import torch

CLIP = 1.0
"""The longest gradient."""

_KEPT = {".safetensors", ".json", ".txt", ".model", ".metadata"}
PUBLISHED = (f"{QUERIES}/training.json", QUERIES, "1_Pooling", *(f"*{suffix}" for suffix in sorted(_KEPT)))
"""What tells a folder that `QueryStudent.publish` wrote, and all that lies in one."""


class QueryStudent:
    """An index's encoder of queries, in training, beside the vectors of its passages, which stay as they are.

    The word embeddings stay too: most words that will be asked for are in no training question, and those that are must
    not move away from them.

    Attributes:
        passages: Of the index, in the order of their numbers here.

    Args:
        index: A dense index.
        learning_rate: AdamW's, at its highest.
    """

    def __init__(self, index: Index, learning_rate: float):
        import torch

        base = find_again(type(index).find, index.path, index.manifest)
        assert isinstance(base, DenseModel)
        self._index, self._base, self._rate = index, base, learning_rate
        self._tower = Tower(base.queries or base.path, base.cosine, base.query_tokens or LONGEST)
        self._tower.model.get_input_embeddings().weight.requires_grad_(False)
        self._weights = [p for p in self._tower.model.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._weights, lr=learning_rate, weight_decay=0.01)
        segments = index.manifest.segments
        vectors = Vectors(*(vectors_folder(index.path, segment) for segment in segments)).all()
        self._vectors = vectors[np.concatenate(list(map(alive_in, segments)))]
        self.passages = index.passages

    def find(self, queries: Sequence[str], k: int) -> list[list[int]]:
        """The numbers of the k best passages for each query as it is encoded now, best first; or of all."""
        import torch

        k = min(k, len(self._vectors))
        self._tower.model.eval()
        found: list[list[int]] = []
        with torch.inference_mode():
            for start in range(0, len(queries), BATCH):
                scores = self._tower.vectors(queries[start : start + BATCH]) @ self._vectors.T
                found += scores.topk(k).indices.tolist()
        return found

    def scores(self, queries: Sequence[str], numbers: Sequence[Sequence[int]]) -> "torch.Tensor":
        """The score `(n_queries, k)` of each query's own k passages, given by their numbers."""
        import torch

        batches = [queries[start : start + BATCH] for start in range(0, len(queries), BATCH)]
        vectors = torch.cat([self._tower.vectors(batch) for batch in batches])
        return (self._vectors[torch.tensor(numbers)] @ vectors.unsqueeze(-1)).squeeze(-1)

    def step(
        self, queries: Sequence[str], numbers: Sequence[Sequence[int]], loss: Any, share: float, seed: str
    ) -> float:
        """Learns from one batch; returns its loss.

        Args:
            queries: Of the batch.
            numbers: The passages of each, as many for all.
            loss: From the scores `(n_queries, k)` to a tensor `(n_queries,)`.
            share: Of the learning rate.
            seed: Of dropout.
        """
        import torch

        self._tower.model.train()
        with torch.random.fork_rng():
            torch.manual_seed(random.Random(seed).getrandbits(62))
            value = loss(self.scores(queries, numbers)).mean()
        value.backward()
        schedule.take_step(self._optimizer, self._weights, self._rate * share, CLIP)
        self._tower.model.eval()
        return value.item()

    def weights(self) -> "dict[str, torch.Tensor]":
        """A copy of the weights, for `restore`."""
        return {name: tensor.clone() for name, tensor in self._tower.model.state_dict().items()}

    def restore(self, weights: "dict[str, torch.Tensor]") -> None:
        """Takes weights that `weights` gave."""
        self._tower.model.load_state_dict(weights)

    def publish(self, out: Path | str, report: dict[str, Any]) -> DenseModel:
        """Writes a model: the base as it was for passages, and in `query_encoder` what has been tuned, for queries.

        Args:
            out: A new folder, or a model to replace. `raisf index --engine dense --checkpoint` takes it.
            report: How it was made, for `query_encoder/training.json`.

        Raises:
            InputError: `out` holds other things.
        """
        with atomic_folder(out, *PUBLISHED) as folder:
            for file in self._base.path.iterdir():
                if file.is_file() and file.suffix in _KEPT:
                    shutil.copyfile(file, folder / file.name)
            if (self._base.path / "1_Pooling").is_dir():
                shutil.copytree(self._base.path / "1_Pooling", folder / "1_Pooling")
            self._tower.model.save_pretrained(folder / QUERIES)
            self._tower.tokenizer.save_pretrained(folder / QUERIES)
            write_json(folder / QUERIES / "training.json", {"base": self._base.name, **report})
        return find_model(Path(out).resolve())

    def reindex(self, model: DenseModel, out: Path | str) -> None:
        """Writes the index anew as one of a model that `publish` wrote. Nothing is encoded: passages are as they were.

        Files are shared with the old index where the file system allows it; an index never changes its files.

        Raises:
            InputError: `out` holds other things, or files of the old index are gone.
        """
        old = self._index
        manifest = dataclasses.replace(old.manifest, **place_of(model, out))
        with atomic_folder(out, *INDEX) as folder:
            for name in manifest.files:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                try:
                    link_or_copy(old.path / name, folder / name)
                except FileNotFoundError as error:
                    raise InputError(
                        f"the index {old.path} is another than when the tuning began: the tuned model is saved in "
                        f"{model.name}; `raisf index DOCS --out {out} --engine dense --checkpoint {model.name}` makes "
                        "its index"
                    ) from error
            write_json(folder / MANIFEST, dataclasses.asdict(manifest))
