"""`raisf programs`, where a user finds what can be compared."""

import json

from raisf import cli
from raisf.programs.registry import PROGRAMS


def test_every_program_is_listed_with_what_it_does_and_its_source(capsys):
    assert cli.main(["programs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["programs"]
    assert tuple(program["name"] for program in listed) == tuple(PROGRAMS)
    assert all("arXiv" in program["source"] and program["summary"] for program in listed)
    assert next(program for program in listed if program["name"] == "ircot")["options"]["max_passages"] == 15


def test_a_person_sees_a_table(capsys):
    assert cli.main(["programs"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in PROGRAMS)


def test_a_terminal_that_tells_of_no_columns_is_shown_all(capsys, monkeypatch):
    """Nothing was shown, with exit code 0."""
    monkeypatch.setenv("COLUMNS", "0")
    assert cli.main(["programs"]) == 0
    assert "ra-isf" in capsys.readouterr().out
