"""Questions asked on the nodes of a Ray cluster; what comes back is kept here, by one process, as if asked here.

A task is a chunk of questions on one node. The program travels pickled: an index as its folder, which every node finds
under the same path, a model in the process as the name and hash of its weights, an endpoint as its address without the
key, which a node reads from its own environment. A chunk whose node dies is asked again elsewhere, as a whole; nothing
of it had come back, so nothing is lost and nothing is there twice.
"""

import contextlib
import hashlib
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import dspy

from raisf.evaluation.runner import Outcome, ask_here, asked_by
from raisf.utils.errors import InputError, RaisfError

CHUNK = 32
"""Questions of a task at most: what a node that dies takes along."""
TRIES = 3
"""How often a chunk may take its process down on nodes that live on, before it is the chunk's fault."""

logger = logging.getLogger(__name__)

_Rows = list[tuple[int, Any, Exception | None, float]]


@contextlib.contextmanager
def on_cluster(address: str, prepare: Callable[[], Any] | None = None) -> Iterator[None]:
    """As a context: `ask_all`, and so `evaluate` and the collecting of labels, ask on the nodes of a cluster.

    Args:
        address: `HOST:PORT` of its head, `ray://HOST:PORT` from outside, or `auto`.
        prepare: Called once in each process that asks, such as for a limit of calls. Must be picklable.

    Raises:
        InputError: Ray is not installed, or no cluster answers there.
    """
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray: pip install 'raisf[ray]', here and on every node") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise InputError(f"no Ray cluster at {address!r} ({error}): start one with `ray start --head`") from error
    try:
        with asked_by(_Cluster(ray, prepare).ask):
            yield
    finally:
        ray.shutdown()


class _Cluster:
    def __init__(self, ray: Any, prepare: Callable[[], Any] | None) -> None:
        self._ray, self._prepare = ray, prepare
        self._answer = ray.remote(max_retries=0, max_calls=0)(answer)

    def ask(
        self,
        program: Callable[..., dspy.Prediction],
        examples: Sequence[dspy.Example],
        keep: Callable[[Outcome], None],
        *,
        threads: int,
        inputs: Sequence[str],
    ) -> None:
        """As `raisf.evaluation.runner.ask_here`; one chunk a node at a time, each with so many threads."""
        ray = self._ray
        if (work := _packed(program, self._prepare)) is None:
            return ask_here(program, examples, keep, threads=threads, inputs=inputs)
        packed = ray.put(work)
        nodes = self._nodes()
        size = max(1, min(CHUNK, -(-len(examples) // (2 * max(1, len(nodes))))))
        waiting = [list(range(start, min(start + size, len(examples)))) for start in range(0, len(examples), size)]
        broken: dict[int, int] = {}
        running: dict[Any, tuple[str, list[int]]] = {}
        try:
            while waiting or running:
                nodes = self._nodes()
                busy = {node for node, _ in running.values()}
                for node in [node for node in nodes if node not in busy][: len(waiting)]:
                    chunk = waiting.pop(0)
                    rows = [(at, {name: examples[at][name] for name in inputs}) for at in chunk]
                    running[self._start(node, packed, rows, threads)] = node, chunk
                if not running:
                    raise RaisfError("the Ray cluster has no node left: start one, and run the same command again")
                done, _ = ray.wait(list(running), num_returns=1, timeout=5)
                for one in done:
                    node, chunk = running.pop(one)
                    try:
                        found, error = ray.get(one)
                    except ray.exceptions.RayTaskError as failed:
                        raise RaisfError(f"a node cannot ask the program: {failed.cause}") from failed
                    except ray.exceptions.RayError as lost:
                        if node in self._nodes():
                            broken[chunk[0]] = broken.get(chunk[0], 0) + 1
                        if broken.get(chunk[0], 0) >= TRIES:
                            raise RaisfError(
                                f"questions end the process that asks them, on every node: {lost}"
                            ) from lost
                        waiting.insert(0, chunk)
                        continue
                    for at, prediction, failure, seconds in found:
                        keep(Outcome(examples[at], prediction, failure, seconds))
                    if error is not None:
                        raise error
        finally:
            for one in running:  # Ctrl-C, or an error: what is under way is of no use to anybody
                ray.cancel(one, force=True)

    def _start(self, node: str, packed: Any, rows: list[tuple[int, dict[str, Any]]], threads: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore[reportMissingImports]

        here = NodeAffinitySchedulingStrategy(node, soft=False)
        return self._answer.options(scheduling_strategy=here).remote(packed, rows, threads)

    def _nodes(self) -> list[str]:
        """Those that are alive and have a CPU for a task."""
        return [node["NodeID"] for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def answer(packed: bytes, rows: list[tuple[int, dict[str, Any]]], threads: int) -> tuple[_Rows, RaisfError | None]:
    """Asks some questions in a process of a node.

    Args:
        packed: The program and its settings.
        rows: The questions' numbers and the program's arguments.
        threads: Questions at a time.

    Returns:
        Their numbers, predictions, errors and seconds; and why it was given up, if it was.
    """
    program, settings = _unpacked(packed)
    found: _Rows = []
    examples = [dspy.Example(at=at, given=given) for at, given in rows]

    def keep(outcome: Outcome) -> None:
        error = outcome.error if outcome.error is None or _travels(outcome.error) else RaisfError(str(outcome.error))
        found.append((outcome.example.at, outcome.prediction, error, outcome.seconds))

    try:
        with dspy.context(**settings):
            ask_here(lambda given: program(**given), examples, keep, threads=threads, inputs=("given",))
    except RaisfError as error:
        return found, error
    return found, None


_opened: dict[str, tuple[Any, dict[str, Any]]] = {}


def _packed(program: Any, prepare: Callable[[], Any] | None) -> bytes | None:
    """The program and what of DSPy's settings it is asked under; None for what lives in this process alone."""
    import cloudpickle

    settings = {name: value for name in ("lm", "adapter") if (value := getattr(dspy.settings, name)) is not None}
    try:
        return cloudpickle.dumps((program, settings, prepare))
    except Exception as error:
        logger.warning("asked here, since it cannot be sent to the nodes: %r (%s)", program, error)
        return None


def _unpacked(packed: bytes) -> tuple[Any, dict[str, Any]]:
    """What was packed; opened once a process, with its model and its index."""
    name = hashlib.sha256(packed).hexdigest()
    if name not in _opened:
        _opened.clear()
        program, settings, prepare = pickle.loads(packed)
        if prepare is not None:
            prepare()
        _opened[name] = program, settings
    return _opened[name]


def _travels(error: Exception) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True
