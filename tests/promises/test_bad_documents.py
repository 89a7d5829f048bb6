"""One bad document never ends a folder: it is skipped and named, and costs seconds at most."""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from raisf import cli
from raisf.retrieval.corpus.documents import Document, Skipped, stop
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.kinds import KINDS
from raisf.retrieval.corpus.reading import read_whole
from raisf.retrieval.index import add_to_index, build_index, open_folder, remove_from_index
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError

pytest.importorskip("docx", reason="needs the extra documents")
pytest.importorskip("pypdf", reason="needs the extra documents")

GOOD = "Chess is a board game for two players."
Write = Callable[[str, bytes], Path]


@pytest.fixture(scope="module")
def hostile() -> Iterator[ModuleType]:
    """hostile_documents.py, which lies beside this file."""
    spec = spec_from_file_location("hostile_documents", Path(__file__).parent / "hostile_documents.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with one good document, the last in the order of names."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "z.txt").write_text(GOOD)
    return tmp_path / "docs"


def indexed(docs: Path, out: Path | None = None) -> tuple[list[str], dict[str, str]]:
    """The texts of a folder's index, and what was skipped."""
    skipped: list[Skipped] = []
    index = build_index(docs, out or docs.parent / "index", "bm25", progress=False, skip=skipped.append)
    return [p.text for p in index.passages], {file.name: file.reason for file in skipped}


def bad(hostile: ModuleType) -> dict[str, tuple[bytes, str]]:
    """Documents that cannot be read, and what is said of them."""
    merged = hostile.table(1, '<w:tcPr><w:vMerge w:val="sideways"/></w:tcPr>')
    return {
        "cut.docx": (hostile.docx(hostile.paragraph("text"))[:400], "not a docx file"),
        "xml.docx": (hostile.docx("", **{"word/document.xml": "<w:document"}), "not a docx file"),
        "parts.docx": (hostile.docx("", **{"_rels/.rels": ""}), "not a docx file"),
        "deep.docx": (hostile.docx("<w:tbl><w:tr><w:tc>" * 400 + merged), "not a docx file"),
        "bomb.docx": (hostile.docx(hostile.paragraph("a" * (60 << 20))), "times as large"),
        "cut.pdf": (hostile.pdf(b"BT (a) Tj ET")[:60], "not a pdf file"),
        "scan.pdf": (hostile.pdf(b""), "only pictures perhaps"),
        "escape.html": (b'<meta charset="unicode_escape"><p>\\ud800', "'unicode_escape', which is unknown"),
        "seven.html": (b'<meta charset="utf-7"><p>+2AA-', "'utf-7', which is unknown"),
        "deep.html": (b"<div>" * 20_000 + b"words" + b"</div>" * 20_000, "Excessive depth"),
        "latin.txt": (b"caf\xe9", "not utf-8"),
        "latin.rst": (b"caf\xe9", "not utf-8"),
        "include.rst": (b".. include:: z.txt\n\n.. csv-table::\n   :file: z.txt\n", "has no text"),
        "empty.mdx": (b'import A from "a"\n\n<A/>\n', "has no text"),
        "broken.jsonl": (b'{"text": "x"}\n{"text": ', "line 2: not JSON"),
        "nested.jsonl": (b"[" * 100_000, "not JSON"),
        "rows.csv": (b"title,text\na\n", "fewer than the 2 columns"),
        "empty.txt": (b" \n", "has no text"),
        "bomb.txt.gz": (__import__("gzip").compress(b"a b\n" * 30_000_000), "times as large"),
        "picture.png": (b"PNG", "no kind of document"),
        "settings.json": (b"{}", "only where they are given by name"),
    }


def test_every_bad_document_is_skipped_and_named_and_the_good_one_is_found(docs: Path, hostile: ModuleType):
    wanted = bad(hostile)
    for name, (content, _) in wanted.items():
        (docs / name).write_bytes(content)
    texts, skipped = indexed(docs)
    assert texts == [GOOD]
    assert {name: reason for name, (_, reason) in wanted.items() if reason not in skipped.get(name, "")} == {}
    assert skipped.keys() == wanted.keys()


