"""The commands on indexes as a person uses them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from raisf import cli
from raisf.retrieval.index import build_index, open_index
from raisf.utils.leftovers import make_partial_folder
from tests.raisf.conftest import run_json


@pytest.fixture
def index(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "chess.txt").write_text("Chess is a board game for two players.")
    (docs / "rivers.md").write_text("# Rivers\n## Danube\nIt flows into the Black Sea.")
    assert cli.main(["index", str(docs), "--engine", "bm25", "--out", str(tmp_path / "index")]) == 0
    return tmp_path / "index"


def test_whoever_waits_for_documents_to_be_read_is_shown_how_many_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "docs").mkdir()
    for name in ("a", "b", "empty"):
        (tmp_path / "docs" / f"{name}.txt").write_text("" if name == "empty" else f"About {name}.")
    for progress in (True, False):  # made, and then brought up to date
        build_index(tmp_path / "docs", tmp_path / str(progress), "bm25", progress=progress)
        assert ("reading documents" in (shown := capsys.readouterr().err)) == progress == ("3/3" in shown)
    (tmp_path / "docs" / "b.txt").write_text("About b and more.")
    assert cli.main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "True")]) == 1
    assert re.search("reading documents .* 2/2", capsys.readouterr().err)


def test_an_index_is_added_to_reduced_and_looked_at(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "go.txt").write_text("Go is a board game, too.")
    assert run_json(capsys, "index", "add", index, tmp_path / "go.txt")["added"] == 1
    info = run_json(capsys, "index", "info", index)
    assert (info["engine"], info["passages"], info["documents"]) == ("bm25", 3, 3)
    removed = run_json(capsys, "index", "remove", index, "--where", "source = 'chess.txt'")
    assert (removed["removed"], removed["passages"]) == (1, 2)
    assert "checked" in run_json(capsys, "index", "check", index)
    again = run_json(capsys, "index", tmp_path / "docs", "--engine", "bm25", "--out", index)
    assert (again["passages"], again["documents"]) == (2, 2)


def test_a_document_that_takes_anothers_place_is_named(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "chess.txt").write_text("Chess is played in Velm.")
    assert run_json(capsys, "index", "add", index, tmp_path / "docs")["replaced"] == []
    assert cli.main(["index", "add", str(index), str(tmp_path / "chess.txt")]) == 0
    assert re.search(r"replaced +chess\.txt", capsys.readouterr().out)


def test_a_document_that_comes_beside_one_of_its_name_in_another_folder_is_told(tmp_path: Path, capsys, caplog):
    (tmp_path / "docs" / "games").mkdir(parents=True)
    file = tmp_path / "docs" / "games" / "chess.txt"
    file.write_text("Chess is a board game for two players.")
    index = tmp_path / "index"
    run_json(capsys, "index", tmp_path / "docs", "--engine", "bm25", "--out", index)
    file.write_text("Chess is played in Velm.")
    assert run_json(capsys, "index", "add", index, file)["passages"] == 2
    assert "added chess.txt beside games/chess.txt; both stay" in caplog.text
    assert f"raisf index DOCS --out {index}" in caplog.text
    assert run_json(capsys, "index", tmp_path / "docs", "--out", index)["passages"] == 1
    caplog.clear()
    run_json(capsys, "index", "add", index, tmp_path / "docs")
    assert "beside" not in caplog.text


def test_documents_that_an_index_loses_are_told(index: Path, tmp_path: Path, capsys, caplog):
    (tmp_path / "go.txt").write_text("Go is a board game, too.")
    run_json(capsys, "index", "add", index, tmp_path / "go.txt")
    again = ["index", tmp_path / "docs", "--engine", "bm25", "--out", index]
    run_json(capsys, *again)
    (told,) = [record.getMessage() for record in caplog.records if "gone from" in record.getMessage()]
    assert "as not in" in told and ": go.txt (" in told and "raisf index add" in told
    caplog.clear()
    run_json(capsys, *again)
    assert "gone from" not in caplog.text


def test_that_nothing_has_changed_and_what_was_skipped_is_told(index: Path, tmp_path: Path, capsys):
    (tmp_path / "docs" / "a.odt").write_text("x")
    again = ["index", str(tmp_path / "docs"), "--out", str(index)]
    assert cli.main(again) == 1
    told = capsys.readouterr().out
    assert re.search(r"changed +nothing", told) and "skipped 1 file:" in told
    (tmp_path / "docs" / "a.odt").rename(tmp_path / "docs" / "a.markdown")
    assert run_json(capsys, *again)["changed"] is True


def test_adding_strictly_stops_at_the_first_file_that_cannot_be_read(index: Path, tmp_path: Path, capsys):
    (tmp_path / "docs" / "a.odt").write_text("x")
    added = ["index", "add", str(index), str(tmp_path / "docs")]
    assert cli.main(added) == 1
    capsys.readouterr()
    assert cli.main([*added, "--strict"]) == 2
    assert "a.odt" in capsys.readouterr().err


@pytest.mark.parametrize("action", [[], ["add"]])
def test_texts_are_read_in_the_encoding_that_is_told(index: Path, tmp_path: Path, action: list[str]):
    (tmp_path / "docs" / "chess.txt").write_bytes("Schach heißt auf Isländisch skák.".encode("latin-1"))
    folders = [str(index), str(tmp_path / "docs")] if action else [str(tmp_path / "docs"), "--out", str(index)]
    assert cli.main(["index", *action, *folders]) == 1
    assert cli.main(["index", *action, *folders, "--encoding", "latin-1"]) == 0
    assert "heißt" in open_index(index)("skák", 1)[0].text


# A command for each place after the last option, in one process: what it prints and returns, with a zero byte between.
IN_TURN = """
import sys
from raisf import cli
for number, out in enumerate(sys.argv[-1].split("|")):
    print("\\0" * number, end="")
    print("\\0" * number, end="", file=sys.stderr)
    print(cli.main([*sys.argv[1:-1], out]), end="")
