"""Whoever indexes a folder gets every word of it as passages, or is told which file and line cannot be read."""

import json
import os
import re
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.retrieval.corpus.checking import checked
from raisf.retrieval.corpus.documents import Skipped, find_documents
from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.splitting import LONGEST, SHORTEST, split_text
from raisf.retrieval.corpus.texts import passages_of_texts
from raisf.retrieval.index import build_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from tests.retrieval.conftest import reading_error_of

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> Path:
        file = tmp_path / "docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return write


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="ab.!?\u3002\u6c34 \n\"'", min_size=0, max_size=300), max_size=30).map(" ".join))
def test_splitting_loses_nothing_and_keeps_passages_short(text: str):
    pieces = split_text(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece and piece == piece.strip() for piece in pieces)
    assert all(len(re.findall(r"[\u2e80-\u9fff]|[^\s\u2e80-\u9fff]{1,40}", piece)) <= LONGEST for piece in pieces)


def test_passages_end_with_sentences_where_they_can():
    text = "The quick brown fox jumps over the lazy dog again. " * 100
    pieces = split_text(text)
    assert all(piece.endswith("again.") for piece in pieces)
    assert all(SHORTEST <= len(piece.split()) <= LONGEST for piece in pieces[:-1])


def test_a_heading_of_a_plain_text_stands_above_its_paragraph():
    """Cut before it, the passage about costs would not say so, and the one above would end in words about nothing."""
    paragraph = "The company pays for a chair and for what else is needed. " * 7
    first, second = split_text(f"2. HOW MUCH\n\n{paragraph}\n\n3. COSTS\n\n{paragraph}")
    assert first.startswith("2. HOW MUCH The") and first.endswith("is needed.")
    assert second.startswith("3. COSTS The company")
    items = "\n".join(f"- item {number}" for number in range(60))  # none of them leads the next
    assert all(piece.startswith("- item") for piece in split_text(items))


@pytest.mark.parametrize("text", ["word " * 200_000, "x" * 1_000_000, "水" * 300_000, "One two. " * 110_000])
def test_a_document_of_a_megabyte_is_split(text: str):
    pieces = split_text(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert len(pieces) > 100


def test_every_kind_of_file_becomes_passages(write: Write, tmp_path: Path):
    write("a.txt", "Plain text.\n\nIn two paragraphs.")
    write("b/guide.md", "Before.\n# The guide\nIntro.\n## Setup ##\n```\n# no heading\n```\nRun it.\n# Other\nEnd.")
    write(
        "c.jsonl",
        '{"id": 7, "title": "Seven", "text": "A row."}\n\n{"text": "No id.", "title": null}\n'
        '{"text": " "}\n{"text": null}\n',
    )
    write("d.csv", 'Title,Text\nOne,"With, a comma\nand a line end"\n')
    write("e.tsv", "id\ttext\te\nx1\tTabbed\t2\n")
    write("f.png", "PNG")
    write(".git/g.txt", "hidden")
    write("~$h.docx", "who has h.docx open")
    found = [(p.pid, p.title, p.text, p.citation) for p in read_documents(tmp_path / "docs")]
    assert found == [
        ("a.txt#1", "", "Plain text. In two paragraphs.", "a.txt"),
        ("b/guide.md#1", "Guide", "Before.", "b/guide.md, line 1"),
        ("b/guide.md#2", "The guide", "Intro.", "b/guide.md, line 2"),
        ("b/guide.md#3", "The guide", "Setup: # no heading Run it.", "b/guide.md, line 4"),
        ("b/guide.md#4", "Other", "End.", "b/guide.md, line 9"),
        ("7", "Seven", "A row.", "c.jsonl, line 1"),
        ("c.jsonl#3", "", "No id.", "c.jsonl, line 3"),
        ("d.csv#2", "One", "With, a comma and a line end", "d.csv, line 2"),
        ("x1", "", "Tabbed", "e.tsv, line 2"),
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Ingredients:\n250 g lentils\n2 carrots\nolive oil\n", "Ingredients: 250 g lentils; 2 carrots; olive oil."),
        ("Desk  100\nHall  214\nShop  307\n\nCall\nthem.\n", "Desk 100; Hall 214; Shop 307. Call them."),
        ("It was built of brick\nand of granite from\nthe quarry of Pell\nby Carswell\n", None),
        ("The bridge stands on nineteen arches of brick\nOver the Lorne it is 40 metres high and Wide\nToday\n", None),
        ("Short lines.\nEach of them,\nends so.\n", None),
        ("Two\nLines\n", None),
    ],
)
def test_entries_of_a_list_in_a_txt_file_are_told_apart(write: Write, text: str, read: str | None):
    """`250 g lentils 2 carrots` may be lentils, or carrots of 250 g. Wrapped prose is joined as before."""
    assert [p.text for p in read_documents(write("a.txt", text))] == [read or " ".join(text.split())]


