"""A docx file is read as Word shows it: headings, tables, notes, formulas, and what tracked changes leave."""

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.utils.errors import InputError

docx = pytest.importorskip("docx", reason="needs the extra documents")
element = pytest.importorskip("docx.oxml").OxmlElement
Part, PackURI = pytest.importorskip("docx.opc.part").Part, pytest.importorskip("docx.opc.packuri").PackURI


def test_a_docx_is_read_with_headings_and_tables(tmp_path: Path):
    document = docx.Document()
    document.core_properties.title = "The Handbook"
    document.add_paragraph("Before all.")
    document.add_heading("Leave", 1)
    document.add_paragraph("Thirty days.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Sickness", "paid"
    document.add_heading("Notice", 2)
    document.add_paragraph("Four weeks.")
    document.save(str(tmp_path / "h.docx"))
    found = [(p.pid, p.title, p.text, p.metadata) for p in read_documents(tmp_path / "h.docx")]
    assert found == [
        ("h.docx#1", "The Handbook", "Before all.", {}),
        ("h.docx#2", "The Handbook", "Leave: Thirty days. Sickness; paid.", {"section": "Leave"}),
        ("h.docx#3", "The Handbook", "Notice: Four weeks.", {"section": "Notice"}),
    ]
    (tmp_path / "no.docx").write_bytes(b"x")
    with pytest.raises(InputError, match=r"no\.docx: not a docx file"):
        list(read_documents(tmp_path / "no.docx"))


def test_a_text_box_in_a_cell_is_read_no_more_than_one_elsewhere(tmp_path: Path):
    """It was read twice: Word writes it for newer and for older versions."""
    document = docx.Document()
    cell = document.add_table(1, 1).cell(0, 0)
    cell.text = "Cell"
    run = cell.paragraphs[0].add_run()._r
    for _ in range(2):
        box, inner, text = element("w:txbxContent"), element("w:p"), element("w:r")
        text.text = "BOX"
        inner.append(text)
        box.append(inner)
        run.append(box)
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == ["Cell."]


def test_rows_of_a_docx_table_carry_the_names_of_their_columns(tmp_path: Path):
    document = docx.Document()
    document.add_heading("Pool", 1)
    document.add_heading("Hours", 2)
    document.add_paragraph("Bring a towel.", style="List Bullet")
    document.paragraphs[2]._p.get_or_add_pPr().get_or_add_numPr()
    table = document.add_table(3, 2)
    for row, cells in enumerate((("Day", "Open"), ("Monday", "9 to 5"), ("Sunday", ""))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    table.rows[0]._tr.get_or_add_trPr().append(element("w:tblHeader"))
    inner = document.add_table(1, 2)
    inner.cell(0, 0).text = "Out"
    inner.cell(0, 1).add_table(1, 2).cell(0, 0).text = "in"
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [
        "Pool: Hours: - Bring a towel. Day: Monday; Open: 9 to 5. Day: Sunday. Out; in."
    ]


def test_a_docx_table_of_labels_and_values_has_no_names_of_columns(tmp_path: Path):
    """The first row, a label and a name, was read as names: `Name: Room:; Anna Berg: 201.`"""
    document = docx.Document()
    table = document.add_table(3, 2)
    for row, cells in zip(table.rows, (("Name:", "Anna Berg"), ("Room:", "201"), ("Phone:", "12 34")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == ["Name: Anna Berg. Room: 201. Phone: 12 34."]


def test_items_of_a_docx_list_are_marked_also_where_only_their_style_says_so(tmp_path: Path):
    document = docx.Document()
    own = document.styles.add_style("Steps", docx.enum.style.WD_STYLE_TYPE.PARAGRAPH)
    own.base_style = document.styles["List Number"]
    for text, style in (
        ("Sound the alarm", "List Bullet"),
        ("Call the brigade", "Steps"),
        ("Leave", "Normal"),
        ("Quickly", "Subtitle"),  # whose style has a level of lists, and no list
    ):
        document.add_paragraph(text, style=style)
    none = document.add_paragraph("Wardens:", style="List Bullet")._p.get_or_add_pPr().get_or_add_numPr()
    none.get_or_add_numId().val = 0
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [
        "- Sound the alarm 1. Call the brigade Leave Quickly Wardens:"
    ]


@pytest.mark.parametrize(
    ("rows", "bold", "text"),
    [
        ("Service Phone,Desk 5000,Canteen 53", (), "Service: Desk; Phone: 5000. Service: Canteen; Phone: 53."),
        ("Who What,Ada welder", (0,), "Who: Ada; What: welder."),
        ("Who What,Ada welder", (0, 1), "Who; What. Ada; welder."),
        ("Who What,Ada welder,Bo cook", (), "Who; What. Ada; welder. Bo; cook."),
        ("Start 2020,Rent 940,Flat 68", (), "Start; 2020. Rent; 940. Flat; 68."),
    ],
)
def test_a_first_row_that_looks_like_the_columns_names_is_read_as_such(
    tmp_path: Path, rows: str, bold: tuple, text: str
):
    document, cells = docx.Document(), [row.split() for row in rows.split(",")]
    table = document.add_table(len(cells), 2)  # python-docx, as Word, says of each that its first row is special
    for number, words in enumerate(cells):
        for column, word in enumerate(words):
            table.cell(number, column).paragraphs[0].add_run(word).bold = number in bold
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [text]


def test_the_title_of_a_docx_is_no_passage_of_its_own(tmp_path: Path):
    for name, headings in (("a", (("Guide", 0), ("Leave", 1))), ("b", (("Guide", 0),))):
        document = docx.Document()
        for text, level in headings:
            document.add_heading(text, level)
        if name == "a":
            document.add_paragraph("Thirty days.")
        document.save(str(tmp_path / f"{name}.docx"))
    assert [(p.title, p.text) for p in read_documents(tmp_path)] == [
        ("Guide", "Leave: Thirty days."),
        ("Guide", "Guide"),  # where there is nothing else
    ]


def test_a_docx_that_tells_no_title_is_called_by_its_name(tmp_path: Path):
    """Google Docs writes no properties, and python-docx makes up the title `Word Document` then."""
    document, file = docx.Document(), tmp_path / "travel_policy.docx"
    document.add_paragraph("Trains before planes.")
    document.save(str(tmp_path / "whole.docx"))
    with ZipFile(tmp_path / "whole.docx") as whole, ZipFile(file, "w") as without:
        for part in whole.namelist():  # what is related to the file by another word is not looked for
            without.writestr(part, whole.read(part).replace(b"/core-properties", b"/other"))
    assert [p.title for p in read_documents(file)] == ["Travel Policy"]


def test_hidden_text_of_a_docx_is_not_read(tmp_path: Path):
    document = docx.Document()
    paragraph = document.add_paragraph("The price is ")
    for words, hidden in (("90 euros", True), ("120 euros", None), (", all included", False)):
        paragraph.add_run(words).font.hidden = hidden
        paragraph.add_run("99").font.strike = True
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == ["The price is 120 euros, all included"]


def test_a_docx_has_its_notes_where_they_are_referred_to(tmp_path: Path):
    document = docx.Document()
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'

    def refer(paragraph: Any, kind: str, number: int) -> Any:
        reference = element(f"w:{kind}Reference")
        reference.set(f"{{{paragraph._p.nsmap['w']}}}id", str(number))
        paragraph.add_run()._r.append(reference)
        return paragraph

    for kind, text in (("footnote", "The fee is 40 crowns."), ("endnote", "It was 30 before.")):
        note = f'<w:{kind} w:id="1"><w:p><w:r><w:t>{text}</w:t></w:r></w:p><w:p><w:r><w:t>See 2.</w:t></w:r></w:p>'
        line = f'<w:{kind} w:id="0" w:type="separator"><w:p><w:r><w:separator/></w:r></w:p></w:{kind}>'
        part = f"<w:{kind}s {names}>{line}{note}</w:{kind}></w:{kind}s>".encode()
        kind_of_part = f"application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}s+xml"
        held = Part(PackURI(f"/word/{kind}s.xml"), kind_of_part, part, document.part.package)
        document.part.relate_to(held, f"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}s")
    refer(document.add_paragraph("Cards cost a fee."), "footnote", 1)
    refer(document.add_heading("Earlier", 1), "endnote", 1)
    refer(document.add_table(1, 1).cell(0, 0).paragraphs[0], "footnote", 7).add_run("No such note.")
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [
        "Cards cost a fee. The fee is 40 crowns. See 2.",
        "Earlier: It was 30 before. See 2. No such note.",
    ]


def test_of_a_docx_with_tracked_moves_the_text_is_read_where_it_is_now(tmp_path: Path):
    document = docx.Document()
    for name in ("moveTo", "customXml", "dir", "bdo", "moveFrom", "del"):
        held = document.add_paragraph("")._p
        held.append(element(f"w:{name}"))
        held[-1].append(document.add_paragraph().add_run(f"In {name}.")._r)
    block = element("w:moveTo")
    block.append(document.add_paragraph("A block.")._p)
    document.element.body.insert(0, block)
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [
        "A block. In moveTo. In customXml. In dir. In bdo."
    ]


def parsed(xml: str) -> Any:
    """An element of a docx file, of what stands in it."""
    word, math = "wordprocessingml/2006/main", "officeDocument/2006/math"
    names = " ".join(
        f'xmlns:{short}="http://schemas.openxmlformats.org/{name}"' for short, name in (("w", word), ("m", math))
    )
    return pytest.importorskip("docx.oxml").parse_xml(xml.replace(">", f" {names}>", 1))


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def row(*cells: str, kind: str = "") -> str:
    return f"<w:tr><w:trPr>{kind}</w:trPr>{''.join(f'<w:tc><w:p>{run(cell)}</w:p></w:tc>' for cell in cells)}</w:tr>"


def test_of_a_docx_words_with_their_reading_above_and_formulas_are_read(tmp_path: Path):
    document = docx.Document()
    base = run("\u6771\u4eac")
    ruby = f"<w:r><w:ruby><w:rt>{run('Tokyo')}</w:rt><w:rubyBase>{base}</w:rubyBase></w:ruby></w:r>"
    power = "<m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    half = "<m:f><m:num><m:r><m:t>1</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r></m:den></m:f>"
    formula = f"<m:oMath><m:r><m:t>E=m</m:t></m:r>{power}<m:r><m:t>+3</m:t></m:r>{half}</m:oMath>"
    for place, xml in enumerate((f"<w:p>{ruby}</w:p>", f"<w:p>{run('So ')}<m:oMathPara>{formula}</m:oMathPara></w:p>")):
        document.element.body.insert(place, parsed(xml))
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == ["\u6771\u4eac So E=mc^2+3 1/2"]


def test_repeated_rows_of_a_docx_are_rows_and_deleted_ones_are_not_read(tmp_path: Path):
    document = docx.Document()
    repeated = f"<w:sdt><w:sdtContent>{row('Aspirin', '100 mg')}{row('Ibuprofen', '400 mg')}</w:sdtContent></w:sdt>"
    gone = row("Morphine", "10 mg", kind="<w:del/>")
    table = f"<w:tbl>{row('Drug', 'Dose', kind='<w:tblHeader/>')}{repeated}{gone}</w:tbl>"
    document.element.body.insert(0, parsed(table))
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [
        "Drug: Aspirin; Dose: 100 mg. Drug: Ibuprofen; Dose: 400 mg."
    ]


def test_a_number_that_is_raised_in_a_docx_does_not_grow_together_with_the_one_before(tmp_path: Path):
    document = docx.Document()
    paragraph = document.add_paragraph("Some 10")
    for part, raised in [("-", True), ("6", True), (" mol, 500", False), ("1", True), (" men, 5", False), ("th", True)]:
        paragraph.add_run(part).font.superscript = raised
    paragraph.add_run(", 3")
    paragraph.add_run("1").font.superscript = True
    paragraph.add_run("/")
    paragraph.add_run("2").font.subscript = True
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == ["Some 10^-6 mol, 500^1 men, 5th, 3 1/2"]


def test_a_heading_in_a_style_of_ones_own_begins_a_section(tmp_path: Path):
    """Its text stood under the heading before it."""

    def styled(name: str, base: str | None, outline: str = "") -> None:
        style = document.styles.add_style(name, docx.enum.style.WD_STYLE_TYPE.PARAGRAPH)
        style.base_style = document.styles[base] if base else None
        if outline:
            told = element("w:outlineLvl")
            told.set(f"{{{told.nsmap['w']}}}val", outline)
            style.element.get_or_add_pPr().append(told)

    document = docx.Document()
    styled("Chapter", "Heading 1")
    styled("Part of a chapter", "Chapter")
    styled("Contents", "Heading 1", outline="9")
    styled("Marked", None, outline="1")
    for text, style in [
        ("Fees", "Heading 1"),
        ("Twelve a day.", None),
        ("Ferries", "Chapter"),
        ("At nine.", None),
        ("Cranes", "Part of a chapter"),
        ("Forty tons.", None),
        ("Where", "Contents"),
        ("Below", "Subtitle"),
        ("Tugs", "Marked"),
        ("Two.", None),
        ("The crew is paid by " + "the day and " * 5 + "night", "Marked"),
        ("Pets are not allowed.", "Marked"),
        ("Article 5.", "Chapter"),
        ("Why pay more?", "Part of a chapter"),
        ("No.", None),
    ]:
        document.add_paragraph(text, style=style)
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [
        "Fees: Twelve a day.",
        "Ferries: At nine.",
        "Cranes: Forty tons. Where Below",
        "Tugs: Two. The crew is paid by " + "the day and " * 5 + "night Pets are not allowed.",
        "Article 5.",
        "Why pay more?: No.",
    ]


def test_a_paragraph_in_the_style_of_a_list_is_read(tmp_path: Path):
    document = docx.Document()
    numbers = document.styles.add_style("Numbers", docx.enum.style.WD_STYLE_TYPE.LIST)
    document.add_paragraph("Sound the alarm.")._p.get_or_add_pPr().get_or_add_pStyle().val = numbers.style_id
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == ["Sound the alarm."]


@pytest.mark.parametrize(
    ("rows", "merged", "names", "text"),
    [
        (  # one that spans rows stands in each
            ["Region|Town|Fee", "North|Alta|12", "|Bodo|13", "Total||25"],
            [((1, 0), (2, 0)), ((3, 0), (3, 1))],
            [0],
            "Region: North; Town: Alta; Fee: 12. Region: North; Town: Bodo; Fee: 13. Region: Total; Fee: 25.",
        ),
        (  # names in two rows
            ["Line|Fare||Note", "|Adult|Child|", "A|3|2|new"],
            [((0, 0), (1, 0)), ((0, 1), (0, 2)), ((0, 3), (1, 3))],
            [0, 1],
            "Line: A; Fare Adult: 3; Fare Child: 2; Note: new.",
        ),
        (  # a caption, and what heads the rows below it
            ["Fees of 2024||", "Town|Fee|Tax", "The north||", "Alta|1|2"],
            [((0, 0), (0, 2)), ((2, 0), (2, 2))],
            [1],
            "Fees of 2024. The north. Town: Alta; Fee: 1; Tax: 2.",
        ),
        (["Town|Fee", "None yet|"], [((1, 0), (1, 1))], [0], "Town; Fee. None yet."),
    ],
)
def test_cells_of_a_docx_table_that_are_merged_are_read_with_all_that_they_span(
    rows: list[str], merged: list[Any], names: list[int], text: str, tmp_path: Path
):
    """One merged cell, and no row of the table was read with the names of its columns."""
    document = docx.Document()
    table = document.add_table(len(rows), rows[0].count("|") + 1)
    for number, row in enumerate(rows):
        for cell, told in zip(table.rows[number].cells, row.split("|"), strict=True):
            cell.text = told
    for first, last in merged:
        table.cell(*first).merge(table.cell(*last))
    for number in names:
        table.rows[number]._tr.get_or_add_trPr().append(element("w:tblHeader"))
    document.save(str(tmp_path / "h.docx"))
    assert [p.text for p in read_documents(tmp_path / "h.docx")] == [text]
