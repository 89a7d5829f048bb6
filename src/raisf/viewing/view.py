"""What the page shows, as JSON values: a summary of all runs and questions, and the trees in blocks."""

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from raisf.evaluation.identity import digest
from raisf.evaluation.report import summarise
from raisf.utils.errors import InputError
from raisf.viewing.gold import Texts, judge_errors
from raisf.viewing.runs import REMEDY, Run, Sources, find_runs

BLOCK = 50
"""Questions a block: the trees of one question in all runs come together, and its neighbours' with them."""

Record = dict[str, Any]


class View:
    """Runs and their questions, ready to be shown.

    Attributes:
        summary: Everything but the trees.
        texts: Of the passages, by the corpus of an index and their ids.
        lacks_texts: Whether a run has passages, and there is no index with their texts.

    Args:
        paths: Where the records lie; see `raisf.viewing.runs.find_runs`.
        index: The index that was searched, for the passages' texts, which records leave out. None: where a
            report says that it lies, if it still does.

    Raises:
        InputError: A path holds no records, or there is no index.
    """

    def __init__(self, paths: Sequence[Path], index: Path | None = None) -> None:
        self._paths = paths
        self.sources: Sources = find_runs(paths)
        self.title = ", ".join(path.name or path.resolve().name for path in paths)
        self.version = _version(self.sources)
        self._records = [_by_question(run) for run in self.sources.runs]
        shown = [set(_pids([record["trace"] for record in of.values()])) for of in self._records]
        self.texts = _texts(index, self.sources, set().union(*shown))
        self._corpora = [next((one for one in self.texts if _searched(run, one)), None) for run in self.sources.runs]
        self.lacks_texts = any(pids and corpus is None for pids, corpus in zip(shown, self._corpora, strict=True))
        self._questions = list(dict.fromkeys(key for records in self._records for key in records))
        self.blocks = -(-len(self._questions) // BLOCK)
        self.summary: dict[str, Any] = self._summary()

    @property
    def stale(self) -> bool:
        """Whether the records have changed since they were read, or others have come, or their report.

        Raises:
            InputError: A path holds no records now.
        """
        return _version(find_runs(self._paths)) != self.version

    def _summary(self) -> dict[str, Any]:
        runs, answers = list[Record](), list[list[Record | None]]()
        for run, of, corpus in zip(self.sources.runs, self._records, self._corpora, strict=True):
            texts = self.texts.get(corpus or "", {})  # another corpus may call its passages the same
            with _telling_what_is_no_record(run.path):
                runs.append({**_summary(run, list(of.values())), "texts": corpus})
                answers.append([_answer(of[key], texts, run) if key in of else None for key in self._questions])
        return {
            "title": self.title,
            "version": self.version,
            "facts": {name: value for name, value in self.sources.facts.items() if value is not None},
            "texts": bool(self.texts),
            "block": BLOCK,
            "runs": runs,
            "questions": [_question(self._any(key)) for key in self._questions],
            "answers": answers,
        }

    def block(self, number: int) -> dict[str, Any]:
        """The trees of some questions: by question and run, and the texts of their passages by corpus and id.

        Args:
            number: Of the block, from 0.
        """
        keys = self._questions[number * BLOCK : (number + 1) * BLOCK]
        trees = [[of[key]["trace"] if key in of else None for of in self._records] for key in keys]
        pids = dict.fromkeys(_pids(trees))
        texts = {corpus: {pid: of[pid] for pid in pids if pid in of} for corpus, of in self.texts.items()}
        return {"trees": trees, "texts": texts}

    def _any(self, key: tuple[str, str]) -> Record:
        """A record of a question, one with gold if there is any."""
        found = [of[key] for of in self._records if key in of]
        return next((record for record in found if record.get("gold")), found[0])


@contextlib.contextmanager
def _telling_what_is_no_record(path: Path) -> Iterator[None]:
    """Anyone may have written a file of records, and anything may stand in their fields.

    Raises:
        InputError: Something other than records have there was met.
    """
    try:
        yield
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise InputError(f"{path} holds what is no record ({error!r:.80}): {REMEDY}") from error


def _version(sources: Sources) -> str:
    """The state of the records' files, and what reports say of them, which may come after the last record."""
    stats = [(run, run.path.stat()) for run in sources.runs if run.path.exists()]
    files = [(run.path, run.label, run.groups, stat.st_mtime_ns, stat.st_size) for run, stat in stats]
    return digest([sources.facts, sources.pages, files])


def _by_question(run: Run) -> dict[tuple[str, str], Record]:
    records = run.records()
    if not records:
        raise InputError(f"{run.path} holds no records yet: wait for the first answers")
    return {(record["id"], record["question"]): record for record in records}


def _summary(run: Run, records: list[Record]) -> dict[str, Any]:
    answered = datetime.datetime.fromtimestamp(run.path.stat().st_mtime, datetime.UTC)
    return {
        "label": run.label,
        "file": run.path.name,
        "groups": list(run.groups),
        "program": run.program,
        "answered": answered.isoformat(timespec="seconds"),
        **summarise(records).as_dict(),
    }


def _question(record: Record) -> dict[str, Any]:
    shown = {name: record[name] for name in ("id", "question", "answers", "kind", "hops")}
    return {**shown, "gold": record.get("gold") or {}}


def _answer(record: Record, texts: Texts, run: Run) -> dict[str, Any]:
    names = ("prediction", "em", "f1", "route", "recall", "unreadable", "error")
    cost = record["cost"] or {}
    return {
        **{name: record[name] for name in names},
        "calls": cost.get("lm_calls"),
        "seconds": cost.get("seconds"),
        "judges": judge_errors(record, texts, run.program),
    }


def _pids(value: Any) -> list[str]:
    """The ids of all passages in a tree."""
    found, left = [], [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += [item for item in one.values() if isinstance(item, dict | list)]
            found += [str(one["pid"])] if "pid" in one else []
    return found


def _searched(run: Run, corpus: str) -> bool:
    return any(corpus in str(value) for value in run.program.values())


def _texts(index: Path | None, sources: Sources, pids: set[str]) -> dict[str, Texts]:
    """By corpus, its passages by id. An index that only a report names may be gone, or changed since."""
    from raisf.retrieval.store.manifest import read_manifest
    from raisf.retrieval.store.rows import read_segment

    texts: dict[str, Texts] = {}
    for named in [index] if index else sources.indexes:
        with contextlib.nullcontext() if index else contextlib.suppress(InputError, OSError):
            manifest = read_manifest(named)
            if not any(_searched(run, manifest.corpus_sha256) for run in sources.runs):
                raise InputError(f"{named} is not the index that these runs searched: give that one, or none")
            if manifest.corpus_sha256 in texts:
                continue
            passages = (one for segment in manifest.segments for one in read_segment(named, segment) if one.pid in pids)
            texts[manifest.corpus_sha256] = {one.pid: (one.title, one.text) for one in passages}
    return texts