def test_what_is_no_text_is_not_said_to_want_an_encoding(write: Write, tmp_path: Path):
    file = write("a.txt", "")
    file.write_bytes(bytes(range(256)) * 8)
    assert "a.txt: no text, but binary data" in reading_error_of(file)
    file.write_bytes("Größe: 3\t4\r\n".encode("cp1252"))
    assert "--encoding NAME" in reading_error_of(file)


def test_only_what_markdown_calls_a_fence_hides_headings(write: Write):
    text = (
        "# A\n```pip install x```\n## B\n````sh\n```\n## no\n~~~~\n````` \n## C\n~~~ a`b\n## no\n```\n~~~\n## D\nEnd."
    )
    sections = [p.metadata.get("section") for p in read_documents(write("a.md", text))]
    assert sections == [None, "B", "C", "D"]


def test_columns_named_like_places_are_filtered_by_and_the_place_itself_is_cited(write: Write, tmp_path: Path):
    write("t.csv", "text,page,row\nOne heron.,77,4\n")
    write("u.jsonl", '{"page": 77, "line": 9, "text": "Two owls."}\n')
    index = build_index(tmp_path / "docs", tmp_path / "index", "bm25")
    cited = {p.citation for p in index("heron owls", 5, "page = 77")}
    assert cited == {"t.csv, line 2", "u.jsonl, file line 1"}
    assert [p.citation for p in index("heron owls", 5, "line = 9")] == ["u.jsonl, file line 1"]


def test_a_row_of_several_lines_is_cited_by_its_first(write: Write):
    row = 'a,"One\nheron\n\nstands."\r\n'
    file = write("t.csv", f"title,text\n{row}\n\n{row}b,Owls.\n")
    found = [(p.pid, p.metadata["line"]) for p in read_documents(file)]
    assert found == [("t.csv#2", 2), ("t.csv#8", 8), ("t.csv#12", 12)]


def test_an_index_among_the_documents_is_none_of_them(write: Write, tmp_path: Path):
    write("a.txt", "The vault code is 4711.")
    write("index/manifest.json", '{"format": 3, "kind": "bm25"}')
    write("index/segments/1/passages.jsonl", '{"id": "a.txt#1", "text": "It was 1174."}')
    write("deep/art/manifest.json", '{"format": 3, "program": "rag"}')
    write("deep/art/program.json", "{}")
    left_out: list[Skipped] = []
    assert [found.name for found in find_documents(tmp_path / "docs", skip=left_out.append)] == ["a.txt"]
    assert left_out == []


@pytest.mark.parametrize("part", ["segments/notes.txt", "program.json"])
def test_what_lies_beside_a_strangers_manifest_is_read(write: Write, tmp_path: Path, part: str):
    write("book/manifest.json", '{"name": "The book", "format": "epub"}')
    write(f"book/{part}", "One.")
    write("book/two.txt", "Two.")
    assert "book/two.txt" in [found.name for found in find_documents(tmp_path / "docs")]


def test_one_file_can_be_given_and_a_long_row_is_split_under_its_id(write: Write):
    text = "Ten words make up this sentence, counted one by one. " * 30
    file = write("long.jsonl", json.dumps({"id": "a", "title": "T", "text": text}) + '\n{"id": "b", "text": "Short."}')
    ids = [passage.pid for passage in read_documents(file)]
    assert ids == ["a#1", "a#2", "a#3", "b"]


def test_a_huge_table_field_is_read(write: Write):
    file = write("big.csv", 'text\n"' + "word " * 200_000 + '"\n')
    assert len(list(read_documents(file))) == 2_000


