"""The indexes of an experiment's corpus: one an engine, and one whose queries are tuned to the LM that answers."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.experiments.kept import read_kept
from raisf.experiments.provenance import without_credentials
from raisf.retrieval.encoders.checkpoint import MINILM
from raisf.utils.errors import InputError
from raisf.utils.sampling import up_to
from raisf.utils.urls import is_address

if TYPE_CHECKING:
    from raisf.retrieval.passage import Passage
    from raisf.retrieval.store.manifest import IndexManifest

logger = logging.getLogger(__name__)

# Training questions that REPLUG's retriever learns from: each costs the LM 20 passages.
LSR_QUESTIONS, LSR_VALIDATION = 200, 50
_SENTENCE = re.compile(r"[^.!?]*\?")


@dataclass
class Indexes:
    """Makes each index of a corpus once.

    Args:
        folder: Where they go.
        corpus: The corpus's file.
        engine: What is made where none is asked for.
        given: An index to search instead, as it is. What asks for another engine searches one of the same passages.
        checkpoint: The engine's encoder, such as colbert's or dense's; other engines that a row asks for have their own
            default. None: the default one.
        questions: Gives the questions that prompts may hold; passages that hold one are left out.

    Attributes:
        left_out: How many passages were left out of the index of the corpus.
    """

    folder: Path
    corpus: Path
    engine: str
    given: str | None
    checkpoint: str | None
    questions: Callable[[], Sequence[str]]
    left_out: int = field(default=0, init=False)

    @property
    def searched(self) -> str | None:
        """The engine that is searched where a row asks for none; None of a retriever that is none of ours."""
        return self._given_engine if self.given else self.engine

    def named(self, engines: Iterable[str | None]) -> str | None:
        """What rows that ask for these engines have searched, as a page may name it; None: for the usual one."""
        found = dict.fromkeys(
            self.given if self._is_given(one) else self._folder_of(one or self.engine) for one in engines
        )
        return ", ".join(without_credentials(str(one)) for one in found) or None

    def path(self, engine: str | None = None) -> Path | str:
        """An engine's index, made if there is none yet, or what there is is damaged.

        Raises:
            InputError: There is nothing to make it of: no corpus, or a given index whose passages are elsewhere; or the
                given index has changed.
        """
        from raisf.retrieval.index import build_index

        self.check_unchanged()
        if self.given and self._is_given(engine):
            return self.given
        name: Any = engine or self.engine
        path = self._folder_of(name)
        if not _stands(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # The closed world's published figures are the untrained checkpoint's.
            default = MINILM if name != "bm25" and self.corpus.with_name("world.json").is_file() else None
            checkpoint = self._encoder(name) or default
            build_index(self._passages(), path, engine=name, checkpoint=checkpoint)
        if not self.given:
            self.left_out = self._missing_in(path)
        return path

    def check_unchanged(self) -> None:
        """Makes sure that a given index is what it was: a table's rows are begun hours apart, and search the same.

        Raises:
            InputError: It has changed since the first row.
        """
        from raisf.retrieval.store.manifest import read_manifest

        if not self.given:
            return
        if self._given is not None:
            now, before = (
                (one.corpus_sha256, one.ranking, one.checkpoint_sha256)
                for one in (read_manifest(self.given, check=False), self._given)
            )
        else:
            now, before = self._served_now(), self._served
        if now != before:
            raise InputError(
                f"the index {without_credentials(str(self.given))} has changed since this experiment began, and no "
                "table mixes two: run the same command again, which asks all rows of what it is now"
            )

    def tuned(self, program: Any, train: Sequence[Any], dev: Sequence[Any], name: str, seed: int) -> Path:
        """A dense index whose queries an LM's likelihoods have taught (REPLUG's LSR), made likewise.

        Args:
            program: REPLUG over the dense index, with the LM.
            train: Questions to learn from; a draw of them is used.
            dev: Questions to choose the epoch by; likewise.
            name: Of what it is made, for the folder.
            seed: Of the draws and the training.
        """
        import random

        from raisf.optimize.optimizers.lsr import Tuning, tune_retriever

        path = self.folder / f"index-lsr-{name}"
        if not _stands(path):
            rng = random.Random(seed)
            drawn = [up_to(part, most, rng) for part, most in ((train, LSR_QUESTIONS), (dev, LSR_VALIDATION))]
            folders: dict[str, Any] = {"checkpoint": self.folder / f"lsr-{name}", "index": path}
            options = folders | {"tuning": Tuning(seed=seed), "work": self.folder / "work"}
            tune_retriever(program, trainset=drawn[0], valset=drawn[1], **options)
        return path

    def _is_given(self, engine: str | None) -> bool:
        """Whether rows that ask for an engine search the given index."""
        return bool(self.given) and engine in (None, self._given_engine)

    def _encoder(self, engine: str) -> str | None:
        """Of the engine that was asked for; of any other one where that has none, or is a given index's."""
        if engine == "bm25" or (engine != self.engine and not self.given and self.engine != "bm25"):
            return None
        return self.checkpoint

    def _folder_of(self, engine: str) -> Path:
        """Where an engine's index is, or will be."""
        encoder = self._encoder(engine)
        parts = [f"index-{engine}", encoder and _short(encoder), self._given_passages(engine) if self.given else None]
        return self.folder / "-".join(filter(None, parts))

    def _passages(self) -> "Path | Iterable[Passage]":
        """What an index is made of."""
        if self._given is not None:
            return self._passages_of_given(self._given)
        if not self.corpus.is_file():
            raise InputError(f"there is no corpus at {self.corpus}: give --index DIR (made by: raisf index DOCS)")
        return self._without_questions() or self.corpus

    def _passages_of_given(self, manifest: "IndexManifest") -> "Iterator[Passage]":
        from raisf.retrieval.store.segments import live_passages

        for segment in manifest.segments:
            yield from live_passages(Path(str(self.given)), segment)
        self.check_unchanged()  # a new index has folders of the same names

    def _missing_in(self, index: Path) -> int:
        """How many passages of the corpus are not in an index of it; counted once, and kept beside the index."""
        from raisf.retrieval.corpus.reading import read_documents
        from raisf.retrieval.store.manifest import read_manifest
        from raisf.utils.files import write_json

        kept = index.with_name(f"{index.name}-left-out.json")
        counted = read_kept(kept, "its passages are counted again")
        if counted is None:
            passages = sum(1 for _ in read_documents(self.corpus))
            counted = {"left_out": passages - read_manifest(index).passages}
            write_json(kept, counted)
        return counted["left_out"]

    @cached_property
    def _given(self) -> "IndexManifest | None":
        """What the given index says of itself; None where it is no folder, but on a server."""
        from raisf.retrieval.store.manifest import read_manifest

        return read_manifest(self.given) if self.given and not is_address(self.given) else None

    @cached_property
    def _given_engine(self) -> str | None:
        """Its engine; None of a collection of Qdrant, which is none of ours."""
        from raisf.retrieval.index import open_index

        if self._given is not None:
            return self._given.kind
        return getattr(open_index(str(self.given)), "served", {}).get("engine")

    @cached_property
    def _served(self) -> str:
        """What an index that is no folder found by when it was first looked at."""
        return self._served_now()

    def _served_now(self) -> str:
        from raisf.retrieval.index import open_index
        from raisf.retrieval.passage import found_by

        return found_by(open_index(str(self.given)))

    def _given_passages(self, engine: str) -> str:
        """Which passages the given index has, for a folder's name."""
        if self._given is None:
            place = without_credentials(str(self.given))
            raise InputError(
                f"this row searches a {engine} index, and the passages of {place} cannot be read from here to make one "
                f"of them: give --index a folder, or a {engine} index"
            )
        return self._given.corpus_sha256[:8]

    def _without_questions(self) -> "Iterator[Passage] | None":
        """The passages that hold no question of a prompt; None where that is all of them."""
        from raisf.evaluation.metrics import normalise
        from raisf.retrieval.corpus.reading import read_documents

        asked = {normalise(question) for question in self.questions()}
        if not asked:
            return None
        holding = {
            passage.pid
            for passage in read_documents(self.corpus)
            if "?" in passage.text and not asked.isdisjoint(map(normalise, _questions_in(passage.text)))
        }
        return (one for one in read_documents(self.corpus) if one.pid not in holding) if holding else None


def _stands(index: Path) -> bool:
    """Whether an index is there and whole; a damaged one is told.

    Raises:
        InputError: It is of another version, or what is there is no index.
    """
    from raisf.retrieval.store.manifest import DamagedIndex, read_manifest

    if not index.exists():
        return False
    try:
        read_manifest(index)
    except DamagedIndex:
        logger.warning("the index %s is damaged: it is made again", index)
        return False
    except InputError as error:
        raise InputError(f"{error}; or delete {index}: it is then made again") from error
    return True


def _questions_in(text: str) -> Iterable[str]:
    """The questions in a text."""
    return (found.group().strip() for found in _SENTENCE.finditer(text))


def _short(checkpoint: str) -> str:
    from raisf.evaluation.identity import digest

    return f"{Path(checkpoint).name}-{digest(checkpoint)[:6]}"
