"""The model of a ColBERT checkpoint while it is trained: a step, a measurement, its state on the disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.retrieval.encoders import colbert_shims
from raisf.retrieval.encoders.encoder import computing_in, fastest_precision, load_colbert, query_tokens
from raisf.utils import schedule
from raisf.utils.checkpointing import state_of, take_up

if TYPE_CHECKING:
    import torch

CLIP = 2.0
"""The longest gradient, as in colbert-ai's training."""


@dataclass(frozen=True, slots=True)
class Example:
    """A query in a step.

    Attributes:
        query: Its text.
        passages: The passage that answers it, then the hard negatives it brings along.
        answers: Every passage that answers it: others bring them along too, and they are not to be pushed away.
    """

    query: str
    passages: tuple[str, ...]
    answers: frozenset[str]


class Student:
    """A checkpoint's weights, in training.

    The word embeddings stay as they are: most words of a corpus are in no triple, and those that are must not move away
    from them. There is no dropout, which on a CPU costs more than half of a step: so few epochs overfit little.

    Args:
        path: The absolute folder of the checkpoint.
        augment: Whether its queries are filled up with [MASK] tokens.
        learning_rate: AdamW's, at its highest.
    """

    def __init__(self, path: Path, augment: bool, learning_rate: float):
        import torch

        colbert_shims.colbert()
        from colbert.modeling.colbert import ColBERT
        from colbert.modeling.tokenization import DocTokenizer, QueryTokenizer

        self._model = load_colbert(path, ColBERT)  # in evaluation mode, as colbert-ai makes it
        self._query_tokenizer = QueryTokenizer(self._model.colbert_config, verbose=0)
        self._doc_tokenizer = DocTokenizer(self._model.colbert_config)
        self._augment = augment
        self._rate = learning_rate
        self._model.bert.get_input_embeddings().weight.requires_grad_(False)
        self._weights = {name: p for name, p in self._model.model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(self._weights.values(), lr=learning_rate, weight_decay=0.01)

    def step(self, batch: Sequence[Example], share: float) -> float:
        """Learns from one batch, at a share of the learning rate; returns its loss in nats a query."""
        import torch

        scores, labels = self._scores(batch)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        schedule.take_step(self._optimizer, self._weights.values(), self._rate * share, CLIP)
        return loss.item()

    def measure(self, batches: Sequence[Sequence[Example]]) -> dict[str, float]:
        """The mean loss, in nats a query, and the share of queries whose passage is the first of all of its batch."""
        import torch

        loss = first = count = 0.0
        with torch.inference_mode():
            for batch in batches:
                scores, labels = self._scores(batch)
                loss += torch.nn.functional.cross_entropy(scores, labels, reduction="sum").item()
                first += (scores.argmax(dim=1) == labels).sum().item()
                count += len(batch)
        return {"loss": round(loss / count, 4), "first": round(first / count, 4)}

    def _scores(self, batch: Sequence[Example]) -> "tuple[torch.Tensor, torch.Tensor]":
        """Each query's score with each passage of the batch, (queries, passages), and the place of its own.

        Passages that answer a query, too, have the score -inf: they count neither for nor against it.
        """
        import torch

        passages = [passage for example in batch for passage in example.passages]
        starts = torch.tensor([0, *(len(example.passages) for example in batch[:-1])]).cumsum(0)
        device = self._model.device
        with computing_in(fastest_precision(), device.type):
            ids, mask, lengths = query_tokens(
                self._query_tokenizer, [example.query for example in batch], self._augment
            )
            queries = self._model.query(ids, mask).float()  # (queries, query tokens, dim)
            ids, mask = self._doc_tokenizer.tensorize(passages)
            vectors, kept = self._model.doc(ids, mask, keep_dims="return_mask")
        vectors, kept = vectors.float(), kept.squeeze(-1)  # (passages, tokens, dim), (passages, tokens)
        products = queries.flatten(0, 1) @ vectors.flatten(0, 1).T
        products = products.view(*queries.shape[:2], *vectors.shape[:2])
        best = products.masked_fill(~kept, -torch.inf).max(dim=-1).values  # (queries, query tokens, passages)
        counts = torch.arange(queries.shape[1], device=device) < lengths.to(device)[:, None]
        scores = (best * counts[:, :, None]).sum(dim=1)
        others = torch.tensor([[passage in example.answers for passage in passages] for example in batch])
        for row, (start, example) in enumerate(zip(starts.tolist(), batch, strict=True)):
            others[row] |= torch.tensor([passage == example.passages[0] for passage in passages])
            others[row, start] = False
        return scores.masked_fill(others.to(device), -torch.inf), starts.to(device)

    def save(self, path: Path) -> None:
        """Writes weights and optimizer, so that training can go on."""
        from safetensors.torch import save_file

        tensors = state_of(self._weights, self._optimizer)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)

    def load(self, path: Path) -> None:
        """Goes on from what `save` has written."""
        from safetensors.torch import load_file

        take_up(self._weights, self._optimizer, load_file(path, device=str(self._model.device)))

    def publish(self, folder: Path) -> None:
        """Writes the weights as a checkpoint's."""
        from safetensors.torch import save_file

        state: dict[str, Any] = self._model.model.state_dict()
        tensors = {name: tensor.float().cpu().contiguous() for name, tensor in state.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