def test_reading_streams(write: Write):
    file = write("s.jsonl", '{"text": "good"}\n' * 3 + "broken")
    assert [passage.text for passage in islice(read_documents(file), 3)] == ["good"] * 3


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", None),
        ("utf-32", None),
        ("utf-8-sig", "utf-8"),  # as a table that Excel has written is named
        ("utf-16", f"utf-16-{sys.byteorder[0]}e"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.jsonl", "a.json"])
def test_marked_encodings_are_recognised_and_the_mark_is_no_text(
    write: Write, encoding: str, said: str | None, name: str
):
    row = '{"text": "Café Ωμέγα"}\r\n'
    contents = {"a.csv": "text\r\nCafé Ωμέγα\r\n", "a.jsonl": row, "a.json": f"[{row}]"}
    content = contents.get(name, "Café Ωμέγα\r\n")
    file = write(name, content.encode(encoding))
    assert [passage.text for passage in read_documents(file, said)] == ["Café Ωμέγα"]


def test_another_encoding_is_never_guessed_but_can_be_named(write: Write):
    file = write("old.txt", "First line\nCafé".encode("cp1252"))
    assert "old.txt" in reading_error_of(file) and "cp1252" in reading_error_of(file)
    # `raisf index add` would name a file below the folder otherwise, and the next `raisf index` take it out again.
    assert "every file that is given" in reading_error_of(file) and "raisf index add" not in reading_error_of(file)
    # What reads Western Europe's letters reads others' as garbled words.
    assert "save it as UTF-8 (iconv -f NAME -t UTF-8)" in reading_error_of(file) and "gbk" in reading_error_of(file)
    assert [passage.text for passage in read_documents(file, "cp1252")] == ["First line Café"]
    beside = write("new.txt", "Last line\nCafé £12")
    assert [passage.text for passage in read_documents(beside, "cp1252")] == ["Last line Café £12"], "it is UTF-8"
    # Both are UTF-8, too: `ģ` and `£é`. From a sign of three bytes on, or a few words of two, there is no doubt.
    for told in ("模", "拢茅"):
        assert [p.text for p in read_documents(write("two.txt", told.encode("gbk")), "gbk")] == [told]
    for told in ("Café €12", "Привет, мир"):
        assert [p.text for p in read_documents(write("new.txt", told), "gbk")] == [told]
    unmarked = write("wide.txt", "Plain".encode("utf-16-le"))
    assert "utf-16-le" in reading_error_of(unmarked)
    assert [passage.text for passage in read_documents(unmarked, "utf-16-le")] == ["Plain"]
    seven_bits = write("mail.txt", "拝啓".encode("iso-2022-jp"))
    assert "line 1: marks of ISO-2022" in reading_error_of(seven_bits)
    assert [passage.text for passage in read_documents(seven_bits, "iso-2022-jp")] == ["拝啓"]
    for no_text in ("klingon", "base64", "rot13", "undefined"):
        assert f"unknown encoding '{no_text}'" in reading_error_of(file, no_text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.json"])
def test_an_encoding_that_is_named_is_for_the_files_that_are_not_utf_8(write: Write, name: str, encoding: str):
    contents = {"a.html": '<meta charset="utf-8"><p>Café für 3 €</p>', "a.json": '[{"text": "Café für 3 €"}]'}
    file = write(name, contents.get(name, "Café für 3 €").encode(encoding))
    assert [passage.text for passage in read_documents(file, "cp1252")] == ["Café für 3 €"]
    file = write(name, contents.get(name, "Café für 3 €").encode("cp1252"))
    assert [passage.text for passage in read_documents(file, "cp1252")] == ["Café für 3 €"]


def test_a_page_that_says_it_is_utf_8_and_is_has_no_other_encoding(write: Write):
    """In another two bytes may be one character: `é` was read as a Chinese one."""
    for text, encoding in (("Café", "utf-8"), ("咖啡", "gbk")):  # the second says it wrongly
        page = write("a.html", f'<meta charset="utf-8"><p>{text}</p>'.encode(encoding))
        assert [passage.text for passage in read_documents(page, "gbk")] == [text]


def test_half_a_surrogate_pair_in_json_does_not_break_the_index(write: Write):
    (passage,) = read_documents(write("s.jsonl", '{"text": "bad \\ud800 escape"}'))
    passage.text.encode("utf-8")
    row = write("rows.jsonl", '{"title": "T\\ud800", "text": "x", "k\\ud800": "v\\ud800"}')
    build_index(row, row.parent / "index", "bm25", progress=False)
    (passage,) = open_folder(row.parent / "index").passages
    assert (passage.title, passage.metadata) == ("T?", {"line": 1, "k?": "v?"})


def test_a_number_that_json_has_no_words_for_is_left_out(write: Write, tmp_path: Path):
    row = write("rows.jsonl", '{"text": "x", "a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999, "e": 2.5}')
    (passage,) = build_index(row, tmp_path / "index", "bm25").passages
    assert passage.metadata == {"line": 1, "e": 2.5}
    (passage,) = passages_of_texts([{"text": "x", "a": float("nan"), "e": 2.5}])
    assert passage.metadata == {"e": 2.5}


def test_an_id_or_a_name_that_no_file_can_hold_is_named(write: Write, tmp_path: Path):
    ids = write("ids.jsonl", '{"id": "a", "text": "x"}\n{"id": "b\\ud800", "text": "y"}\n')
    assert "ids.jsonl, line 2: the id 'b\\ud800' has half a surrogate pair" in reading_error_of(ids)
    ids.unlink()
    if sys.platform == "darwin":
        pytest.skip("its file names are always UTF-8")
    latin = write(os.fsdecode(b"sub/caf\xe9.txt"), "Text.")
    for path in (latin, tmp_path / "docs"):
        assert "sub/caf\\xe9.txt is not UTF-8; rename it" in reading_error_of(path)
    latin.rename(latin.with_suffix(".png"))
    write("a.txt", "Text.")
    assert [passage.pid for passage in read_documents(tmp_path / "docs")] == ["a.txt#1"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": \n', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"text": "x"}\n\n[1]\n', "a.jsonl, line 3: expected"),
        ("a.jsonl", '{"body": "x"}', "a.jsonl, line 1: no 'text' of type string; found the keys body"),
        ("a.jsonl", '{"text": 3}', "a.jsonl, line 1: no 'text'"),
        (
            "a.jsonl",
            '{"id": "i", "text": "x"}\n{"id": "j", "text": "x"}\n{"id": "i", "text": "y"}\n',
            "'i' comes twice",
        ),
        ("e.csv", "Title,Text,Text \nx,y,z\n", "e.csv: its first line names the column 'text' twice"),
        ("a.csv", "title,text\nx,y\nz\n", "a.csv, line 3: fewer than the 2 columns"),
        ("a.csv", 'title,text\n\n"x\n\n\n",y,z\n', "a.csv, line 3: more"),
        ("a.csv", "title,text\nx,y,z\n", "a.csv, line 2: more than the 2 columns"),
        ("a.csv", 'title,text\nx,"y\n', "not a table"),
        ("a.csv", "", "the corpus is empty"),
        ("a.txt", "", "the corpus is empty"),
        ("a.txt", " \n\t\n", "the corpus is empty"),
        ("a.jsonl", '{"text": ""}', "the corpus is empty"),
        (
            "a.odt",
            "x",
            ".odt is no kind of document; those are txt, md, markdown, mdx, qmd, rmd, rst, jsonl, csv, tsv, html, "
            "htm, pdf, docx",
        ),
        ("noext", "x", "without a suffix it is no kind of document"),
    ],
)
def test_what_cannot_be_read_is_named(write: Write, name: str, content: str, message: str):
    assert message in reading_error_of(write(name, content))


def test_the_error_of_a_double_id_says_where_both_are(write: Write, tmp_path: Path):
    write("a.jsonl", '{"id": "i", "text": "x"}\n')
    write("b.jsonl", '\n{"id": "i", "text": "y"}\n')
    assert "a.jsonl, line 1 and b.jsonl, line 2" in reading_error_of(tmp_path / "docs")
    with pytest.raises(InputError, match="passage 1 and passage 2"):
        list(checked([Passage("i", "x"), Passage("i", "y")]))


def test_a_path_without_documents_is_named(tmp_path: Path):
    assert "no documents at" in reading_error_of(tmp_path / "nowhere")
    (tmp_path / "picture.png").write_bytes(b"")
    assert "of its 1 files none is" in reading_error_of(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "write what it gives to a file, and give that" in reading_error_of(tmp_path / "pipe")


def test_an_empty_cell_of_pandas_is_no_title_and_no_id(write: Write):
    """All untitled passages of a table written by pandas were about "nan"."""
    rows = [
        {"id": float("nan"), "text": "One heron.", "title": float("nan")},
        {"id": "b", "text": "Two.", "title": "T"},
    ]
    file = write("r.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    assert [(p.pid, p.title) for p in read_documents(file)] == [("r.jsonl#1", ""), ("b", "T")]
    assert [(p.pid, p.title) for p in passages_of_texts(rows)] == [("0", ""), ("b", "T")]
