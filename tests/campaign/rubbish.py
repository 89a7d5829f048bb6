"""Replies and documents that are made to be misread."""

import time
from pathlib import Path

from campaign.kills import Tally
from promises import hostile, hostile_documents

from raisf.retrieval.corpus.bounds import seconds_for
from raisf.retrieval.corpus.documents import Document, Skipped
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.reading import read_whole

REPLIES = 100_000


def misread_replies(home: Path, work: Path, seconds: float, seed: int) -> list[Tally]:
    """Reads hostile replies in all formats: none may become a verdict, list or answer that it does not hold.

    Args:
        home: Not used.
        work: Not used.
        seconds: After which no more are read, if not all have been.
        seed: Of the replies.
    """
    tally, end = Tally("replies"), time.monotonic() + seconds
    for reply in hostile.replies(seed, REPLIES):
        tally.tried += 1
        try:
            wrong = hostile.misread(reply)
        except Exception as error:
            tally.crashed += 1
            tally.notes.append(f"{reply.form}: {reply.text[:100]!r} raises {error!r:.200}")
            continue
        if wrong:
            tally.wrong += 1
            tally.notes.append(wrong)
        if time.monotonic() > end:
            break
    return [tally]


def read_documents(home: Path, work: Path, seconds: float, seed: int) -> list[Tally]:
    """Reads hostile documents: each must be read, or skipped with a reason, within seconds.

    Args:
        home: Not used.
        work: Where they are written.
        seconds: For how long new ones are made.
        seed: Of the first; the others' follow.
    """
    tally, end = Tally("documents"), time.monotonic() + seconds
    work.mkdir(parents=True, exist_ok=True)
    number = seed * 1_000_000
    while time.monotonic() < end:
        number += 1
        tally.tried += 1
        file = hostile_documents.make(number, work)
        skipped: list[Skipped] = []
        start = time.process_time()
        try:
            for passage in read_whole([Document(file.name, file)], skipped.append, SeenIds()):
                passage.text.encode()
        except Exception as error:
            tally.crashed += 1
            tally.notes.append(f"{file.name}: {error!r:.200}")
        if any(not one.reason or "Traceback" in one.reason for one in skipped):
            tally.wrong += 1
            tally.notes.append(f"{file.name}: skipped without a reason that a person can read")
        # The limit is the reader's; keeping what it gives may take as long again.
        if (took := time.process_time() - start) > 2 * seconds_for(file.stat().st_size):
            tally.lost += 1
            tally.notes.append(f"{file.name}: {took:.0f} s")
        file.unlink()
    return [tally]
