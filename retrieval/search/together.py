"""Work that threads ask for one by one and that is cheaper in batches: what comes during one goes into the next."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class MicroBatcher(Generic[Item, Result]):
    """Calls a function of many items for the callers of several threads.

    A lone caller waits for nothing and does its own work. Who comes while another works waits; the next of those that
    wait takes all that is there.

    Args:
        work: From items to their results, in the same order.
        most: Items that are worked on at once; 1 where what becomes of an item would depend on the others.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]], most: int = 32) -> None:
        self._work, self._most = work, most
        self._waiting: list[tuple[Sequence[Item], Future[Sequence[Result]]]] = []
        self._arriving, self._working = threading.Lock(), threading.Lock()

    def __call__(self, items: Sequence[Item]) -> Sequence[Result]:
        """The results for some items."""
        parts = (items[start : start + self._most] for start in range(0, len(items), self._most))
        return [result for part in parts for result in self._done(part)]

    def _done(self, items: Sequence[Item]) -> Sequence[Result]:
        mine: Future[Sequence[Result]] = Future()
        with self._arriving:
            self._waiting.append((items, mine))
        while not mine.done():
            with self._working:
                if mine.done():
                    break
                jobs = self._taken()
                try:
                    self._do(jobs)
                finally:  # Ctrl-C strikes one thread: what it had taken for others is theirs again
                    with self._arriving:
                        self._waiting[:0] = [job for job in jobs if not job[1].done()]
        return mine.result()

    def _taken(self) -> list[tuple[Sequence[Item], "Future[Sequence[Result]]"]]:
        """The first that wait, at least one, up to so many items."""
        with self._arriving:
            count = total = 0
            for items, _ in self._waiting:
                total += len(items)
                if count and total > self._most:
                    break
                count += 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            return taken

    def _do(self, jobs: list[tuple[Sequence[Item], "Future[Sequence[Result]]"]]) -> None:
        """Does some jobs together; where that fails, each alone, so that only the bad one fails."""
        try:
            found = self._work([item for items, _ in jobs for item in items])
        except Exception as error:
            if len(jobs) == 1:
                jobs[0][1].set_exception(error)
                return
            for job in jobs:
                self._do([job])
            return
        start = 0
        for items, future in jobs:
            future.set_result(found[start : start + len(items)])
            start += len(items)
