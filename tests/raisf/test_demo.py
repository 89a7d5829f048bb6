"""The demo, small: what `make demo` runs."""

import json

import pytest

from raisf import cli
from raisf.experiments.demo import DEMO_SYSTEMS


@pytest.mark.slow
def test_the_demo_compares_all_systems_and_a_second_run_only_reads(tmp_path, capsys):
    argv = ["demo", "--out", str(tmp_path / "demo"), "--questions", "6", "--engine", "bm25"]
    assert cli.main(argv) == 0
    shown = capsys.readouterr()
    assert "One question's tree" in shown.out
    assert "raisf compile" in shown.err
    first = json.loads((tmp_path / "demo/report-bm25/results.json").read_text())
    assert set(first["programs"]) == set(DEMO_SYSTEMS)
    assert all(report["em"]["n"] == 6 for report in first["programs"].values())
    assert cli.main([*argv, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["programs"] == first["programs"]
    assert "stands already" in again.err
