"""pdf files are read page by page; what cannot be read is named, never garbled."""

import re
from pathlib import Path

import pytest

from raisf.retrieval.corpus.pdf import _accented, _unbroken
from raisf.retrieval.corpus.pdf_page import text_of
from raisf.retrieval.corpus.reading import log_skipped, read_documents
from raisf.retrieval.index import build_index
from raisf.utils.errors import InputError
from tests.retrieval.conftest import reading_error_of

pypdf = pytest.importorskip("pypdf", reason="needs the extra documents")


def make_pdf(path: Path, *pages: str) -> Path:
    """A pdf file of one line of text a page, written by hand after the format's reference."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        content = f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {content} >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body, offsets = "%PDF-1.4\n", []
    for number, text in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
    body += f"{end}<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    path.write_bytes(body.encode("latin-1"))
    return path


def test_a_pdf_is_cited_by_its_pages(tmp_path: Path):
    file = make_pdf(tmp_path / "staff_handbook.pdf", "Holidays are thirty days.", "", "Notice is four weeks.")
    found = [(p.pid, p.title, p.text, p.citation) for p in read_documents(file)]
    assert found == [
        ("staff_handbook.pdf#1", "Staff Handbook", "Holidays are thirty days.", "staff_handbook.pdf, page 1"),
        ("staff_handbook.pdf#2", "Staff Handbook", "Notice is four weeks.", "staff_handbook.pdf, page 3"),
    ]
    index = build_index(file, tmp_path / "i", "bm25")
    assert [p.metadata["page"] for p in index("notice holidays", 5, "source = 'staff_handbook.pdf' and page > 1")] == [
        3
    ]


def test_dots_that_lead_to_a_page_are_no_words(tmp_path: Path):
    entries = [f"{number} Chapter {number} {' .' * 60} {number + 2}" for number in range(1, 5)]
    written = [make_pdf(tmp_path / "handbook.pdf", " ".join(entries)), tmp_path / "handbook.txt"]
    written[1].write_text("Contents of it all: etc. ... and so on. . .\n\nPart one ........ 3\n......\nTwo")
    told = ["1 Chapter 1 3 2 Chapter 2 4 3 Chapter 3 5 4 Chapter 4 6", "Contents of it all: etc. ... and so on. . ."]
    told[1] += " Part one 3 Two"
    assert [[p.text for p in read_documents(file)] for file in written] == [[one] for one in told]


def test_pages_of_pictures_alone_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    pages = pypdf.PdfWriter(clone_from=make_pdf(tmp_path / "plain.pdf", "One.", "", "Three.", "", ""))
    picture = pypdf.generic.StreamObject()
    sizes = {"/Width": 1, "/Height": 1, "/BitsPerComponent": 8}
    picture.update({pypdf.generic.NameObject(key): pypdf.generic.NumberObject(size) for key, size in sizes.items()})
    for key, value in (("/Type", "/XObject"), ("/Subtype", "/Image"), ("/ColorSpace", "/DeviceGray")):
        picture[pypdf.generic.NameObject(key)] = pypdf.generic.NameObject(value)
    named = pypdf.generic.DictionaryObject({pypdf.generic.NameObject("/I1"): pages._add_object(picture)})
    for number in (0, 1, 3):  # the last page is blank, which is nothing lost
        pages.pages[number]["/Resources"][pypdf.generic.NameObject("/XObject")] = named
    pages.write(tmp_path / "half.pdf")
    assert [p.text for p in build_index(tmp_path / "half.pdf", tmp_path / "i", "bm25").passages] == ["One.", "Three."]
    told = "are not in the index, the first of them page 2"
    assert "half.pdf: 2 of its 5 pages have no text, only pictures" in caplog.text
    assert told in caplog.text
    caplog.clear()
    build_index(tmp_path / "plain.pdf", tmp_path / "i", "bm25")
    assert "pictures" not in caplog.text
    pages.add_metadata({"/Title": "One."})
    pages.write(tmp_path / "half.pdf")  # its first page is a cover now: the title and a picture
    assert [p.text for p in build_index(tmp_path / "half.pdf", tmp_path / "j", "bm25").passages] == ["Three."]
    assert told in caplog.text


def test_pdfs_that_cannot_be_read_are_named(tmp_path: Path):
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    assert "broken.pdf: not a pdf file that can be read" in reading_error_of(tmp_path / "broken.pdf")
    whole = make_pdf(tmp_path / "open.pdf", "Secret.")
    locked = pypdf.PdfWriter(clone_from=whole)
    locked.encrypt("password", algorithm="RC4-128")
    locked.write(tmp_path / "locked.pdf")
    assert "locked.pdf is locked with a password" in reading_error_of(tmp_path / "locked.pdf")
    with pytest.raises(InputError, match=r"scan\.pdf: has no text, only pictures perhaps"):
        build_index(make_pdf(tmp_path / "scan.pdf", "", ""), tmp_path / "i", "bm25")


def test_a_pdf_of_which_a_page_cannot_be_read_is_named_and_its_older_version_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """pypdf goes on without such a page: its passages would be gone, or the next page cited by its number."""
    (tmp_path / "docs").mkdir()
    file = make_pdf(tmp_path / "docs" / "a.pdf", "One.", "", "Three.")
    whole = file.read_bytes()
    packed = pypdf.PdfWriter(clone_from=file)
    packed.pages[0].compress_content_streams()
    packed.write(tmp_path / "packed.pdf")
    torn = re.sub(
        rb"(/FlateDecode.*?\nstream\n)x", rb"\1y", (tmp_path / "packed.pdf").read_bytes(), count=1, flags=re.DOTALL
    )
    harmed = {
        "page 1 cannot be read (Error -3 while decompressing": torn,
        "page 1 cannot be read (Object 77 0 not defined": whole.replace(b"/Contents 5 0 R", b"/Contents 77 0 R"),
        "page 1 cannot be read (PdfReadError(": whole.replace(b"/Contents 5 0 R", b"/Contents ) 0 R"),
        "one of its pages cannot be read (Object 77 0 not defined": whole.replace(b"[4 0 R", b"[77 0 R"),
    }
    build_index(tmp_path / "docs", tmp_path / "i", "bm25", skip=log_skipped)
    for told, content in harmed.items():
        file.write_bytes(content)
        index = build_index(tmp_path / "docs", tmp_path / "i", "bm25", skip=log_skipped)
        assert [p.text for p in index.passages] == ["One.", "Three."]
        assert f"a.pdf was skipped: {told}" in caplog.text
    # What no page needs may be missing.
    for part in (b"/Root 1 0 R", b"/Contents 5 0 R"):
        file.write_bytes(whole.replace(part, part + b" /Metadata 77 0 R /Info << /Title 77 0 R >>"))
        assert [p.text for p in read_documents(file)] == ["One.", "Three."]


def test_a_blank_page_without_its_font_costs_no_other_page(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = make_pdf(tmp_path / "a.pdf", "One.", "", "Three.")
    head, *fonts = file.read_bytes().split(b"/F1 3 0 R")
    file.write_bytes(b"".join((head, b"/F1 3 0 R", fonts[0], b"/F1 99 0 R", fonts[1], b"/F1 3 0 R", fonts[2])))
    assert [p.citation for p in read_documents(tmp_path)] == ["a.pdf, page 1", "a.pdf, page 3"]
    assert "1 of its 3 pages" in caplog.text


def test_a_pdf_that_only_forbids_to_print_is_read(tmp_path: Path):
    pages = pypdf.PdfWriter(clone_from=make_pdf(tmp_path / "a.pdf", "Open to all."))
    pages.encrypt("", "the owner's", algorithm="AES-256")
    pages.write(tmp_path / "a.pdf")
    assert [p.text for p in read_documents(tmp_path)] == ["Open to all."]


def test_a_word_that_may_be_broken_is_found_whole(tmp_path: Path):
    (tmp_path / "p.html").write_text("<h1>Donau&shy;schiff</h1><p>The Donau&shy;dampf&shy;schiff left.")
    (tmp_path / "q.txt").write_text("The dampf\u00ad\nschiff came.")
    index = build_index(tmp_path, tmp_path / "i", "bm25")
    assert [(p.title, p.text) for p in index("Donaudampfschiff", 5)] == [("Donauschiff", "The Donaudampfschiff left.")]
    assert [p.text for p in index("dampf\u00adschiff", 5)] == ["The dampfschiff came."]
    # On a page in a pdf every sign is seen.
    assert _unbroken(["A well\u00adknown dough\u00ad\nnut"]) == ["A well-known doughnut"]


def test_letters_that_are_set_as_one_are_letters_on_a_page():
    assert _unbroken(["The \ufb01rst su\ufb03x of-\n\ufb01ce"]) == ["The first suffix office"]


@pytest.mark.parametrize(
    ("set_by_tex", "read"),
    [
        (
            "Schr\u00a8 odinger, Poincar\u00b4 e, Erd\u02dd os, na\u00a8 \u0131ve",
            "Schr\u00f6dinger, Poincar\u00e9, Erd\u0151s, na\u00efve",
        ),
        ("Schr\u00a8odinger, \u00b4Elan, Universit` a", "Schr\u00f6dinger, \u00c9lan, Universit\u00e0"),
        ("it\u00b4s a.example/\u02dcanna x\u02c6a at 45\u02da angles", None),
        ("`name` and Universit` a", None),
        ("C\u00b8elik, Fran\u00b8cois of Koc\u00b8 Lab", "\u00c7elik, Fran\u00b8cois of Ko\u00e7 Lab"),
        ("lm(y \u02dc age), if (a \u02c6 e)", None),
    ],
)
def test_a_letter_and_the_accent_that_tex_sets_over_it_are_one(set_by_tex: str, read: str | None):
    assert _accented([set_by_tex], "pdfTeX-1.40.24 TeX") == [read or set_by_tex]
    # These write letters with accents as one: what stands alone is an apostrophe, `the students\u00b4 answers`.
    for other in ("LibreOffice 7.4 Writer", "xdvipdfmx XeTeX", "LuaHBTeX-1.15"):
        assert _accented([set_by_tex], other) == [set_by_tex]


def test_a_minus_at_a_lines_end_is_no_hyphen():
    kept = "Poland A-\nItaly BBB, paid 200-\n13 May, 300-\nTotal"
    assert _unbroken([kept]) == [kept]
    assert _unbroken(["U-\nBahn, COVID-\n19 and an ELE-\nMENT, ELEMENT"]) == [
        "U-Bahn, COVID-19 and an ELEMENT, ELEMENT"
    ]


def test_names_in_a_pdf_of_tex_are_found(tmp_path: Path):
    pages = pypdf.PdfWriter(clone_from=make_pdf(tmp_path / "a.pdf", r"Schr\310 odinger met Erwin."))
    pages.add_metadata({"/Creator": "TeX", "/Producer": "pdfTeX-1.40.24"})
    pages.write(tmp_path / "a.pdf")
    assert [p.text for p in read_documents(tmp_path)] == ["Schr\u00f6dinger met Erwin."]


def test_pages_whose_fonts_do_not_tell_their_letters_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """`'DQXEH` for `Danube` would be found by nobody."""
    name, make = pypdf.generic.NameObject, pypdf.generic.DictionaryObject
    coded = make({name("/Type"): name("/Font"), name("/Subtype"): name("/Type0"), name("/BaseFont"): name("/A")})
    coded[name("/Encoding")] = name("/Identity-H")
    coded[name("/DescendantFonts")] = pypdf.generic.ArrayObject([make({name("/Subtype"): name("/CIDFontType2")})])
    shapes, unicode = (
        "".join(f"\\000\\{ord(letter) - shift:03o}" for letter in "The Danube flows on.") for shift in (29, 0)
    )
    capitals = "".join(f"\\000{letter}" for letter in "DANUBE 2850")
    named = make({**coded, name("/ToUnicode"): name("/Identity-H")})
    pages = pypdf.PdfWriter(clone_from=make_pdf(tmp_path / "a.pdf", shapes, unicode, "Three.", capitals))
    for number, font in ((0, coded), (1, coded), (3, named)):
        pages.pages[number]["/Resources"]["/Font"][name("/F1")] = font
    pages.write(tmp_path / "a.pdf")
    assert [p.citation for p in build_index(tmp_path / "a.pdf", tmp_path / "i", "bm25").passages] == [
        "a.pdf, page 2",
        "a.pdf, page 3",
        "a.pdf, page 4",
    ]
    assert "1 of its 4 pages have no text, only pictures or letters that their fonts do not tell" in caplog.text
    assert "the first of them page 1;" in caplog.text


NAMED_SHAPES = b"1 begincodespacerange <0000> <FFFF> endcodespacerange 1 beginbfrange <0004> <0009> <0041> endbfrange"


@pytest.mark.parametrize("encoding", ["/Identity-H", "/Identity-V"])
@pytest.mark.parametrize(
    ("text", "kind", "read"),
    [
        ("Signs) Tj /F2 12 Tf (\\000\\004\\000\\005) Tj /F1 12 Tf ( are rare.", None, "Signs\4\5 are rare."),
        (") Tj /F2 12 Tf (\\000\\004\\000\\005\\000\\006\\000\\004) Tj /F1 12 Tf (Oh", None, None),
        (") Tj /F2 12 Tf (\\000\\004\\000\\005\\000\\006", NAMED_SHAPES, "ABC"),
        (") Tj /F3 12 Tf (Of a font that is not there", None, None),
    ],
    ids=["some signs", "most signs", "a font that tells them", "no font"],
)
def test_a_page_is_read_if_most_of_its_letters_are_known(
    text: str, kind: bytes | None, read: str | None, encoding: str, tmp_path: Path
):
    name, make = pypdf.generic.NameObject, pypdf.generic.DictionaryObject
    font = make({name("/Type"): name("/Font"), name("/Subtype"): name("/Type0"), name("/BaseFont"): name("/A")})
    font[name("/Encoding")] = name(encoding)
    font[name("/DescendantFonts")] = pypdf.generic.ArrayObject([make({name("/Subtype"): name("/CIDFontType2")})])
    pages = pypdf.PdfWriter(clone_from=make_pdf(tmp_path / "a.pdf", text))
    if kind:
        told = pypdf.generic.StreamObject()
        told.set_data(kind)
        font[name("/ToUnicode")] = pages._add_object(told)
    pages.pages[0]["/Resources"]["/Font"][name("/F2")] = font
    pages.write(tmp_path / "a.pdf")
    found = text_of(pypdf.PdfReader(tmp_path / "a.pdf").pages[0])
    assert (found and found.strip()) == read


def test_a_raised_number_is_told_from_the_one_before_it(tmp_path: Path):
    def raised(number: str, size: int, rise: int) -> str:
        return f") Tj /F1 {size} Tf 3 {rise} Td ({number}) Tj /F1 12 Tf 3 -{rise} Td ("

    words = ["The lake has 10", raised("6", 8, 4), " litres", raised("2", 8, 4), " since 1892", raised("3", 8, 4)]
    words += [", at 10", raised("-6", 8, 4), " bar, on 1", raised("1", 8, 4), "/2 km in 20", raised("21", 12, 4)]
    words += [" and 19", raised("99", 8, 0), "."]
    make_pdf(tmp_path / "a.pdf", "".join(words))
    told = "The lake has 10^6 litres2 since 1892^3, at 10^-6 bar, on 1 1/2 km in 2021 and 1999."
    assert [p.text for p in read_documents(tmp_path)] == [told]


@pytest.mark.parametrize(
    ("drawn", "read"),
    [
        ("q .5 0 0 .5 0 0 cm BT /F1 16 Tf 172 1408 Td (6) Tj ET Q", "10^6"),
        ("q .5 0 0 .5 0 0 cm BT /F1 24 Tf 172 1400 Td (6) Tj ET Q", "106"),
        ("q 1 0 0 1 0 4 cm BT /F1 8 Tf 100 700 Td (6) Tj ET Q", "10 6"),  # behind a gap it is none of the number's
        ("q 0 1 -1 0 700 0 cm BT /F1 12 Tf 90 90 Td (20) Tj /F1 8 Tf 3 4 Td (6) Tj ET Q", "10 20^6"),
    ],
    ids=["scaled", "as large", "apart", "sideways"],
)
def test_how_a_part_of_a_page_is_scaled_and_turned_counts_for_raised_numbers(drawn: str, read: str, tmp_path: Path):
    make_pdf(tmp_path / "a.pdf", f"10) Tj ET {drawn} BT (")
    found = text_of(pypdf.PdfReader(tmp_path / "a.pdf").pages[0])
    assert found and " ".join(found.split()) == read


def test_what_is_filled_into_a_form_is_read(tmp_path: Path):
    notes = {
        "/Subtype /Widget /FT /Tx /T (f1_01[0]) /TU (Name of tenant:) /V (Ada Hill)": "Name of tenant: Ada Hill",
        "/Subtype /Widget /FT /Tx /T (Town) /V (Skien)": "Town: Skien",
        "/Subtype /Widget /FT /Tx /T (Text1) /V (3 May)": "3 May",
        "/Subtype /Widget /Parent << /FT /Tx /T (Rent) /V (900) >>": "Rent: 900",
        "/Subtype /FreeText /Contents (Signed in Oslo.)": "Signed in Oslo.",
        "/Subtype /Widget /FT /Btn /T (Agreed) /V /Yes": None,
        "/Subtype /Widget /FT /Tx /T (Place) /TU (Town) /V (Skien)": None,
        "/Subtype /FreeText /Contents (Lease of land)": None,
        "/Subtype /Widget /FT /Tx /T (Secret) /V (1234) /Ff 8192": None,
        "/Subtype /Widget /FT /Tx /T (Unseen) /V (5678) /F 2": None,
        "/Subtype /Widget /FT /Tx /T (Never seen) /V (9012) /F 32": None,
        "/Subtype /Text /Contents (A comment.)": None,
        "/Subtype /Widget /FT /Tx /T (Empty)": None,
    }
    file = make_pdf(tmp_path / "a.pdf", "Lease) Tj 0 -14 Td (of land")
    whole = file.read_bytes()
    annotations = f"/Annots [77 0 R {' '.join(f'<< /Type /Annot {note} >>' for note in notes)}] /Contents 5 0 R"
    file.write_bytes(whole.replace(b"/Contents 5 0 R", annotations.encode()))
    assert [p.text for p in read_documents(file)] == [" ".join(["Lease of land", *filter(None, notes.values())])]
    file.write_bytes(
        whole.replace(b"/Contents 5 0 R", b"/Annots [<< /Subtype /Widget /F (no flags) >>] /Contents 5 0 R")
    )
    assert [p.text for p in read_documents(file)] == ["Lease of land"], "whatever stands beside it"


def test_a_compound_keeps_its_hyphen_at_a_lines_end(tmp_path: Path):
    """Where the file has it elsewhere with the hyphen, and never without."""
    below = ") Tj 0 -14 Td ("  # begins the next line
    lines = ("A cost-", "effective plan for long-", "term co-", "operation is 3-dimen-", "sional.")
    page = "Cost-effective and long-term co-operation? Cooperation."
    file = make_pdf(tmp_path / "a.pdf", below.join(lines), page)
    assert next(read_documents(file)).text == "A cost-effective plan for long-term cooperation is 3-dimensional."


def test_the_title_of_a_pdf_is_not_repeated_in_its_text(tmp_path: Path):
    """`The Halden Viaduct | The Halden Viaduct The Halden Viaduct is ...`, and a first page that is but a title."""
    make_pdf(tmp_path / "halden_viaduct.pdf", "HALDEN VIADUCT", "Halden Viaduct is a bridge.")
    make_pdf(tmp_path / "lorne_valley.pdf", "Lorne Valley")
    assert [p.text for p in read_documents(tmp_path)] == ["Halden Viaduct is a bridge.", "Lorne Valley"]


def test_a_missing_library_is_told_by_the_extras_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pypdf", None)
    assert "needs the extra `documents`" in reading_error_of(make_pdf(tmp_path / "a.pdf", "Text."))
