"""Dense retrieval: one vector a text, the mean over its tokens, as Contriever and the sentence-transformers make it."""

import functools
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.lm.local.soundness import check_tokenizer, check_weights, unreadable
from raisf.retrieval.encoders.checkpoint import MINILM, fetch, hash_folder, minilm_package, refuse_code, seen_queries
from raisf.retrieval.engines.base import Index
from raisf.retrieval.store.encoding import Reading
from raisf.utils.errors import InputError
from raisf.utils.files import expanded, read_json
from raisf.utils.model_loading import ONE_AT_A_TIME

if TYPE_CHECKING:
    import torch

BATCH = 32
"""Texts a forward pass: on a CPU larger batches only pad more."""

LONGEST = 512
"""Tokens of a text at most; fewer where its tokenizer or its positions say so.

The `max_seq_length` of the sentence-transformers is not asked: MiniLM reads 512, and theirs says 256.
"""

CONTRIEVER_QUERY = 64
"""Tokens of a query at most where the model is Contriever: the papers' set-up."""

STEPS = ("Transformer", "Pooling", "Normalize")
"""What may be done with a text, as the sentence-transformers call it."""

QUERIES = "query_encoder"
"""The folder, inside a model's, of an encoder for queries alone (`raisf.retrieval.training.query_tuning` makes it)."""


@dataclass(frozen=True, slots=True)
class DenseModel:
    """A text encoder on this machine.

    Attributes:
        name: As it was asked for: "minilm", a folder or a hub id.
        path: The absolute folder.
        sha256: Of its weights, tokenizer and settings.
        cosine: Whether vectors are brought to unit length, so that their dot product is the cosine.
        queries: The folder of the weights that encode queries, where these are not those that encode passages.
        query_tokens: Tokens of a query at most; None: as many as of a passage.
    """

    name: str
    path: Path
    sha256: str
    cosine: bool
    queries: Path | None = None
    query_tokens: int | None = None
    precision = "float32"

    def computing_in(self, precision: str) -> "DenseModel":
        """The same: it computes in float32 alone."""
        return self

    def seen_queries(self) -> frozenset[str]:
        """A print of each query that it was tuned on, as far as that is known."""
        return seen_queries(self.queries or self.path)

    def encoder(self) -> "DenseEncoder":
        """The encoder, shared by all indexes of the process that use this model."""
        return _load(self)


def find_model(name: str | Path) -> DenseModel:
    """The model of that name: "minilm", a folder in Hugging Face's layout, or a hub id (then fetched).

    A folder of the sentence-transformers that has a Normalize step is compared by cosine, every other by dot product,
    as Contriever is. Where it holds a folder `query_encoder`, that one encodes the queries.

    Raises:
        InputError: There is none, its weights are not safetensors, it brings its own code, or it gives a text another
            vector than the mean over its tokens.
    """
    path = Path(minilm_package().get_model_path()) if name == MINILM else expanded(name)
    if not path.is_dir():
        path = fetch(str(name))
    path = path.resolve()
    wanted = "a text encoder is a folder with config.json, a tokenizer and *.safetensors"
    if not (path / "config.json").is_file():
        raise InputError(f"{name} is not a text encoder: {path} has no config.json; {wanted}")
    refuse_code(path, name)
    if read_json(path / "config.json").get("is_encoder_decoder"):
        raise InputError(f"{name} has a decoder behind its encoder: take a model that is an encoder alone")
    if not any(path.glob("*.safetensors")):
        raise InputError(
            f"{name} has no *.safetensors in {path}; {wanted}. Pickled weights (*.bin) are not read: load them where "
            "you trust them and save them again with transformers' save_pretrained"
        )
    pooling = path / "1_Pooling" / "config.json"
    if pooling.is_file() and not _is_mean(read_json(pooling)):
        raise InputError(f"{name} does not pool by the mean over its tokens, which is all that is done here")
    steps = read_json(path / "modules.json") if (path / "modules.json").is_file() else []
    kinds = [str(step.get("type")).rpartition(".")[2] for step in steps]
    if others := [kind for kind in kinds if kind not in STEPS]:
        raise InputError(f"{name} has a step {others[0]} in modules.json, and only {', '.join(STEPS)} are done here")
    cosine = "Normalize" in kinds
    called = f"{path.name} {Path(name).name}".lower()  # a folder of the hub's cache, or behind a link, has another name
    shorter = CONTRIEVER_QUERY if "contriever" in called else None
    if not (path / QUERIES / "config.json").is_file():
        return DenseModel(str(name), path, hash_folder(path), cosine, None, shorter)
    both = hashlib.sha256(f"{hash_folder(path)} {hash_folder(path / QUERIES)}".encode()).hexdigest()
    return DenseModel(str(name), path, both, cosine, path / QUERIES, shorter)


