"""A documents folder from a stranger shows nothing that lies outside of it, and models from one run no code."""

import ast
import errno
import json
import os
from pathlib import Path

import pytest

from raisf.retrieval.corpus.documents import Skipped
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.encoders.checkpoint import refuse_code
from raisf.retrieval.index import build_index
from raisf.utils.errors import InputError

ROOT = Path(__file__).parents[2]
SOURCES = ("programs", "signatures", "optimize", "data", "retrieval", "lm", "evaluation", "utils", "src/raisf", "bench")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / "a.txt").write_text("Inside.")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("Secret.")
    return tmp_path / "docs"


def test_links_that_leave_the_folder_are_skipped_and_named(docs: Path):
    links = {
        "passwd.txt": "/etc/passwd",
        "relative.txt": "../outside/secret.txt",
        "sub/folder": "../../outside",
        "sub/twice.txt": "../relative.txt",
        "nowhere.txt": "gone.txt",
        "loop.txt": "loop.txt",
    }
    for name, target in links.items():
        (docs / name).symlink_to(target)
    skipped: list[Skipped] = []
    index = build_index(docs, docs.parent / "i", "bm25", skip=skipped.append)
    assert [p.text for p in index.passages] == ["Inside."]
    assert sorted(file.name for file in skipped) == sorted(links)
    assert all("a link" in file.reason for file in skipped)
    assert [p.text for p in read_documents(docs)] == ["Inside."]


def test_links_within_the_folder_are_followed_to_files(docs: Path):
    (docs / ".store").mkdir()
    (docs / ".store" / "b1f0").write_text("Kept.")  # as programs do that keep versions of large files
    (docs / "sub" / "kept.txt").symlink_to("../.store/b1f0")
    assert [p.pid for p in read_documents(docs)] == ["a.txt#1", "sub/kept.txt#1"]


def test_a_link_to_a_file_that_is_read_where_it_is_does_not_double_its_passages(docs: Path):
    (docs / "sub" / "again.txt").symlink_to("../a.txt")
    (docs / "0.txt").symlink_to("sub/again.txt")
    (docs / "LICENSE").write_text("Free.")  # of no kind: read by its link alone
    (docs / "licence.txt").symlink_to("LICENSE")
    skipped: list[Skipped] = []
    index = build_index(docs, docs.parent / "i", "bm25", skip=skipped.append)
    assert [p.pid for p in index.passages] == ["a.txt#1", "licence.txt#1"]
    assert [file.name for file in skipped] == ["LICENSE"]


def test_a_link_whose_target_is_away_keeps_its_passages(docs: Path):
    """A store of versions that is not there for a day took its documents out of the index."""
    (docs / ".store").mkdir()
    (docs / ".store" / "b1f0").write_text("Kept.")
    (docs / "kept.txt").symlink_to(".store/b1f0")
    build_index(docs, docs.parent / "i", "bm25")
    (docs / ".store").rename(docs.parent / "away")
    skipped: list[Skipped] = []
    index = build_index(docs, docs.parent / "i", skip=skipped.append)
    assert sorted(p.text for p in index.passages) == ["Inside.", "Kept."]
    assert [(file.name, file.reason) for file in skipped] == [
        ("kept.txt", "a link that leads nowhere; mend or delete it; what the index has of it stays")
    ]
    (docs / "kept.txt").unlink()
    assert [p.text for p in build_index(docs, docs.parent / "i").passages] == ["Inside."]


def test_a_file_that_its_disk_cannot_look_at_keeps_its_passages(docs: Path, monkeypatch: pytest.MonkeyPatch):
    (docs / "b.txt").write_text("Beside it.")
    build_index(docs, docs.parent / "i", "bm25")
    (docs / "b.txt").write_text("New.")
    lstat = Path.lstat

    def failing(path: Path) -> os.stat_result:
        if path.name == "a.txt":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", failing)
    skipped: list[Skipped] = []
    index = build_index(docs, docs.parent / "i", skip=skipped.append)
    assert sorted(p.text for p in index.passages) == ["Inside.", "New."]
    assert "a.txt" in [file.name for file in skipped] and "Input/output error" in skipped[0].reason


def test_the_folder_itself_and_a_file_that_is_named_may_be_links(docs: Path):
    (docs.parent / "link").symlink_to(docs)
    (docs.parent / "file.txt").symlink_to(docs.parent / "outside" / "secret.txt")
    assert [p.pid for p in read_documents(docs.parent / "link")] == ["a.txt#1"]
    assert [p.text for p in read_documents(docs.parent / "file.txt")] == ["Secret."]


def test_what_is_no_file_is_never_waited_for(docs: Path):
    os.mkfifo(docs / "pipe.txt")
    skipped: list[Skipped] = []
    build_index(docs, docs.parent / "i", "bm25", skip=skipped.append)
    assert [(file.name, file.reason) for file in skipped] == [("pipe.txt", "no regular file")]


def test_no_model_is_opened_with_its_own_code():
    calls = []
    for folder in SOURCES:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained":
                    given = {keyword.arg: keyword.value for keyword in node.keywords}
                    said = given.get("trust_remote_code")
                    calls.append((f"{file}:{node.lineno}", isinstance(said, ast.Constant) and said.value is False))
    assert len(calls) >= 5 and [place for place, safe in calls if not safe] == []


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_checkpoint_that_brings_code_is_refused(file: str, tmp_path: Path):
    (tmp_path / file).write_text(json.dumps({"auto_map": {"AutoTokenizer": "evil.Tokenizer"}}))
    with pytest.raises(InputError, match="brings its own code"):
        refuse_code(tmp_path, "stranger")
