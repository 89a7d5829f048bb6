"""If these failed, a sweep could take away what another thread or process has just begun to write."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from raisf.utils import leftovers
from raisf.utils.leftovers import make_partial_file, make_partial_folder, own, sweep


@pytest.mark.parametrize(("make", "maker"), [(make_partial_folder, "mkdtemp"), (make_partial_file, "mkstemp")])
def test_what_a_sweep_has_its_hand_on_is_left_to_it(
    make: Callable, maker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep comes between the making and the locking, and takes away what it has locked only later."""
    first, kept = list[Path](), getattr(tempfile, maker)
    with ExitStack() as sweeping:

        def made(**names):
            result = kept(**names)
            if not first:
                first.append(Path(result if isinstance(result, str) else result[1]))
                assert sweeping.enter_context(own(first[0]))
            return result

        monkeypatch.setattr(tempfile, maker, made)
        with make(tmp_path / "written") as mine:
            shutil.rmtree(first[0]) if first[0].is_dir() else first[0].unlink()  # so goes on the sweep
            assert mine.exists() and mine != first[0]
            assert sweep(tmp_path / "written") and mine.exists()


@pytest.mark.parametrize("make", [make_partial_folder, make_partial_file])
def test_a_file_system_that_knows_no_locks_is_written_and_never_swept(
    make: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*args) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(leftovers.fcntl, "flock", no_locks)
    with make(tmp_path / "written") as mine:
        assert not sweep(tmp_path / "written"), "nobody can tell, and a leftover would keep everybody out for ever"
        assert mine.exists()


@pytest.mark.parametrize("make", [make_partial_folder, make_partial_file])
def test_what_cannot_be_opened_to_be_locked_is_written_all_the_same_and_not_made_again_and_again(
    make: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def too_many(path, flags, *args, **options):
        if str(path).endswith(leftovers.PARTIAL) and not flags & os.O_CREAT:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", too_many)
    with make(tmp_path / "written") as mine:
        assert list(tmp_path.iterdir()) == [mine]
