"""A lock keeps a second process out, and must not keep the first out where there are no locks."""

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest

from raisf.evaluation.records import open_records
from raisf.utils.errors import InputError
from raisf.utils.files import locked

SAID = {"program": {}, "test": {}}


def test_a_second_one_is_kept_out(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", "taken"),
        pytest.raises(InputError, match="taken"),
        locked(tmp_path / "lock", "taken"),
    ):
        pass
    with (
        open_records(tmp_path / "r.jsonl", SAID),
        pytest.raises(InputError, match="another evaluation"),
        open_records(tmp_path / "r.jsonl", SAID),
    ):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_that_knows_no_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unknown(*_: Any) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", unknown)
    entered = []
    with locked(tmp_path / "lock", "taken"):
        entered.append("lock")
    with open_records(tmp_path / "r.jsonl", SAID):
        entered.append("records")
    assert entered == ["lock", "records"]
