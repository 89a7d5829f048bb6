"""DSPy's callbacks, for nodes and searches too: what observes a program gets its tree, not only its modules and LMs."""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import dspy
from dspy.utils.callback import BaseCallback, with_callbacks

from raisf.programs.trace import Node
from raisf.retrieval.passage import Passage

logger = logging.getLogger(__name__)


class RunCallback(BaseCallback):
    """A DSPy callback that is also told of nodes and searches; `dspy.configure(callbacks=[...])` takes it.

    The start and the end of one are called in the same thread and context as what happens between them.
    """

    def on_node_start(self, call_id: str, node: Node) -> None:
        """A question of the tree is worked on from now."""

    def on_node_end(self, call_id: str, node: Node, exception: BaseException | None) -> None:
        """The work on it is over; the exception, if any, goes on its way."""

    def on_search_start(self, call_id: str, query: str, k: int) -> None:
        """The retriever is called."""

    def on_search_end(self, call_id: str, passages: Sequence[Passage] | None, exception: BaseException | None) -> None:
        """It has answered, or failed."""


def observed_program(program: dspy.Module, question: str, answer: Callable[[], dspy.Prediction]) -> dspy.Prediction:
    """The answer of a program that is run without `__call__`, observed by DSPy's callbacks as a call would be."""

    @with_callbacks
    def called(instance: dspy.Module, question: str) -> dspy.Prediction:
        return answer()

    return called(program, question)


@contextmanager
def observed_node(node: Node) -> Iterator[None]:
    """The work on a node."""
    listeners, call_id, exception = _listeners(), uuid.uuid4().hex, None
    for one in listeners:
        _notify(one.on_node_start, call_id, node)
    try:
        yield
    except BaseException as error:
        exception = error
        raise
    finally:
        for one in reversed(listeners):
            _notify(one.on_node_end, call_id, node, exception)


def observed_search(retriever: Callable[[str, int], list[Passage]], query: str, k: int) -> list[Passage]:
    """The passages that a retriever finds."""
    listeners, call_id, found, exception = _listeners(), uuid.uuid4().hex, None, None
    for one in listeners:
        _notify(one.on_search_start, call_id, query, k)
    try:
        found = retriever(query, k)
        return found
    except BaseException as error:
        exception = error
        raise
    finally:
        for one in reversed(listeners):
            _notify(one.on_search_end, call_id, found, exception)


def _listeners() -> list[RunCallback]:
    return [one for one in dspy.settings.get("callbacks") or [] if isinstance(one, RunCallback)]


def _notify(handler: Callable[..., None], *arguments: object) -> None:
    """Call an observer. As in DSPy, one that fails costs a warning, never the answer."""
    try:
        handler(*arguments)
    except Exception as error:
        logger.warning("a callback failed (%s: %s)", type(error).__name__, error)
