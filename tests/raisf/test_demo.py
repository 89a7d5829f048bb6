"""The demo, small: what `make demo` runs."""

import pytest
from rich.console import Console

from raisf.commands.demo import SYSTEMS, run_demo


@pytest.mark.slow
def test_the_demo_compares_all_systems_and_a_second_run_only_reads(tmp_path, capsys):
    first = run_demo(tmp_path / "demo", questions=6, engine="bm25")
    assert set(first.data["programs"]) == set(SYSTEMS)
    assert all(report["em"]["n"] == 6 for report in first.data["programs"].values())
    Console().print(first.view)
    shown = capsys.readouterr()
    assert "One question's tree" in shown.out
    assert "raisf compile" in shown.err
    again = run_demo(tmp_path / "demo", questions=6, engine="bm25")
    assert again.data["programs"] == first.data["programs"]
    assert "stands already" in capsys.readouterr().err
