"""Retrievers of all makes, DSPy's among them, as one: whatever finds passages by a query can be what a program asks."""

import copy
import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dspy

from raisf.retrieval.passage import Passage, Retriever, check_k, found_by
from raisf.utils.errors import InputError, RaisfError, SearchError
from raisf.utils.learnt import learnt_by
from raisf.utils.urls import without_passwords

_TEXTS = ("passage", "long_text", "text", "content", "page_content")
"""The names under which retrievers give a passage's text, the most telling first."""

_COUNTS = (
    *("k", "top_k", "topk", "n", "top_n", "topn", "limit", "count", "size", "most", "hits", "results", "num_results"),
    *("n_results", "max_results", "num_docs", "n_docs", "max_docs", "num_passages", "n_passages", "max_passages"),
)
"""The names under which retrievers take how many passages to find, the most telling first."""


def as_retriever(given: Any, name: str | None = None) -> Retriever:
    """A retriever out of anything that finds passages; one that is a `Retriever` already is given back as it is.

    That is `dspy.ColBERTv2`, `dspy.retrievers.Embeddings`, or any callable that takes a query, and k where it can, and
    gives strings, mappings or objects with a text, or a `dspy.Prediction(passages=...)` of such.

    Args:
        given: The retriever.
        name: What it searches, such as "wiki-2018". An evaluation resumes only where this is the same. None: what is
            known of it, see `Adapted`.

    Raises:
        InputError: It cannot be called, or would have to be awaited.
    """
    retriever = _adapted(given, name)
    if isinstance(retriever, Adapted):
        retriever.note()
    return retriever


def _adapted(given: Any, name: str | None = None) -> Retriever:
    """See `as_retriever`; what is known of it is not told yet, which takes a while where it has many texts."""
    if isinstance(given, Retriever) and name is None:
        return given
    if not callable(given) or isinstance(given, type | dspy.Tool):
        raise InputError(
            f"the retriever is {given!r:.80}: give what raisf.open_index opens, a retriever of DSPy, or a "
            "function of a query and k that gives passages (of a dspy.Tool its func)"
        )
    if any(map(inspect.iscoroutinefunction, (given, type(given).__call__))):
        raise InputError(
            f"the retriever {_name_of(given)} is async, and searches run in threads: give a function that waits for "
            "it, such as lambda query, k: asyncio.run(search(query, k))"
        )
    return Adapted(given, name)


def searched(program: Any) -> Retriever | None:
    """What a program searches with: its retriever, or where it has none DSPy's, which `dspy.configure(rm=...)` sets."""
    given = getattr(program, "retriever", None)
    given = dspy.settings.rm if given is None else given
    return None if given is None else _adapted(given)


