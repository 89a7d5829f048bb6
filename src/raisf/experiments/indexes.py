"""The indexes of an experiment's corpus: one an engine, and one whose queries are tuned to the LM that answers."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.retrieval.encoders.checkpoint import MINILM
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.retrieval.passage import Passage

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
        given: An index to search instead, where no engine is asked for.
        checkpoint: The encoder of colbert and dense; None: the default one.
        questions: Gives the questions that prompts may hold; passages that hold one are left out.

    Attributes:
        left_out: How many passages were left out of an index made now.
    """

    folder: Path
    corpus: Path
    engine: str
    given: str | None
    checkpoint: str | None
    questions: Callable[[], Sequence[str]]
    left_out: int = field(default=0, init=False)

    def path(self, engine: str | None = None) -> Path | str:
        """An engine's index, made if there is none yet.

        Raises:
            InputError: There is no corpus to make it of.
        """
        from raisf.retrieval.index import build_index

        if engine is None and self.given:
            return self.given
        name: Any = engine or self.engine
        encoder = self.checkpoint if name != "bm25" else None
        path = self.folder / (f"index-{name}" if encoder is None else f"index-{name}-{_short(encoder)}")
        if not path.exists():
            if not self.corpus.is_file():
                raise InputError(f"there is no corpus at {self.corpus}: give --index DIR (made by: raisf index DOCS)")
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = self._without_questions()
            # The closed world's published figures are the untrained checkpoint's.
            default = MINILM if name != "bm25" and self.corpus.with_name("world.json").is_file() else None
            build_index(kept or self.corpus, path, engine=name, checkpoint=encoder or default)
        return path

    def tuned(self, program: Any, train: Sequence[Any], dev: Sequence[Any], name: str, seed: int) -> Path:
        """A dense index whose queries an LM's likelihoods have taught (REPLUG's LSR), made if there is none yet.

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
        if not path.exists():
            rng = random.Random(seed)
            drawn = [
                rng.sample(list(part), min(len(part), most))
                for part, most in ((train, LSR_QUESTIONS), (dev, LSR_VALIDATION))
            ]
            folders: dict[str, Any] = {"checkpoint": self.folder / f"lsr-{name}", "index": path}
            options = folders | {"tuning": Tuning(seed=seed), "work": self.folder / "work"}
            tune_retriever(program, trainset=drawn[0], valset=drawn[1], **options)
        return path

    def _without_questions(self) -> "list[Passage] | None":
        """The passages that hold no question of a prompt; None where that is all of them."""
        from raisf.evaluation.metrics import normalise
        from raisf.retrieval.corpus.reading import read_documents

        asked = {normalise(question) for question in self.questions()}
        if not asked:
            return None
        holding = {
            passage.pid
            for passage in read_documents(self.corpus)
            if "?" in passage.text and not asked.isdisjoint(map(normalise, _asked(passage.text)))
        }
        self.left_out = len(holding)
        return [one for one in read_documents(self.corpus) if one.pid not in holding] if holding else None


def _asked(text: str) -> Iterable[str]:
    """The questions in a text."""
    return (found.group().strip() for found in _SENTENCE.finditer(text))


def _short(checkpoint: str) -> str:
    from raisf.evaluation.identity import digest

    return f"{Path(checkpoint).name}-{digest(checkpoint)[:6]}"
