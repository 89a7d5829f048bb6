"""Many clients at once: no answer is wrong or another's."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_sixty_four_clients_get_their_own_answers() -> None:
    """The bench fails on a wrong answer; some of its clients are slow, and some leave."""
    command = [sys.executable, "-m", "bench.serving", "--seconds", "10"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0 and " 0 wrong" in run.stdout, run.stdout + run.stderr
