"""The limit of open files is raised as far as the system lets a process, on a Mac too."""

import resource
import subprocess
import sys
from typing import Any

import pytest

from raisf.utils.open_files import WANTED, raise_open_files

FREE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("now", "most", "further", "then"),
    [
        (256, FREE, 10_240, 10_240),  # a Mac, whose further limit nobody tells
        (256, FREE, 300, 256),
        (1_024, FREE, FREE, WANTED[0]),
        (1_024, 4_096, FREE, 4_096),
        (256, 20_000, 10_240, 10_240),
        (1_024, 1_048_576, FREE, WANTED[0]),
        (FREE, FREE, FREE, FREE),
        (100_000, FREE, FREE, 100_000),
    ],
)
def test_as_many_files_as_may_be(now: int, most: int, further: int, then: int, monkeypatch: Any) -> None:
    held = [(now, most)]

    def take(_: int, limits: tuple[int, int]) -> None:
        if further != FREE and limits[0] > further:
            raise ValueError("not allowed to raise maximum limit")
        held.append(limits)

    monkeypatch.setattr(resource, "getrlimit", lambda _: held[-1])
    monkeypatch.setattr(resource, "setrlimit", take)
    raise_open_files()
    assert held[-1] == (then, most)


def test_a_command_raises_it() -> None:
    least = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1)
    code = f"""import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, ({least}, hard))
from raisf import cli
cli.main(["--version"])
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout.split()[-1]) > least
