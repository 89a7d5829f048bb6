"""`raisf experiment` again in a folder: after a mistake, on more questions, by other orders of the same answers."""

import pytest

from raisf import cli


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Two small closed worlds."""
    folder = tmp_path_factory.mktemp("data")
    for seed in (7, 8):
        argv = ["world", "--seed", str(seed), "--entities", "300", "--train", "4", "--dev", "4", "--test", "4"]
        assert cli.main([*argv, "--out", str(folder / str(seed))]) == 0
    return folder


def test_a_mistake_does_not_bind_a_folder_to_its_data(worlds, tmp_path, capsys):
    """The folder held nothing, and was refused for the data that were meant."""
    argv = ["--engine", "bm25", "--lm", "pocket", "--n", "2", "--out", str(tmp_path / "out")]
    assert cli.main(["experiment", "table1", "--data", str(worlds / "8"), "--only", "nonsense", *argv]) == 2
    assert cli.main(["experiment", "table1", "--data", str(worlds / "7"), "--only", "rag", *argv]) == 0
    assert cli.main(["experiment", "table1", "--data", str(worlds / "8"), "--only", "rag", *argv]) == 2
    assert "holds experiments on other data" in capsys.readouterr().err