def _is_mean(pooling: dict) -> bool:
    """Whether a Pooling step of the sentence-transformers is the mean alone, however their version writes it."""
    modes = {name for name, value in pooling.items() if name.startswith("pooling_mode") and value}
    return modes == {"pooling_mode_mean_tokens"} or pooling.get("pooling_mode") == "mean"


class Tower:
    """One transformer that gives a text the mean over its last layer's tokens; on a CUDA device if there is one.

    Source: Contriever, https://arxiv.org/abs/2112.09118, section 3.

    Attributes:
        model: The transformer, not in training.
        tokenizer: Its tokenizer.
        reading: What it has read.

    Args:
        path: The absolute folder of its weights and tokenizer.
        cosine: Whether to bring the vectors to unit length.
        longest: Tokens of a text at most.
    """

    def __init__(self, path: Path, cosine: bool, longest: int = LONGEST):
        import torch

        with ONE_AT_A_TIME:
            from transformers import AutoModel, AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
            with ONE_AT_A_TIME:
                both: Any = AutoModel.from_pretrained(
                    path,
                    use_safetensors=True,
                    dtype="float32",  # else that in which they lie
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                )
        except MemoryError:
            raise
        except Exception as error:  # a damaged folder makes transformers raise what it likes
            raise unreadable(path, error) from error
        model, loaded = both
        check_weights(model, loaded, path)
        self.model: Any = model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        check_tokenizer(self.tokenizer, self.model, path)
        positions = getattr(self.model.config, "max_position_embeddings", LONGEST)
        self.reading = Reading(min(self.tokenizer.model_max_length, positions, longest))
        self.tokenizer.model_max_length = self.reading.longest  # is saved with it
        self._cosine = cosine

    def vectors(self, texts: Sequence[str], longest: int | None = None) -> "torch.Tensor":
        """The vectors `(n_texts, dim)` of one batch, float32 on the CPU; long texts are cut, at `longest` if given."""
        import torch

        longest = min(self.reading.longest, longest or LONGEST)
        words = self.tokenizer(list(texts), padding=True, truncation=True, max_length=longest, return_tensors="pt")
        self.reading.add(words["input_ids"], words["attention_mask"], self.tokenizer.unk_token_id)
        words = words.to(self.model.device)
        states = self.model(**words).last_hidden_state.float()
        kept = words["attention_mask"].unsqueeze(-1).float()
        means = ((states * kept).sum(dim=1) / kept.sum(dim=1)).cpu()
        return torch.nn.functional.normalize(means, dim=-1) if self._cosine else means


class DenseEncoder:
    """Encodes queries and passages, mostly with the same weights. Safe to call from several threads.

    Attributes:
        reading: What it has read of passages; and of queries, where one model encodes both.
    """

    def __init__(self, model: DenseModel):
        self._passages = Tower(model.path, model.cosine)
        self._queries = Tower(model.queries, model.cosine) if model.queries else self._passages
        self._query_tokens = model.query_tokens
        self.reading = self._passages.reading
        # Fast tokenizers keep their padding as state and fail when two threads use one.
        self._lock = threading.Lock()

    def encode_queries(self, queries: Sequence[str]) -> list["torch.Tensor"]:
        """One vector `(1, dim)` for each query, float32; long queries are cut."""
        return list(self._encode(self._queries, queries, self._query_tokens).split(1)) if queries else []

    def encode_passages(self, texts: Sequence[str]) -> tuple["torch.Tensor", "torch.Tensor"]:
        """Vectors `(n_texts, dim)`, float16, and how many each text has: one."""
        import torch

        return self._encode(self._passages, texts).half(), torch.ones(len(texts), dtype=torch.int64)

    def _encode(self, tower: Tower, texts: Sequence[str], longest: int | None = None) -> "torch.Tensor":
        import torch

        # Texts of like length together: a batch is padded to its longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: list[torch.Tensor] = [torch.empty(0)] * len(texts)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            with self._lock, torch.inference_mode():
                for i, row in zip(batch, tower.vectors([texts[i] for i in batch], longest), strict=True):
                    rows[i] = row
        return torch.stack(rows)


_load = functools.lru_cache(maxsize=2)(DenseEncoder)


class Dense(Index):
    """Searches passages by one vector each, exactly.

    Source: Contriever, https://arxiv.org/abs/2112.09118.
    """

    kind = "dense"
    find = staticmethod(find_model)
