"""Searches that come from many threads: what arrives while an index searches is searched together next."""

import itertools
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from raisf.retrieval.engines.base import Index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.protocol import MOST_QUERIES


@dataclass
class _Job:
    """Queries on their way, and where what they find goes."""

    queries: list[str]
    k: int
    where: str | None
    found: Future[tuple[Index, list[list[Passage]]]] = field(default_factory=Future)


class Batcher:
    """Searches an index for many threads.

    A lone query waits for nothing. Batches are of one filter and one k, on which it depends what an approximate search
    finds: what a query finds never depends on who else asks.

    Attributes:
        index: The index; another may be put in its place at any time.
        queries: Searched so far.
        batches: In so many goes.
    """

    def __init__(self, index: Index):
        self.index = index
        self.queries = self.batches = 0
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="search", daemon=True)
        self._worker.start()

    def submit(self, queries: list[str], k: int, where: str | None) -> Future[tuple[Index, list[list[Passage]]]]:
        """The passages for each query, and the index in which they were found, to come.

        It may be cancelled until its search begins. It fails with an InputError where `k` is below 1, or `where` is no
        filter of the passages.
        """
        job = _Job(queries, k, where)
        self._waiting.put(job)
        return job.found

    def close(self, seconds: float) -> None:
        """Answers what waits, then stops; returns after so many seconds at the latest."""
        self._waiting.put(None)
        self._worker.join(seconds)

    def _work(self) -> None:
        while self._answer(self._waiting.get()):
            pass

    def _answer(self, first: _Job | None) -> bool:
        """Searches for a job and those that wait behind it; whether more may come.

        It holds what was found no longer than that: an old index would else stay in memory until somebody asks again.
        """
        jobs = [first]
        while sum(len(job.queries) for job in jobs if job) < MOST_QUERIES and not self._waiting.empty():
            jobs.append(self._waiting.get())
        groups: dict[tuple[str | None, int], list[_Job]] = {}
        for job in filter(None, jobs):
            if not job.found.set_running_or_notify_cancel():
                continue
            groups.setdefault((job.where, job.k), []).append(job)
        for group in groups.values():
            self._search(group)
        return None not in jobs

    def _search(self, jobs: list[_Job]) -> None:
        """Searches for jobs of one filter and k; where that fails, for each alone, so that only the bad one does."""
        index, queries = self.index, [query for job in jobs for query in job.queries]
        try:
            rows = iter(index.search_many(queries, jobs[0].k, jobs[0].where))
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].found.set_exception(error)
            else:
                for job in jobs:
                    self._search([job])
            return
        self.queries += len(queries)
        self.batches += 1
        for job in jobs:
            job.found.set_result((index, list(itertools.islice(rows, len(job.queries)))))
