"""The numbers of a docx file's lists are read as Word shows them: no paragraph holds them."""

from pathlib import Path
from typing import Any

import pytest

from raisf.retrieval.corpus.reading import read_documents

docx = pytest.importorskip("docx", reason="needs the extra documents")
parse_xml = pytest.importorskip("docx.oxml").parse_xml
NAMES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def level(at: int, form: str, text: str, more: str = "") -> str:
    return f'<w:lvl w:ilvl="{at}">{more}<w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/></w:lvl>'


def describe(document: Any, number: int, *levels: str, changes: str = "", kind: int | None = None) -> None:
    """Adds a list to those that a document describes, of a kind of its own or of one that is there."""
    numbering = document.part.numbering_part.element
    if kind is None:
        xml = f'<w:abstractNum {NAMES} w:abstractNumId="{number}">{"".join(levels)}</w:abstractNum>'
        numbering.insert(0, parse_xml(xml))
    of_kind = f'<w:abstractNumId w:val="{number if kind is None else kind}"/>'
    numbering.append(parse_xml(f'<w:num {NAMES} w:numId="{number}">{of_kind}{changes}</w:num>'))


def put(holder: Any, number: int | None, at: int | None = None) -> None:
    """Makes a paragraph, or all that are in a style, items of a list."""
    told = holder.get_or_add_pPr().get_or_add_numPr()
    if number is not None:
        told.get_or_add_numId().val = number
    if at is not None:
        told.get_or_add_ilvl().val = at


def texts(document: Any, folder: Path) -> list[str]:
    document.save(str(folder / "h.docx"))
    return [passage.text for passage in read_documents(folder / "h.docx")]


def items(document: Any, *rows: tuple[int, int, str]) -> None:
    for number, at, text in rows:
        put(document.add_paragraph(text)._p, number, at)


CLAUSES = (level(0, "decimal", "%1."), level(1, "decimal", "%1.%2"), level(2, "lowerLetter", "(%3)"))


def test_clauses_are_read_with_their_numbers(tmp_path: Path):
    """What clause 2.1 says could not be asked."""
    document = docx.Document()
    describe(document, 90, *CLAUSES)
    items(document, (90, 0, "Scope"), (90, 1, "Boats."), (90, 0, "Rent"), (90, 1, "Monthly:"), (90, 2, "in cash"))
    items(document, (90, 2, ""), (90, 2, "by card"), (90, 1, "No pets."))
    deleted = document.add_paragraph()._p
    put(deleted, 90, 1)
    deleted.pPr.append(parse_xml(f"<w:rPr {NAMES}><w:del/></w:rPr>"))
    items(document, (90, 1, "No smoke."), (7777, 0, "Elsewhere"))
    assert texts(document, tmp_path) == [
        "1. Scope 1.1 Boats. 2. Rent 2.1 Monthly: (a) in cash (c) by card 2.2 No pets. 2.3 No smoke. - Elsewhere"
    ]


def test_headings_are_numbered_by_their_styles(tmp_path: Path):
    document = docx.Document()
    tied = [f'<w:pStyle w:val="Heading{number}"/>' for number in (1, 2)]
    describe(document, 90, level(0, "upperRoman", "Part %1:", tied[0]), level(1, "decimal", "%1.%2", tied[1]))
    put(document.styles["Heading 1"].element, 90)
    document.styles["Heading 2"].base_style = document.styles["Heading 1"]
    for text, at in (("Fees", 1), ("Late fees", 2), ("Notice", 1)):
        document.add_heading(text, at)
        document.add_paragraph("Four.")
    assert texts(document, tmp_path) == ["Part I: Fees: Four.", "I.1 Late fees: Four.", "Part II: Notice: Four."]


def test_lists_of_one_kind_go_on_but_where_one_begins_anew(tmp_path: Path):
    document = docx.Document()
    never = '<w:start w:val="0"/><w:lvlRestart w:val="0"/>'
    legal = level(2, "decimalZero", "%1/%3", "<w:isLgl/>")
    describe(document, 90, level(0, "upperLetter", "%1)", '<w:start w:val="27"/>'), level(1, "none", "", never), legal)
    describe(document, 91, kind=90)
    changes = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>'
    describe(document, 92, kind=90, changes=changes)
    items(document, (90, 0, "a"), (91, 0, "b"), (91, 1, "no number"), (92, 0, "c"), (92, 2, "d"), (92, 0, "e"))
    items(document, (91, 0, "f"))
    describe(document, 93, level(0, "decimal", "%1.%2"), level(1, "decimal", "%2", never))
    items(document, (93, 1, "x"), (93, 0, "y"), (93, 1, "z"))
    assert texts(document, tmp_path) == ["AA) a BB) b - no number E) c 5/1 d F) e G) f 0 x 1.0 y 1 z"]


def test_a_kind_of_lists_may_be_a_style_s(tmp_path: Path):
    document = docx.Document()
    style = document.styles.add_style("Clauses", docx.enum.style.WD_STYLE_TYPE.LIST)
    describe(document, 90, *CLAUSES)
    put(style.element, 90)
    describe(document, 91, f'<w:numStyleLink w:val="{style.style_id}"/>')
    items(document, (91, 0, "Scope"), (91, 1, "Boats."))
    assert texts(document, tmp_path) == ["1. Scope 1.1 Boats."]


def test_a_column_of_numbers_is_read(tmp_path: Path):
    """Its cells have no text at all."""
    document = docx.Document()
    describe(document, 90, *CLAUSES)
    table = document.add_table(3, 2)
    for row, cells in zip(table.rows, (("No.", "Part"), ("", "Pump"), ("", "Valve")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    for row in table.rows[1:]:
        put(row.cells[0].paragraphs[0]._p, 90, 0)
    items(document, (90, 0, "Behind"))
    assert texts(document, tmp_path) == ["No.: 1; Part: Pump. No.: 2; Part: Valve. 3. Behind"]


def test_a_clause_s_number_is_not_cut_off(tmp_path: Path):
    """It looks like the end of a sentence."""
    document = docx.Document()
    describe(document, 90, level(0, "lowerRoman", "%1."))
    document.add_paragraph("On each day " * 25 + "the tenant shall:")
    items(document, (90, 0, "pay " + "at once " * 40 + "in cash."))
    assert "shall: i. pay at once" in texts(document, tmp_path)[0]
