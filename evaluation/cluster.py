"""Questions asked on the nodes of a Ray cluster; what comes back is kept here, by one process, as if asked here.

A task is a chunk of questions on one node, where it is alone: a model in the process computes with all of the node's
CPUs, and on a GPU of it where it has one. The program travels as Ray sends things, pickled: an index as its folder,
which every node finds under the same path, a model in the process as the name and hash of its weights, an endpoint as
its address without the key, which a node reads from its own environment. A chunk whose node dies is asked again
elsewhere, as a whole; nothing of it had come back, so nothing is lost and nothing is there twice.
"""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from raisf.evaluation.local_lms import lms_of
from raisf.evaluation.outcome import Outcome
from raisf.evaluation.runner import Patience, ask_here, asked_by
from raisf.lm.failures import too_long
from raisf.lm.local.model import LocalLM
from raisf.utils.cluster import connect_ray
from raisf.utils.errors import LMError, RaisfError

CHUNK = 32
"""Questions of a task at most: what a node that dies takes along."""
TRIES = 5
"""How often a chunk may be lost, with its node or its process, before it is the chunk's fault."""
REST_SECONDS = 30.0
"""A node that lost a chunk is left alone for so long: one that died counts as alive for some seconds more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What a node asks: the program, the settings of DSPy that hold, and what to call in each process before."""

    program: Callable[..., dspy.Prediction]
    settings: dict[str, Any]
    prepare: Callable[[], Any] | None


@dataclass(frozen=True, slots=True)
class Failure:
    """What of an error travels back from a node: not every exception survives being pickled."""

    name: str
    text: str
    of_lm: bool
    exit_code: int
    too_long: bool

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """The part of an error that travels."""
        code = getattr(error, "exit_code", 1)
        return cls(type(error).__name__, str(error), isinstance(error, LMError), code, too_long(error))

    def error(self) -> RaisfError:
        """An error with the name, text and exit code of the original."""
        kind: Any = type(self.name, (LMError if self.of_lm else RaisfError,), {})
        error = kind(self.text)
        error.exit_code, error.too_long = self.exit_code, self.too_long
        return error


