"""An index can be added to, reduced and refreshed, and then answers as a new one would."""

import itertools
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from raisf.retrieval.corpus.documents import Document, Skipped, stop
from raisf.retrieval.index import (
    Change,
    EngineName,
    add_to_index,
    build_index,
    check_index,
    index_info,
    open_folder,
    remove_from_index,
)
from raisf.retrieval.passage import Passage
from raisf.retrieval.store import writer
from raisf.retrieval.store.manifest import MANIFEST, read_manifest
from raisf.utils.errors import InputError
from tests.retrieval.conftest import ENGINES, NEW, copy

Form = Literal["NFC", "NFD"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "rivers.md").write_text("# Rivers\n## Danube\nIt flows into the Black Sea.\n## Rhine\nIt does not.")
    (folder / "games.txt").write_text("Chess is a board game for two players.")
    (folder / "rows.jsonl").write_text('{"id": "r1", "text": "One heron.", "year": 1999}\n{"id": "r2", "text": "Owl."}')
    return folder


def tops(index_folder: Path, queries: list[str]) -> list[list[tuple[str, float]]]:
    index = open_folder(index_folder)
    return [[(p.pid, p.score or 0) for p in row] for row in index.search_many(queries, 20)]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_added_is_found_and_what_is_removed_is_not(engine: EngineName, made: dict[str, Path], tmp_path: Path):
    path = copy(made, engine, tmp_path)
    before = open_folder(path)
    assert add_to_index(path, [NEW], progress=False) == Change(1, 0, 13)
    assert open_folder(path)("harpsichord strings", 1)[0].pid == "new"
    assert "new" not in [p.pid for p in before("harpsichord strings", 20)]  # an open handle is a snapshot
    assert remove_from_index(path, "title = 'Chess' or id = 'new'") == Change(0, 2, 11)
    after = open_folder(path)
    for query, where in itertools.product(("harpsichord strings", "chess game king"), (None, "id != ''")):
        assert not {"new", "p8"} & {p.pid for p in after(query, 20, where)}
    assert len(after.passages) == len(after.passages_where("id != ''")) == 11 and check_index(path) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_changed_index_answers_as_a_new_one_would(
    engine: EngineName, made: dict[str, Path], passages: list[Passage], tmp_path: Path
):
    path = copy(made, engine, tmp_path)
    changed = Passage("p3", "Penicillin was discovered by Ernest Duchesne already in 1897.", "Penicillin")
    assert add_to_index(path, [changed, NEW, passages[0]], progress=False) == Change(2, 1, 13)
    remove_from_index(path, "id in ('p5', 'p6')")
    rest = [p for p in passages if p.pid not in ("p3", "p5", "p6")]
    build_index([*rest, changed, NEW], tmp_path / "fresh", engine, progress=False)
    queries = ["Who discovered penicillin?", "music", "sea"]
    for row, fresh in zip(tops(path, queries), tops(tmp_path / "fresh", queries), strict=True):
        # Batches differ, and with them what a text is padded to and how bfloat16 rounds.
        assert dict(row) == pytest.approx(dict(fresh), abs=0.05)
    assert read_manifest(path).corpus_sha256 == read_manifest(tmp_path / "fresh").corpus_sha256
    assert read_manifest(path).corpus_sha256 != read_manifest(made[engine]).corpus_sha256


