"""A process that answers for hours holds no more memory than it needs."""

import os
import sys
from pathlib import Path

import pytest

from raisf.lm.local import memory


def resident() -> int:
    """This process's, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.skipif(sys.platform != "linux" or memory.c_function("malloc_trim") is None, reason="needs glibc's malloc")
def test_freed_memory_between_what_stays_is_given_back(monkeypatch):
    """SmolLM2 under 32 questions at a time had grown to 10 GB after half an hour."""
    freed, now = memory.FreedMemory(), memory.time.monotonic()
    blocks = [bytearray(b"x" * 100_000) for _ in range(2_000)]
    stay = blocks[::50]
    del blocks
    held = resident()
    freed.give_back()
    assert resident() > held - 20, "not at every step: what is given back must be fetched again"
    monkeypatch.setattr(memory.time, "monotonic", lambda: now + memory.SECONDS + 1)
    freed.give_back()
    assert resident() < held - 100 and len(stay) == 40