@contextlib.contextmanager
def on_cluster(address: str, prepare: Callable[[], Any] | None = None) -> Iterator[None]:
    """As a context: `ask_all`, and so `evaluate` and the collecting of labels, ask on the nodes of a cluster.

    Args:
        address: `HOST:PORT` of its head, `ray://HOST:PORT` from outside, or `auto`.
        prepare: Called once in each process that asks, such as for a limit of calls. Must be picklable.

    Raises:
        InputError: Ray is not installed, or no cluster answers there.
    """
    ray = connect_ray(address)
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
        judge: Callable[[Outcome], Outcome] | None,
    ) -> None:
        """As `raisf.evaluation.runner.ask_here`; each node has one chunk at a time, and asks with so many threads.

        `judge` is called in this process, for one outcome at a time.
        """
        names = ("lm", "adapter", "rm")
        settings = {name: value for name in names if (value := getattr(dspy.settings, name)) is not None}
        try:
            work = self._ray.put(Work(program, settings, self._prepare))
        except Exception as error:  # whatever pickling it raises
            logger.warning("asked here, since it cannot be sent to the nodes: %r (%s)", program, error)
            return ask_here(program, examples, keep, threads=threads, judge=judge)
        computes, patience = _in_process(program), Patience()

        def start(node: str, resources: dict[str, float], chunk: range) -> Any:
            rows = [(at, examples[at].question) for at in chunk]
            return self._start(node, work, rows, threads, resources if computes else {})

        size = max(1, min(CHUNK, -(-len(examples) // (2 * max(1, len(self._nodes()))))))
        chunks = [range(first, min(first + size, len(examples))) for first in range(0, len(examples), size)]
        with contextlib.closing(self._answers(chunks, start)) as answers:
            for found, error in answers:
                for at, prediction, failure, seconds, cost in found:
                    outcome = Outcome(examples[at], prediction, failure and failure.error(), seconds, cost)
                    outcome = outcome if judge is None else judge(outcome)
                    keep(outcome)
                    patience.saw(outcome)  # a chunk may have too few questions for its node to give up
                if error is not None:
                    raise error.error()

    def _answers(
        self, waiting: list[range], start: Callable[[str, dict[str, float], range], Any]
    ) -> "Generator[tuple[_Rows, Failure | None]]":
        """The results of the chunks as they come: a free node takes the next chunk, a lost chunk goes to another node.

        Args:
            waiting: The chunks.
            start: Starts a chunk on a node with these resources.
        """
        ray, lost = self._ray, Counter[int]()
        rests: dict[str, float] = {}
        running: dict[Any, tuple[str, range]] = {}
        try:
            while waiting or running:
                nodes, now = self._nodes(), time.monotonic()
                busy = {node for node, _ in running.values()} | {node for node, until in rests.items() if until > now}
                for node in [node for node in nodes if node not in busy][: len(waiting)]:
                    chunk = waiting.pop(0)
                    running[start(node, nodes[node], chunk)] = node, chunk
                if not nodes and not running:
                    raise RaisfError("the Ray cluster has no node left: start one, and run the same command again")
                if not running:
                    time.sleep(1)
                    continue
                done, _ = ray.wait(list(running), num_returns=1, timeout=5)
                for one in done:
                    node, chunk = running.pop(one)
                    try:
                        found = ray.get(one)
                    except ray.exceptions.RayTaskError as failed:
                        raise RaisfError(f"a node cannot ask the program: {failed.cause}") from failed
                    except ray.exceptions.RayError as gone:
                        lost[chunk.start] += 1
                        if lost[chunk.start] >= TRIES:
                            raise RaisfError(f"some questions end every process that asks them: {gone}") from gone
                        rests[node] = time.monotonic() + REST_SECONDS
                        waiting.insert(0, chunk)
                        continue
                    yield found
        finally:
            for one in running:  # Ctrl-C, or an error: what is under way is of no use to anybody
                ray.cancel(one, force=True)

    def _start(
        self, node: str, work: Any, rows: list[tuple[int, str]], threads: int, resources: dict[str, float]
    ) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore[reportMissingImports]

        options: dict[str, Any] = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
        if resources.get("GPU", 0) >= 1:
            options["num_gpus"] = 1  # of a task that asks for none, some versions of Ray hide them
        # One CPU is asked for: a task that asks for all would wait for as long as anything else runs on the node.
        return self._answer.options(**options).remote(work, rows, threads, int(resources.get("CPU", 0)))

    def _nodes(self) -> dict[str, dict[str, float]]:
        """The resources of each node that is alive and has a CPU for a task."""
        found = {node["NodeID"]: node["Resources"] for node in self._ray.nodes() if node["Alive"]}
        return {node: resources for node, resources in found.items() if resources.get("CPU", 0) >= 1}


def _in_process(program: Any) -> bool:
    """Whether a model that it asks computes in its process."""
    return any(isinstance(lm, LocalLM) for lm in (*lms_of(program), dspy.settings.lm))


_Rows = list[tuple[int, dspy.Prediction | None, Failure | None, float, dict[str, int]]]
_latest: list[Work] = []


def answer(work: Work, rows: list[tuple[int, str]], threads: int, cpus: int = 0) -> tuple[_Rows, Failure | None]:
    """Asks some questions in a process of a node.

    Args:
        work: What is asked.
        rows: The questions and their numbers.
        threads: Questions at a time.
        cpus: PyTorch computes with so many; 0 for as many as it takes by itself, which in a process of Ray's is one.

    Returns:
        Their numbers, predictions, errors, seconds and costs; and why it was given up, if it was.
    """
    if not _latest and work.prepare is not None:
        work.prepare()
    if cpus:
        import torch

        torch.set_num_threads(cpus)
    _latest[:] = [work]  # the index of the next chunk's copy is this one, as long as it is held
    found: _Rows = []
    examples = [dspy.Example(at=at, question=question) for at, question in rows]

    def keep(outcome: Outcome) -> None:
        failure = None if outcome.error is None else Failure.of(outcome.error)
        found.append((outcome.example.at, outcome.prediction, failure, outcome.seconds, outcome.cost))

    try:
        with dspy.context(**work.settings):
            ask_here(work.program, examples, keep, threads=threads)
    except RaisfError as error:
        return found, Failure.of(error)
    return found, None
