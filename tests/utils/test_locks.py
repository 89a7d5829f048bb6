"""A lock keeps a second process out, and must not keep the first out where there are no locks."""

import errno
import fcntl
import os
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


def test_a_group_may_lock_what_it_may_write(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with locked(tmp_path / "lock", "taken"):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_a_lock_of_another_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(InputError, match=r"lock cannot be written .* ask whose it is"):
        locked(tmp_path / "lock", "taken").__enter__()


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