"""


@pytest.mark.parametrize("mode", [0o000, 0o311, 0o644])
def test_a_folder_that_cannot_be_read_is_named_and_its_documents_stay(index: Path, tmp_path: Path, mode: int):
    """000 can be neither listed nor entered, 311 not listed, 644 not entered."""
    capabilities = "-dac_override,-dac_read_search"
    humbly = ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"] if os.geteuid() == 0 else []
    if humbly and not shutil.which("setpriv"):
        pytest.skip("root reads every folder")
    docs = tmp_path / "docs"
    make = [*humbly, sys.executable, "-c", IN_TURN, "index", docs, "--engine", "bm25", "--json", "--out"]
    (docs / "b" / "deep").mkdir(parents=True)
    (docs / "b" / "go.txt").write_text("Go is a board game, too.")
    (docs / "b" / "deep" / "hex.txt").write_text("Hex is a board game, too.")
    assert cli.main(["index", str(docs), "--engine", "bm25", "--out", str(index)]) == 0
    (docs / "chess.txt").unlink()
    try:
        (docs / "b").chmod(mode)
        ran = subprocess.run([*make, f"{index}|{tmp_path / 'i'}"], capture_output=True, text=True)
    finally:
        (docs / "b").chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    for said, documents in zip(ran.stdout.split("\0"), (3, 1), strict=True):
        printed, _, code = said.rpartition("\n")
        told = json.loads(printed)
        assert code == "1" and told["documents"] == documents
        assert "Permission denied" in told["skipped"][0]["reason"] and told["skipped"][0]["name"].startswith("b")
    assert "chess.txt (to add" in ran.stderr.partition("\0")[0]


def test_an_index_behind_a_link_is_replaced_where_it_stands(index: Path, tmp_path: Path, capsys):
    (tmp_path / "link").symlink_to(index)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "go.txt").write_text("Go is a board game, too.")
    for engine in ("bm25", "dense"):  # changed in its place, and made anew
        told = run_json(capsys, "index", tmp_path / "other", "--out", tmp_path / "link", "--engine", engine)
        assert told["documents"] == 1 and (tmp_path / "link").is_symlink()
        assert run_json(capsys, "index", "info", index)["engine"] == engine


def test_a_filter_that_no_passage_satisfies_is_told(index: Path, capsys: pytest.CaptureFixture[str], caplog):
    asked = ["ask", "Which sea?", "--program", "rag", "--lm", "pocket", "--index", str(index), "--where"]
    told = f"no passage of {index} satisfies --where 'line = 3000'"
    for condition, times in (("line > 0", 0), ("line = 3000", 1), ("line = 3000", 1)):  # a second program says no more
        assert cli.main([*asked, condition]) == 0
        assert caplog.text.count(told) == times


def test_what_is_wrong_is_one_clear_line(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "more.txt").write_text("Graz is a city on the Mur.")
    mistakes = {
        "satisfies": ["index", "remove", index, "--where", "id = 'nobody'"],
        "no passage has a field 'sauce'": ["index", "remove", index, "--where", "sauce = 'x'"],
        "no index at": ["index", "add", tmp_path / "nowhere", tmp_path / "more.txt"],
        "is not an index": ["index", "info", tmp_path],
        "--search does nothing with --engine dense": [
            "index",
            tmp_path,
            "--out",
            index,
            "--engine",
            "dense",
            "--search",
            "exact",
        ],
        "no index server answers at http://127.0.0.1:9": ["ask", "Who?", "--index", "http://127.0.0.1:9"],
        "user name or password before '127.0.0.1:9'": ["ask", "Who?", "--index", "http://me:secret@127.0.0.1:9"],
        "before '127.0.0.1:8', which is not sent": ["ask", "Who?", "--index", "HTTP://me:secret@127.0.0.1:8"],
        "ftp:// leads to no index": ["ask", "Who?", "--index", "ftp://me:secret@h"],
        "'--out': found an address": ["index", tmp_path, "--out", "http://me:secret@h"],
        "a query or fragment behind 'http://h:9'": ["ask", "Who?", "--index", "http://h:9?key=secret"],
        "before '127.0.0.1:9/x', which is not sent: leave it out, and give": [
            *("index", "push", index, "qdrant+http://me:secret@127.0.0.1:9/x"),
        ],
        "found an address: give the file or folder": ["index", "info", "http://me:secret@127.0.0.1:9"],
        "the program is an address": ["ask", "Who?", "--program", "http://me:secret@h", "--index", index],
        "the checkpoint is an address": [
            *("index", tmp_path, "--out", tmp_path / "new", "--checkpoint", "http://me:secret@h"),
        ],
        "--where without --index": ["ask", "Who?", "--program", "direct", "--where", "page = 3"],
        "cannot read the filter ''": ["ask", "Who?", "--program", "rag", "--index", index, "--where", ""],
        "is not a ColBERT checkpoint": ["index", tmp_path, "--out", tmp_path / "new", "--checkpoint", ""],
        "cannot listen at 127.0.0.1, port 99999": ["serve-index", index, "--port", "99999"],
    }
    for message, argv in mistakes.items():
        assert cli.main([str(word) for word in argv]) == 2
        shown = capsys.readouterr()
        assert message in shown.err and "Traceback" not in shown.err and shown.out == ""
        assert "secret" not in shown.err


def test_a_damaged_index_does_not_pass_the_check(index: Path, capsys: pytest.CaptureFixture[str]):
    file = next(index.rglob("passages.jsonl"))
    file.write_text(file.read_text().replace("Chess", "Cheese"))
    assert cli.main(["index", "check", str(index)]) == 2
    assert "passages.jsonl has" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["add", "remove", "info", "check", "push"])
def test_every_action_explains_itself(action: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["index", action, "--help"]) == 0
    assert f"raisf index {action} indexes/mine" in capsys.readouterr().out.split("examples:")[1]


def test_documents_in_a_folder_named_like_an_action_can_be_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "add").mkdir()
    (tmp_path / "add" / "a.txt").write_text("Text.")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["index", "./add", "--engine", "bm25", "--out", "i"]) == 0


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_served_index_answers_until_it_is_told_to_stop(ending: signal.Signals, index: Path):
    command = [sys.executable, "-m", "raisf.cli", "serve-index", str(index), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert server.stderr is not None
        (url,) = re.findall(r"http://[\d.:]+", next(line for line in server.stderr if "serving" in line))
        with urllib.request.urlopen(f"{url}/?query=board+game&k=3", timeout=30) as response:
            assert json.loads(response.read())["topk"][0]["pid"] == "chess.txt#1"
        server.send_signal(ending)
        out, err = server.communicate(timeout=60)
    finally:
        server.kill()
    assert server.returncode == 0 and json.loads(out)["queries"] == 1 and "Traceback" not in err


def test_an_index_made_again_keeps_its_engine_and_its_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog
):
    """Without --engine it became a ColBERT index, with all there is encoded anew."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "go.txt").write_text("Go is a board game.")
    for engine, more in (("bm25", []), ("hybrid", ["--search", "exact"])):
        made = ["index", tmp_path / "docs", "--out", tmp_path / engine]
        assert run_json(capsys, *made, "--engine", engine, *more)["engine"] == engine
        (tmp_path / "docs" / f"{engine}.txt").write_text("Chess is one, too.")
        before = sorted(path.name for path in (tmp_path / engine / "segments").iterdir())
        again = run_json(capsys, *made)
        assert again["engine"] == engine and (engine == "bm25" or again["search"] == "exact")
        after = sorted(path.name for path in (tmp_path / engine / "segments").iterdir())
        assert set(before) < set(after), "what was there is not encoded again"
    assert cli.main(["index", str(tmp_path / "docs"), "--out", str(tmp_path / "bm25"), "--checkpoint", "minilm"]) == 2
    assert "--checkpoint does nothing with --engine bm25" in capsys.readouterr().err
    made = run_json(capsys, "index", tmp_path / "docs", "--out", tmp_path / "bm25", "--engine", "dense")
    assert made["engine"] == "dense"
    assert "was an index for bm25: it is made anew, for dense" in caplog.text


def test_two_that_make_one_index_do_not_replace_each_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The last to end won in silence, after minutes of work of both."""
    (tmp_path / "go.txt").write_text("Go is a board game.")
    argv = ["index", str(tmp_path / "go.txt"), "--engine", "bm25", "--out", str(tmp_path / "new")]
    with make_partial_folder(tmp_path / "new"):
        assert cli.main(argv) == 2
        assert "another process is making the index" in capsys.readouterr().err
    assert cli.main(argv) == 0
