"""If these failed, a table would lose its columns' names, a formula its brackets, or a language its sentences."""

import re
from pathlib import Path
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.splitting import split_text
from raisf.retrieval.corpus.titles import says_something

MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
LONG = "The price holds for one year from the day of signing and is told anew each May. " * 5


def texts(file: Path) -> list[str]:
    return [passage.text for passage in read_documents(file)]


@pytest.mark.parametrize(
    ("page", "read"),
    [
        (
            "<h2>Plans</h2><table><tr><th><th><h3>Lite</h3><th><h3>Full</h3><tr><td>Fee<td>$5<td>$9</table><p>Yearly.",
            ["Plans: Fee; Lite: $5; Full: $9. Yearly."],
        ),
        (
            "<table><tr><th>Plan<th>Fee<tr><td>Lite<td>$5 <svg><path/></svg><tr><td>Full<td>$9</table>",
            ["Plan: Lite; Fee: $5. Plan: Full; Fee: $9."],
        ),
        (
            "<table><tr><th>Tree<th>Age<tr><th><style>.a{}</style>Elm<td>5<tr><th>Oak<td>7</table>",
            ["Tree: Elm; Age: 5. Tree: Oak; Age: 7."],
        ),
        (
            f"<table><tr><th>Plan<th>Note<tr><td>Lite<td>-<tr><td>Full<td>{LONG}</table>",
            [f"Plan: Lite; Note: -. Plan: Full; Note: {LONG.strip()}"],
        ),
        (
            "<table><tr><td><th>Monday<th>Tuesday<tr><th>9-11<td>Closed<td>Open</table>",
            ["9-11; Monday: Closed; Tuesday: Open."],
        ),
        (
            "<table><thead><tr><td>Plan<td>Fee</thead><tbody><tr><td>Lite<td>$5</table>",
            ["Plan: Lite; Fee: $5."],
        ),
        (
            "<table><tr><th>Name<th>Fee<tr><td>Lite<td>5<tfoot><tr><th>Name<th>Fee</tfoot></table>",
            ["Name: Lite; Fee: 5."],
        ),
        ("<table><tr><td>menu<td><h2>News</h2>Open again.</table>", ["menu", "News: Open again."]),
        ("<ol type=a start=2><li>Rent is due.<li>No pets.</ol>", ["b. Rent is due. c. No pets."]),
    ],
)
def test_a_table_of_a_page_keeps_its_names_and_a_list_its_letters(page: str, read: list[str], tmp_path: Path) -> None:
    (tmp_path / "7.html").write_text(page)
    assert texts(tmp_path / "7.html") == read


def _table(document: Any, *rows: str) -> Any:
    table = document.add_table(len(rows), rows[0].count("|") + 1)
    for line, row in zip(table.rows, rows, strict=True):
        for cell, told in zip(line.cells, row.split("|"), strict=True):
            cell.text = told
    return table


def test_rows_that_are_marked_as_no_names_are_none(tmp_path: Path) -> None:
    """Some programs write it to each row; another's room was told under the first one's name."""
    document = docx.Document()
    for row in _table(document, "Name|Ada Berg", "Room|201", "Phone|12 34").rows:
        row._tr.get_or_add_trPr().append(parse_xml(f'<w:tblHeader {nsdecls("w")} w:val="0"/>'))
    document.save(str(tmp_path / "a.docx"))
    assert texts(tmp_path / "a.docx") == ["Name; Ada Berg. Room; 201. Phone; 12 34."]


def test_the_corner_of_a_docx_table_may_be_empty(tmp_path: Path) -> None:
    document = docx.Document()
    first = _table(document, "|Adult|Child", "Day ticket|5|3", "Week ticket|25|15").rows[0]
    for cell in first.cells[1:]:
        cell.paragraphs[0].runs[0].bold = True
    document.save(str(tmp_path / "a.docx"))
    assert texts(tmp_path / "a.docx") == ["Day ticket; Adult: 5; Child: 3. Week ticket; Adult: 25; Child: 15."]


@pytest.mark.parametrize(
    ("formula", "read"),
    [
        ("2<m:d><m:e>x+1</m:e></m:d>", "2(x+1)"),
        ('<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e>a</m:e></m:d>', "[a]"),
        ("<m:rad><m:e>D</m:e></m:rad>", "\u221a(D)"),
        ('<m:nary><m:naryPr><m:chr m:val="\u2211"/></m:naryPr><m:e>x</m:e></m:nary>', "\u2211x"),
        ("<m:f><m:num>b+1</m:num><m:den>2a</m:den></m:f>", "(b+1)/2a"),
        ("<m:sSup><m:e>e</m:e><m:sup>n+1</m:sup></m:sSup>", "e^(n+1)"),
        ("<m:f><m:num>-1</m:num><m:den>2</m:den></m:f>", "-1/2"),
    ],
)
def test_a_formula_of_a_docx_keeps_what_holds_it_together(formula: str, read: str, tmp_path: Path) -> None:
    written = "".join(
        part if part.startswith("<") or not part else f"<m:r><m:t>{part}</m:t></m:r>"
        for part in re.split(r"(<[^>]*>)", formula)
    )
    document = docx.Document()
    document.add_paragraph("It is ")._p.append(parse_xml(f"<m:oMath {MATH}>{written}</m:oMath>"))
    document.save(str(tmp_path / "a.docx"))
    assert texts(tmp_path / "a.docx") == [f"It is {read}"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "The rent is $20*12*5$ euros; let $x^*$ and $y^*$ be.",
            "The rent is $20*12*5$ euros; let $x^*$ and $y^*$ be.",
        ),
        (r"Of $\{1,2\}$ each.", r"Of $\{1,2\}$ each."),
        ("$$a \\\\ b$$", r"$$a \\ b$$"),
        ("It costs $5 and *not* $6.", "It costs $5 and not $6."),
    ],
)
def test_mathematics_in_markdown_is_read_as_it_is_written(written: str, read: str, tmp_path: Path) -> None:
    (tmp_path / "7.md").write_text(f"{written}\n\n## Fees {{-}}\n\nFive.\n")
    assert texts(tmp_path / "7.md") == [read, "Fees: Five."]


@pytest.mark.parametrize("name", ["दिल्ली", "भारत की नदियाँ", "গঙ্গা নদী", "தமிழ்", "แม่น้ำ", "北京", "東京", "서울"])
def test_a_name_in_another_script_says_something(name: str, tmp_path: Path) -> None:
    assert says_something(name)
    (tmp_path / "7.html").write_text(f"<title>{name}</title><p>2525.")
    assert [passage.title for passage in read_documents(tmp_path / "7.html")] == [name]


def test_a_title_of_two_capitals_counts_where_the_document_tells_it(tmp_path: Path) -> None:
    for told, title in (("UN", "UN"), ("C++", "C++"), ("IV", "Wiki")):
        (tmp_path / "wiki.html").write_text(f"<title>{told}</title><p>It has 27 members.")
        assert [passage.title for passage in read_documents(tmp_path / "wiki.html")] == [title]


def test_sentences_end_where_each_script_ends_them() -> None:
    hindi = split_text("यह नदी शहर के बीच से बहती है और बहुत लंबी है। " * 30)
    assert len(hindi) > 1 and all(piece.endswith("।") for piece in hindi)
    chinese = split_text("他说“今天很冷我们回家吧。”她点了点头没有说话。" * 15)
    assert len(chinese) > 1 and not any(piece[0] in "”」" for piece in chinese)
    thai = split_text("แม่น้ำสายนี้ไหลผ่านเมืองและยาวมาก " * 100)
    assert max(map(len, thai)) < 1_000