@pytest.mark.parametrize("engine", ["colbert", "bm25"])
def test_a_changed_folder_is_read_and_encoded_only_where_it_changed(
    engine: EngineName, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "index"
    build_index(docs, path, engine, progress=False)
    before = (path / MANIFEST).read_bytes()
    build_index(docs, path, engine, progress=False)
    assert (path / MANIFEST).read_bytes() == before
    written = []
    write = writer.write_segment

    def noting(index: Path, name: str, passages: Iterator[Passage], *rest):
        return write(index, name, (written.append(p.pid) or p for p in passages), *rest)

    monkeypatch.setattr(writer, "write_segment", noting)
    (docs / "games.txt").unlink()
    (docs / "rivers.md").write_text("# Rivers\n## Danube\nIt flows into the Black Sea.\n## Rhine\nIt flows north.")
    (docs / "rows.jsonl").write_text('{"id": "r1", "text": "One heron.", "year": 1999}\n{"id": "r3", "text": "Kite."}')
    (docs / "more.txt").write_text("More.")
    index = build_index(docs, path, engine, progress=False)
    assert sorted(written) == ["more.txt#1", "r3", "rivers.md#2"]
    assert sorted(p.pid for p in index.passages) == ["more.txt#1", "r1", "r3", "rivers.md#1", "rivers.md#2"]
    monkeypatch.undo()
    fresh = build_index(docs, tmp_path / "fresh", engine, progress=False)
    assert fresh.corpus_hash == index.corpus_hash
    assert read_manifest(path).documents == read_manifest(tmp_path / "fresh").documents


def test_another_engine_or_encoding_is_not_mixed_into_an_old_index(docs: Path, tmp_path: Path):
    build_index(docs, tmp_path / "i", "bm25")
    build_index(docs, tmp_path / "i", "dense", progress=False)
    assert read_manifest(tmp_path / "i").kind == "dense"
    (docs / "rivers.md").write_bytes("Ober\xf6sterreich".encode("latin-1"))
    with pytest.raises(InputError, match=r"rivers\.md"):
        build_index(docs, tmp_path / "i", "dense", progress=False, skip=stop)
    index = build_index(docs, tmp_path / "i", "dense", encoding="latin-1", progress=False)
    assert "Oberösterreich" in [p.text for p in index.passages]
    index = build_index(docs, tmp_path / "i", "dense", encoding="cp1251", progress=False)
    assert "Oberцsterreich" in [p.text for p in index.passages], "the same bytes, read otherwise"


def test_a_row_of_which_only_a_field_changed_is_found_by_what_it_says_now(docs: Path, tmp_path: Path):
    build_index(docs, tmp_path / "i", "bm25", progress=False)
    rows = docs / "rows.jsonl"
    rows.write_text(rows.read_text().replace("1999", "2000"))
    index = build_index(docs, tmp_path / "i", "bm25", progress=False)
    assert [p.pid for p in index.passages_where("year = 2000")] == ["r1"] and len(index.passages) == 5


@pytest.mark.parametrize(
    "states", [*itertools.product(["good", "empty", "unreadable", "gone"], repeat=2)], ids="-".join
)
def test_a_document_that_was_empty_unreadable_or_gone_comes_back(states: tuple[str, str], docs: Path, tmp_path: Path):
    file = docs / "games.txt"
    contents = {"good": file.read_bytes(), "empty": b" \n", "unreadable": b"Chess \xff", "gone": None}
    build_index(docs, tmp_path / "i", "bm25", progress=False)
    shown = True
    for state in (*states, "good"):
        if (content := contents[state]) is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(content)
        shown = {"good": True, "empty": False, "unreadable": shown, "gone": False}[state]
        index = build_index(docs, tmp_path / "i", "bm25", progress=False, skip=lambda _: None)
        assert ("games.txt" in {passage.source for passage in index.passages}) == shown
        assert set(read_manifest(tmp_path / "i").documents) == {passage.source for passage in index.passages}


def test_an_index_that_is_made_anew_says_what_it_loses(docs: Path, tmp_path: Path):
    build_index(docs, tmp_path / "i", "bm25", progress=False)
    (docs / "games.txt").write_bytes(b"\xff\xfe\xfd")
    (docs / "new.txt").write_bytes(b"\xff\xfe\xfd")
    (docs / "empty.txt").write_text("")
    skipped: dict[str, str] = {}
    next((tmp_path / "i").rglob("passages.jsonl")).write_text("")  # damaged, so that it is made anew
    build_index(docs, tmp_path / "i", progress=False, skip=lambda file: skipped.update({file.name: file.reason}))
    assert skipped.keys() == {"games.txt", "new.txt", "empty.txt"}
    lost = [
        name for name, reason in skipped.items() if "what the index had of it is gone, as it is made anew" in reason
    ]
    assert lost == ["games.txt"]


def test_documents_are_added_beside_others_and_replace_those_of_their_name(docs: Path, tmp_path: Path):
    path = tmp_path / "index"
    build_index(docs, path, "bm25")
    (tmp_path / "games.txt").write_text("Go is a board game, too.")
    assert add_to_index(path, tmp_path / "games.txt") == Change(1, 1, 5)
    (tmp_path / "clash.jsonl").write_text('{"id": "r1", "text": "Another."}')
    with pytest.raises(InputError, match=r"'r1' comes twice: rows\.jsonl, line 1 .*and clash\.jsonl, line 1"):
        add_to_index(path, tmp_path / "clash.jsonl")
    assert check_index(path) == [] and len(open_folder(path).passages) == 5
    # A document that lost passages comes back whole when its folder is indexed again.
    remove_from_index(path, "source = 'rows.jsonl' and year = 1999")
    assert len(build_index(docs, path, "bm25").passages) == 5


@pytest.mark.parametrize(("old", "new"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_document_is_the_same_however_the_letters_of_its_name_are_composed(
    old: Form, new: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A copy that a Mac had made stood beside the one that it was to replace."""

    def unreadable(document: Document) -> str:
        raise InputError(f"{document.name} is locked")

    forms: dict[str, Form] = {"docs": old, "more": new}
    for place, form in forms.items():
        (tmp_path / place).mkdir()
        (tmp_path / place / unicodedata.normalize(form, "café.txt")).write_text(f"Of {place}.")
    build_index(tmp_path / "docs", tmp_path / "i", "bm25", progress=False)
    assert add_to_index(tmp_path / "i", tmp_path / "more", progress=False) == Change(1, 1, 1)
    (passage,) = open_folder(tmp_path / "i").passages
    assert passage.source == unicodedata.normalize(new, "café.txt")
    assert list(read_manifest(tmp_path / "i").documents) == [passage.source]
    broken = tmp_path / "docs" / unicodedata.normalize(old, "café.txt")
    broken.write_bytes(b"\xff\xfe\xfd")
    (tmp_path / "docs" / "tea.txt").write_text("Of tea.")
    skipped: list[Skipped] = []
    add_to_index(tmp_path / "i", broken.parent, progress=False, skip=skipped.append)
    build_index(broken.parent, tmp_path / "i", progress=False, skip=skipped.append)
    monkeypatch.setattr(Document, "fingerprint", unreadable)
    build_index(broken.parent, tmp_path / "i", progress=False, skip=skipped.append)
    assert {found.text for found in open_folder(tmp_path / "i").passages} == {"Of more.", "Of tea."}
    assert len(skipped) == 4 and all("its older version stays in the index" in file.reason for file in skipped)


def test_an_empty_folder_adds_nothing_in_silence_to_no_index(made: dict[str, Path], tmp_path: Path):
    """A mistyped name of a folder that exists looked like documents added: "added 0", exit code 0."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"nothing is in .*empty: give a file, or a folder with documents"):
        add_to_index(copy(made, "bm25", tmp_path), tmp_path / "empty", progress=False)


def test_passages_that_take_the_place_of_a_documents_are_taken_back_when_it_is_indexed_again(
    docs: Path, tmp_path: Path
):
    path = tmp_path / "index"
    whole = build_index(docs, path, "bm25").corpus_hash
    for passage in (
        Passage("games.txt#1", "Go is a board game, too."),
        Passage("games.txt#2", "Go is a board game, too.", source="games.txt"),
    ):
        add_to_index(path, [passage])
        assert [p.pid for p in open_folder(path)("go", 1)] == [passage.pid]
        assert build_index(docs, path, "bm25").corpus_hash == whole


def test_many_small_additions_are_merged_without_encoding_again(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = copy(made, "colbert", tmp_path)
    monkeypatch.setattr(writer, "MOST_SEGMENTS", 2)
    largest = (path / "segments" / "1" / "passages.jsonl").stat().st_ino
    for number in range(4):
        add_to_index(path, [Passage(f"n{number}", f"Number {number} is a harpsichord.")], progress=False)
        assert index_info(path)["segments"] <= 3
    # The large one is not copied for the sake of a few passages: that could take hours, and the disk twice.
    assert (path / "segments" / "1" / "passages.jsonl").stat().st_ino == largest
    remove_from_index(path, "title = 'Chess'")
    index = open_folder(path)
    assert len(index.passages) == index.manifest.passages == 15
    assert {p.pid for p in index("harpsichord", 4)} == {f"n{number}" for number in range(4)}
    assert index("Who wrote Hamlet?", 1)[0].title == "Hamlet" and check_index(path) == []


def test_nothing_left_is_refused_and_nothing_changes(made: dict[str, Path], tmp_path: Path):
    path = copy(made, "bm25", tmp_path)
    with pytest.raises(InputError, match="nothing would be left"):
        remove_from_index(path, "id != ''")
    assert remove_from_index(path, "id = 'nobody'") == Change(0, 0, 12)
    assert check_index(path) == [] and len(open_folder(path).passages) == 12


@pytest.mark.parametrize("engine", ENGINES)
def test_filters_hold_for_every_engine(engine: EngineName, docs: Path, tmp_path: Path):
    index = build_index(docs, tmp_path / "i", engine, progress=False)
    found = index("Which river flows into the sea? Chess, owl and heron.", 10, where="source = 'rivers.md'")
    assert {p.source for p in found} == {"rivers.md"}
    one = index("river owl heron chess", 10, where="year > 1990")
    assert [(p.pid, p.metadata["year"], p.citation) for p in one] == [("r1", 1999, "rows.jsonl, line 1")]
    assert index("heron", 10, where="source = 'nowhere'") == []
    with pytest.raises(InputError, match="no passage has a field 'yaer'"):
        index("heron", 10, where="yaer = 1999")
    view = index.where("year = 1999")
    assert [p.pid for p in view("heron owl", 5)] == ["r1"] == [p.pid for p in view.search_many(["heron"], 5)[0]]
    assert view.corpus_hash not in (index.corpus_hash, index.where("id = 'r2'").corpus_hash) and view.path is None


def test_every_changed_byte_is_noticed_by_check(made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("raisf.retrieval.store.manifest.SMALL", 0)
    path = copy(made, "colbert", tmp_path)
    for file in [file for file in path.rglob("*") if file.is_file() and file.name != MANIFEST]:
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        (problem,) = check_index(path)
        assert problem == f"{file.relative_to(path).as_posix()} has changed since the index was made"
        file.write_bytes(whole)
    assert check_index(path) == []


@pytest.mark.slow
def test_what_is_added_to_a_compressed_index_is_found_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Slow where colbert-ai's C++ extensions were never compiled."""
    monkeypatch.setattr(writer, "EXACT_UP_TO", 20)
    texts = [f"In the year {1000 + n}, the duke of {chr(65 + n % 26)}ville had {n % 97} horses." for n in range(120)]
    passages = [Passage(str(n), text, metadata={"n": n}) for n, text in enumerate(texts)]
    path = tmp_path / "i"
    build_index(passages[:80], path, search="plaid", checkpoint="minilm", progress=False)
    assert index_info(path)["search"] == "plaid"
    add_to_index(path, passages[80:100], progress=False)
    assert index_info(path)["search"] == "exact + plaid"
    remove_from_index(path, "n = 7 or n = 90")
    index = open_folder(path)
    for n in (3, 79, 80, 99):
        assert index(texts[n], 1)[0].pid == str(n)  # in its own words: packed vectors part similar questions too little
    assert not {"7", "90"} & {p.pid for p in index("year 1007 and year 1090", 200)}
    assert {p.pid for p in index("the duke in 1003", 200, where="n < 5 or n = 98")} == {"0", "1", "2", "3", "4", "98"}
    add_to_index(path, passages[100:], progress=False)
    info = index_info(path)
    assert (info["search"], info["segments"], info["passages"]) == ("plaid", 2, 118) and check_index(path) == []
    assert open_folder(path)("How many horses had the duke in 1110?", 1)[0].pid == "110"


def test_a_document_that_lost_a_passage_is_read_again_though_it_is_as_it_was(tmp_path: Path):
    """A passage whose id another file took for a while was gone for good."""
    docs, path = tmp_path / "docs", tmp_path / "index"
    docs.mkdir()

    def ids(one: str, other: str) -> set[str]:
        (docs / "c.csv").write_text(f"id,text\n{one}")
        (docs / "f.csv").write_text(f"id,text\n{other}")
        build_index(docs, path, "bm25", progress=False, skip=lambda file: None)
        return {passage.pid for passage in open_folder(path).passages}

    assert ids("1,a\n", "2,b\n3,c\n") == {"1", "2", "3"}
    assert ids("1,a\n2,other\n", "2,b\n3,changed\n") == {"1", "2", "3"}, "f.csv is skipped, and keeps what it can"
    assert ids("1,a\n", "2,b\n3,c\n") == {"1", "2", "3"}