def test_spans_of_a_million_columns_are_read_at_once(docs: Path, hostile: ModuleType):
    span = '<w:tcPr><w:gridSpan w:val="1000000"/><w:vMerge/></w:tcPr>'
    (docs / "spans.docx").write_bytes(hostile.docx(hostile.table(3_000, span)))
    start = time.process_time()
    texts, skipped = indexed(docs)
    assert not skipped and len(texts) > 10 and time.process_time() - start < 5


def test_lines_of_tags_alone_below_many_paragraphs_are_read_at_once(docs: Path):
    """Each paragraph looked for its own lines through all of them."""
    (docs / "page.md").write_text("<div>" + "".join(f"<p>w{n} x</p>" for n in range(3_000)) + "<br>\n" * 20_000)
    start = time.process_time()
    texts, skipped = indexed(docs)
    assert not skipped and len(texts) > 10 and time.process_time() - start < 5


def test_a_parser_that_hangs_fills_the_memory_or_crashes_is_replaced(docs: Path, monkeypatch: pytest.MonkeyPatch):
    """Each of four pdf files makes the parsing process do one of these; the last is read by a new process."""
    from raisf.retrieval.corpus import parsing

    ways = {
        "crash.pdf": "import os; os.abort()",
        "hang.pdf": "while True: pass",
        "killed.pdf": "import os; os.kill(os.getpid(), 9)",
        "memory.pdf": "x = [bytearray(1 << 28) for _ in range(1000)]",
    }
    lines = "".join(f"    if file.name == {name!r}: exec({way!r})\n" for name, way in ways.items())
    patched = parsing._START.replace(
        "\nmain()",
        "\nfrom raisf.retrieval.corpus import kinds, plain\n"
        f"def read(file, name, encoding):\n{lines}    return plain.read_text(file, name, encoding)\n"
        "kinds.KINDS['.pdf'] = kinds.Kind(read, 'pypdf')\nmain()",
    )
    monkeypatch.setattr(parsing, "_START", patched)
    monkeypatch.setattr("raisf.retrieval.corpus.bounds.SECONDS", 4)
    for name in [*ways, "y.pdf"]:
        (docs / name).write_text("Radium.")
    texts, skipped = indexed(docs)
    assert texts == ["Radium.", GOOD]
    assert "crashed (SIGABRT)" in skipped["crash.pdf"] and "more memory" in skipped["memory.pdf"]
    assert "takes more than the 4 seconds" in skipped["hang.pdf"]
    assert "too little memory" in skipped["killed.pdf"], "by Linux, where the machine's memory is used up"