class Adapted:
    """A retriever of another make.

    Its passages have the ids that it gives, or else hashes of their texts.

    Attributes:
        path: None: it is no index folder.
        corpus_hash: Of all that can be known of it: the name that it was given; else its class or function with its
            public settings (such as the URL of ColBERTv2), the texts in its `corpus` (as Embeddings has) and the
            indexes that it holds, also in lists and parts of its own; of what holds a `dspy.Retrieve`, or is one,
            DSPy's `rm`, too. It does not change with passages that lie elsewhere: name the retriever where these may.
        given: The retriever, where it was given no name.

    Args:
        given: See `as_retriever`.
        name: What it searches.
    """

    def __init__(self, given: Any, name: str | None = None):
        self.path = None
        self.name = name or _name_of(given)
        self.given = None if name else given
        self.learnt_from = learnt_by(given)
        self._asked = given
        self._call = _caller_of(given)
        self._noted: tuple[str, list[Retriever], bool] | None = None

    def note(self) -> tuple[str, list[Retriever], bool]:
        """What is known of it, the indexes that it holds, and whether it asks DSPy's `rm`; for good as it is now."""
        if self._noted is None:
            known = _hash(f"named {self.name}" if self.given is None else _known_of(self.given))
            parts = [] if self.given is None else list(_parts_of(self.given, set()))
            indexes = [part for part in parts if isinstance(part, Retriever) and isinstance(part.corpus_hash, str)]
            self._noted = known, indexes, any(map(_asks_rm, parts))
        return self._noted

    @property
    def corpus_hash(self) -> str:
        """See above."""
        known, indexes, asks_rm = self.note()
        if asks_rm and (rm := searched(None)) is not None:
            indexes = [*indexes, rm]
        return _hash("\n".join([known, *map(found_by, indexes)])) if indexes else known

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The at most `k` best passages, best first, each once, with scores where it gives any.

        Raises:
            RaisfError: It fails, or gives something else.
        """
        k = check_k(k)
        try:
            found = self._call(query, k)
        except RaisfError:
            raise
        except Exception as error:
            said = without_passwords(f"{type(error).__name__}: {error}")
            failed = SearchError(f"the retriever {self.name} failed ({said})")
            failed.brief = f"the retriever {self.name} failed ({type(error).__name__})"
            raise failed from error
        once: dict[tuple[str, str, str], Passage] = {}
        for passage in _passages(found, self.name):
            once.setdefault((passage.pid, passage.title, passage.text), passage)
        return list(once.values())[:k]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order."""
        return [self(query, k) for query in queries]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Adapted":
        """Itself: copies of a program search with the same retriever; where that asks predictors, with a copy of it.

        So what these learn in a copy of a module is what its program searches with. All else that it holds, such as
        LMs and indexes, is shared, and so is a retriever that cannot be copied.
        """
        parts = list(_parts_of(self._asked, set()))
        if not any(isinstance(part, dspy.Predict) for part in parts):
            return self
        before = dict(memo)
        memo.update({id(one): one for one in _shared(parts)})
        made = memo[id(self)] = Adapted.__new__(Adapted)
        try:
            asked = copy.deepcopy(self._asked, memo)
        except Exception:  # there is a lock in a list of it, say; what is half copied is no copy
            memo.clear()
            memo.update(before)
            memo[id(self)] = self
            return self
        made.__init__(asked, self.name if self.given is None else None)
        made._noted = self._noted
        return made


def _shared(parts: Sequence[Any]) -> Iterator[Any]:
    """What copies of a retriever share: all that its modules hold but modules, and what holds or calls one."""

    def is_copied(one: Any) -> bool:
        holds = isinstance(one, dspy.Module | Adapted | partial | dict | list | tuple | set)
        return holds or isinstance(getattr(one, "__self__", None), dspy.Module)

    modules = [part for part in parts if isinstance(part, dspy.Module) and not isinstance(part, dspy.Predict)]
    held = (value for module in modules for value in vars(module).values())
    return (one for one in (*parts, *held) if not is_copied(one))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _passages(found: Any, name: str) -> list[Passage]:
    """Whatever a retriever gives as passages."""
    columns: dict[str, Any] = {}
    if hasattr(found, "passages"):  # a dspy.Prediction, with scores and places beside its passages
        columns = {"pid": getattr(found, "indices", None), "score": getattr(found, "scores", None)}
        found = found.passages
    found = [] if found is None else [found] if isinstance(found, str | Mapping) else found
    if not isinstance(found, Iterable):
        raise RaisfError(f"the retriever {name} gives {found!r:.80}: give a list of strings, mappings or objects")
    passages = []
    for place, item in enumerate(found):
        beside = {key: values[place] for key, values in columns.items() if values is not None and place < len(values)}
        passages.append(_passage(item, beside, name))
    return passages


def _passage(item: Any, beside: Mapping[str, Any], name: str) -> Passage:
    if isinstance(item, Passage):
        return item

    def of(*keys: str) -> Any:
        if isinstance(item, str):
            return next((beside[key] for key in keys if key in beside), None)
        got = (item.get(key) if isinstance(item, Mapping) else getattr(item, key, None) for key in keys)
        return next((value for value in got if value is not None), next((beside[k] for k in keys if k in beside), None))

    text = item if isinstance(item, str) else of(*_TEXTS)
    if not isinstance(text, str):
        raise RaisfError(
            f"the retriever {name} gives {item!r:.80} as a passage: a passage is a string, or has one of "
            + ", ".join(_TEXTS)
        )
    title = of("title")
    # ColBERT's collections begin a passage with its title.
    if title is None and not isinstance(item, str) and of("long_text") == text and " | " in text:
        title, text = text.split(" | ", 1)
    pid, score = of("pid", "id"), of("score")
    return Passage(
        hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16] if pid is None else str(pid),
        text,
        str(title or ""),
        _score(score, name),
    )


def _score(given: Any, name: str) -> float | None:
    try:
        score = None if given is None else float(given)
    except (TypeError, ValueError):
        raise RaisfError(f"the retriever {name} gives {given!r:.80} as a score: a score is a number, or None") from None
    return score if score is None or math.isfinite(score) else None  # nothing to weigh by, and JSON has no word for it


def _caller_of(given: Any) -> Callable[[str, int], Any]:
    """How it is called with a query and how many passages to find; with the query alone where it takes no more."""
    # A dspy.Module is called with anything, and its `forward` says with what.
    forward = getattr(type(given), "forward", None)
    try:
        parameters = list(inspect.signature(given if forward is None else forward).parameters.values())
    except (TypeError, ValueError):
        return partial(_with_query, given)
    others = parameters[1 if forward is None else 2 :]
    # One of these names, else the first that must be given. A number of another name may be a page, or seconds.
    found = [one for name in _COUNTS for one in others if one.name == name]
    found += [one for one in others if one.kind is inspect.Parameter.VAR_KEYWORD]
    found += [one for one in others if one.default is inspect.Parameter.empty]
    count = next((one for one in found if one.kind is not inspect.Parameter.VAR_POSITIONAL), None)
    if count is None:
        return partial(_of_embeddings if isinstance(given, dspy.Embeddings) else _with_query, given)
    if count.kind is inspect.Parameter.POSITIONAL_ONLY:
        return given
    name = "k" if count.kind is inspect.Parameter.VAR_KEYWORD else count.name
    return partial(_with_count, given, name)


def _with_query(given: Any, query: str, k: int) -> Any:
    return given(query)


def _with_count(given: Any, name: str, query: str, k: int) -> Any:
    return given(query, **{name: k})


def _of_embeddings(given: Any, query: str, k: int) -> Any:
    """What `dspy.Embeddings` find: as many as they were made for, so that for more they are asked through a copy."""
    if k <= given.k:
        return given(query)
    made = copy.copy(given)
    made.k, made.search_fn = k, lambda asked: made._batch_forward([asked])[0]
    return made(query)


def _name_of(given: Any) -> str:
    named = given if hasattr(given, "__qualname__") else type(given)
    return f"{named.__module__}.{named.__qualname__}"


def _known_of(given: Any) -> str:
    """What can be known of a retriever: never its address in memory, which is another in each process.

    Of a method that is its object's settings, of a partial what it was given, too.
    """
    known = [_known_of(given.func) if isinstance(given, partial) else _name_of(given)]
    for name, value in sorted(_held_by(given).items()):
        if name.startswith("_") or not isinstance(value, str | int | float | bool | list | tuple):
            continue
        if isinstance(value, list | tuple) and not all(isinstance(item, str) for item in value):
            continue
        known.append(f"{name}={value!r}")
    return "\n".join(known)


def _parts_of(given: Any, met: set[int]) -> Iterator[Any]:
    """A retriever and what it holds that can be called, too; what a `Retriever` holds its own hash tells."""
    if not callable(given) or isinstance(given, type) or id(given) in met:
        return
    met.add(id(given))
    yield given
    if isinstance(given, Retriever):
        return
    for value in [getattr(given, "func", None), *_held_by(given).values()]:
        held = list(value.values()) if isinstance(value, dict) else value
        for part in held if isinstance(held, list | tuple) else [held]:
            yield from _parts_of(part, met)


def _held_by(given: Any) -> dict[str, Any]:
    if isinstance(given, partial):
        return {str(place): one for place, one in enumerate(given.args)} | given.keywords
    held = getattr(given.__self__ if inspect.ismethod(given) else given, "__dict__", {})
    if isinstance(given, dspy.Retrieve):
        return {name: one for name, one in held.items() if name != "stage"}  # drawn anew for each object
    return held


def _asks_rm(one: Any) -> bool:
    return getattr(type(one), "forward", None) is dspy.Retrieve.forward