def test_a_document_is_read_whole_or_not_at_all(docs: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("raisf.retrieval.corpus.reading.HELD", 3)
    rows = [f'{{"text": "row {number}"}}' for number in range(10)]
    (docs / "long.jsonl").write_text("\n".join(rows))
    (docs / "broken.jsonl").write_text("\n".join([*rows, "{"]))
    texts, skipped = indexed(docs)
    assert texts == [*(f"row {number}" for number in range(10)), GOOD] and [*skipped] == ["broken.jsonl"]


@pytest.mark.parametrize(
    ("kind", "target", "read"),
    [
        ("image", "NULL", True),
        ("image", "../media/image1.png", True),
        ("hyperlink", "#_Toc1", True),
        ("footnotes", "footnotes.xml", False),
    ],
)
def test_a_docx_without_a_part_is_read_where_nothing_of_that_part_would_be(
    docs: Path, hostile: ModuleType, kind: str, target: str, read: bool
):
    """Word opens it, and saves it as it is: nobody could have had its text read."""
    relation = f'''<?xml version="1.0"?>
        <Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1"
        Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}" Target="{target}"/>
        </Relationships>'''
    packed = hostile.docx(hostile.paragraph("The Danube."), **{"word/_rels/document.xml.rels": relation})
    (docs / "rivers.docx").write_bytes(packed)
    texts, skipped = indexed(docs)
    assert (texts, [*skipped]) == ((["The Danube.", GOOD], []) if read else ([GOOD], ["rivers.docx"]))


def test_ids_that_come_twice_are_the_second_documents_fault(docs: Path):
    (docs / "a.jsonl").write_text('{"id": "i", "text": "first"}')
    (docs / "b.jsonl").write_text('{"id": "j", "text": "second"}\n{"id": "i", "text": "third"}')
    (docs / "c.jsonl").write_text('{"id": "j", "text": "fourth"}')
    texts, skipped = indexed(docs)
    assert texts == ["first", "fourth", GOOD] and "a.jsonl, line 1 and b.jsonl, line 2" in skipped["b.jsonl"]


def test_a_file_that_may_not_be_read_is_named(docs: Path):
    (docs / "a.txt").write_text("secret")
    (docs / "a.txt").chmod(0)
    if os.access(docs / "a.txt", os.R_OK):
        pytest.skip("root reads everything")
    assert "Permission denied" in indexed(docs)[1]["a.txt"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_cannot_be_opened_any_more_is_skipped_whoever_reads_it(docs: Path, kind: str):
    (docs / f"a{kind}").mkdir()  # what stands there by the time it is read
    documents = [Document(f"a{kind}", docs / f"a{kind}"), Document("z.txt", docs / "z.txt")]
    skipped = list[Skipped]()
    assert [passage.text for passage in read_whole(documents, skipped.append, SeenIds())] == [GOOD]
    assert [file.name for file in skipped] == [f"a{kind}"] and "directory" in skipped[0].reason


def test_names_that_are_not_unicode_are_skipped_too(docs: Path):
    if sys.platform == "darwin":
        pytest.skip("its file names are always UTF-8")
    (docs / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    texts, skipped = indexed(docs)
    assert texts == [GOOD] and "not UTF-8" in skipped["caf\\xe9.txt"]


def test_what_was_read_of_a_document_stays_while_it_cannot_be_read_and_goes_when_it_is_emptied(docs: Path):
    (docs / "a.jsonl").write_text('{"id": "a", "text": "old"}')
    out = docs.parent / "index"
    assert indexed(docs, out) == (["old", GOOD], {})
    (docs / "a.jsonl").write_text('{"id": "a", "text": ')
    for _ in range(2):  # named each time, until it is mended
        texts, skipped = indexed(docs, out)
        assert sorted(texts) == sorted(["old", GOOD]) and "not JSON" in skipped["a.jsonl"]
        assert skipped["a.jsonl"].endswith("its older version stays in the index")
    (docs / "a.jsonl").write_text('{"id": "a", "text": "new"}')
    assert sorted(indexed(docs, out)[0]) == sorted(["new", GOOD])
    (docs / "a.jsonl").write_text("\n")
    texts, skipped = indexed(docs, out)
    assert texts == [GOOD] and "has no text" in skipped["a.jsonl"]
    assert open_folder(out).corpus_hash == build_index(docs, docs.parent / "fresh", "bm25").corpus_hash


def test_what_is_left_of_a_document_is_told_while_the_rest_cannot_be_read(docs: Path):
    (docs / "a.jsonl").write_text('{"text": "old", "page": 1}\n{"text": "older", "page": 9}')
    out = docs.parent / "index"
    indexed(docs, out)
    remove_from_index(out, "page > 5")
    (docs / "a.jsonl").write_text('{"text": ')
    for _ in range(2):
        texts, skipped = indexed(docs, out)
        assert sorted(texts) == sorted(["old", GOOD])
        assert skipped["a.jsonl"].endswith("; what is left of its older version stays in the index")


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "pdf", "docx", "html", "md", "mdx", "rst", "txt"])
def test_a_file_without_a_byte_loses_its_passages_whatever_its_kind(docs: Path, kind: str):
    out, file = docs.parent / "index", docs / f"a.{kind}"
    build_index(docs, out, "bm25")
    file.write_bytes(b"")
    old = Passage("old", "What stood there.", source=file.name)
    add_to_index(out, [old])
    texts, skipped = indexed(docs, out)
    assert texts == [GOOD] and skipped == {file.name: "has no text: the file is empty"}


def test_a_full_disk_is_told_as_such_and_not_as_a_broken_document(docs: Path, capsys: pytest.CaptureFixture[str]):
    (docs / "a.html").write_text("<p>" + "Many words of a page. " * 30_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # the same to a writer as a disk without room
    try:
        code = cli.main(["index", str(docs), "--engine", "bm25", "--out", str(docs.parent / "i")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    told = " ".join(capsys.readouterr().err.split())
    assert code == 1 and f"temporary folder {tempfile.gettempdir()} (File too large): make room there" in told
    assert not (docs.parent / "i").exists()


def test_strict_stops_at_the_first_and_a_file_that_is_named_is_never_skipped(docs: Path):
    (docs / "a.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"a\.jsonl: line 1: not JSON"):
        build_index(docs, docs.parent / "index", "bm25", skip=stop)
    with pytest.raises(InputError, match=r"a\.jsonl: line 1: not JSON"):
        build_index(docs / "a.jsonl", docs.parent / "index", "bm25")
    assert not (docs.parent / "index").exists()


def test_a_folder_without_one_readable_document_says_why(docs: Path):
    (docs / "z.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"no document in .*docs can be read \(z\.txt: .*not utf-8"):
        build_index(docs, docs.parent / "index", "bm25")


def test_the_command_makes_the_index_lists_what_it_skipped_and_ends_with_1(
    docs: Path, capsys: pytest.CaptureFixture[str]
):
    (docs / "a.jsonl").write_text("{")
    command = ["index", str(docs), "--engine", "bm25", "--out", str(docs.parent / "i")]
    for _ in range(2):
        assert cli.main([*command, "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert told["passages"] == 1 and [file["name"] for file in told["skipped"]] == ["a.jsonl"]
    assert cli.main(command) == 1
    assert "a.jsonl: line 1: not JSON" in " ".join(capsys.readouterr().out.split())
    assert cli.main([*command, "--strict"]) == 2
    assert "a.jsonl" in capsys.readouterr().err
    (docs / "a.jsonl").unlink()
    assert cli.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == []


def test_adding_documents_skips_bad_ones_too(docs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    build_index(docs, tmp_path / "i", "bm25")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.txt").write_text("Go, too.")
    (tmp_path / "more" / "b.txt").write_bytes(b"\xff")
    assert cli.main(["index", "add", str(tmp_path / "i"), str(tmp_path / "more"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["added"] == 1 and [file["name"] for file in told["skipped"]] == ["b.txt"]


@pytest.mark.slow
def test_hundreds_of_hostile_documents_are_each_read_or_skipped_within_seconds(hostile: ModuleType, tmp_path: Path):
    skipped: list[Skipped] = []
    slow: dict[str, float] = {}

    class Documents(list[Document]):
        def __len__(self) -> int:
            return 300

        def __iter__(self) -> Iterator[Document]:
            for seed in range(300):
                file = hostile.make(seed, tmp_path)
                start = time.process_time()
                yield Document(file.name, file)
                slow[file.name] = time.process_time() - start
                file.unlink()

    for passage in read_whole(Documents(), skipped.append, SeenIds()):
        passage.text.encode()
    # Processor time, which a neighbour on the same core still doubles; three bombs take six to thirteen seconds.
    assert len(slow) == 300 and max(slow.values()) < 30
    assert all(file.reason and "Traceback" not in file.reason for file in skipped)
