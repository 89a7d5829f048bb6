"""Makes documents that are broken, misleading or meant to harm, of every kind that is read, each from a seed."""

import bz2
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)
_WORDS = "Danube Hamlet chess radium octopus \u6c34 \u05e9\u05dc\u05d5\u05dd caf\u00e9 \x1b[31mred".split(" ")


def make(seed: int, folder: Path) -> Path:
    """Writes the document of a seed into a folder.

    Returns:
        The file, named by its seed and of a kind that is read.
    """
    rng = random.Random(seed)
    kind = rng.choice([*_MAKERS])
    content = rng.choice(_MAKERS[kind])(rng)
    if rng.random() < 0.4:
        content = _spoilt(rng, content)
    file = folder / f"{seed}{kind}"
    file.write_bytes(content)
    return file


def words(rng: random.Random, count: int) -> str:
    """Some words."""
    return " ".join(rng.choices(_WORDS, k=count))


def docx(body: str, **parts: str | bytes) -> bytes:
    """A docx file with the XML of a body, and other parts by their paths."""
    out = io.BytesIO()
    document = f'<?xml version="1.0"?><w:document {_W}><w:body>{body}</w:body></w:document>'
    given = {"[Content_Types].xml": _TYPES, "_rels/.rels": _RELS, "word/document.xml": document, **parts}
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in given.items():
            packed.writestr(name, content)
    return out.getvalue()


def table(rows: int, cell: str) -> str:
    """A docx table of one cell a row."""
    return f"<w:tbl>{f'<w:tr><w:tc>{cell}<w:p><w:r><w:t>cell</w:t></w:r></w:p></w:tc></w:tr>' * rows}</w:tbl>"


def paragraph(text: str) -> str:
    """A docx paragraph."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def pdf(content: bytes, *, pages: str = "3 0 R", extra: bytes = b"") -> bytes:
    """A pdf file of one page with a content stream."""
    return (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        + f"2 0 obj<</Type/Pages/Kids[{pages}]/Count 1>>endobj\n".encode()
        + b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</Font<</F1 5 0 R>>>>/Contents 4 0 R>>endobj\n"
        + b"4 0 obj<</Length %d%s>>stream\n" % (len(content), extra)
        + content
        + b"\nendstream endobj\n5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\n"
        + b"trailer<</Root 1 0 R/Size 6>>\nstartxref\n0\n%%EOF\n"
    )


def _spoilt(rng: random.Random, content: bytes) -> bytes:
    """Bytes cut off, turned, doubled or put in."""
    raw = bytearray(content or b"x")
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(raw))
        match rng.randrange(4):
            case 0:
                raw[at] = rng.randrange(256)
            case 1:
                del raw[at : at + rng.randint(1, 40)]
            case 2:
                raw[at:at] = rng.randbytes(rng.randint(1, 40))
            case _:
                raw[at:at] = raw[at : at + 40] * rng.randint(1, 50)
        raw = raw or bytearray(b"x")
    return bytes(raw)


def _deep_html(rng: random.Random) -> bytes:
    depth, tag = rng.choice([100, 3_000, 20_000]), rng.choice(["div", "b", "table", "h1", "ul", "font"])
    return (f"<{tag}>" * depth + words(rng, 20) + f"</{tag}>" * depth).encode()


def _odd_charset(rng: random.Random) -> bytes:
    charset = rng.choice(
        "unicode_escape utf-7 utf_7 raw_unicode_escape idna punycode rot13 base64 zlib undefined utf-16 utf-32 hex "
        "mbcs cp65001 iso2022_jp shift_jis latin-1 klingon".split()
    )
    return f'<meta charset="{charset}"><p>{words(rng, 30)} \\ud800 +2AA-'.encode() + rng.randbytes(20)


def _bomb(rng: random.Random) -> bytes:
    megabytes = rng.choice([1, 20, 60])
    return docx(paragraph(words(rng, 5)) * 10 + paragraph("a" * (megabytes << 20)))


def _spans(rng: random.Random) -> bytes:
    merge = '<w:vMerge w:val="continue"/>' if rng.random() < 0.5 else ""
    span = rng.choice(["1000000", "-1", "x", "99999999999999999999"])
    return docx(table(rng.choice([1, 50, 2_000]), f'<w:tcPr><w:gridSpan w:val="{span}"/>{merge}</w:tcPr>'))


def _entities(rng: random.Random) -> bytes:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "lol"}">' for n in range(12))
    external = '<!ENTITY x SYSTEM "file:///etc/passwd">'
    document = (
        f"<!DOCTYPE w [{entities}{external}]><w:document {_W}><w:body>{paragraph('&e11;&x;')}</w:body></w:document>"
    )
    return docx("", **{"word/document.xml": document})


def _deep_docx(rng: random.Random) -> bytes:
    depth = rng.choice([50, 300, 20_000])
    return docx("<w:tbl><w:tr><w:tc>" * depth + paragraph("deep") + "</w:tc></w:tr></w:tbl>" * depth)


def _bad_parts(rng: random.Random) -> bytes:
    name = rng.choice(
        ["[Content_Types].xml", "_rels/.rels", "word/document.xml", "docProps/core.xml", "word/styles.xml"]
    )
    return docx(paragraph("text"), **{name: rng.choice(["", "<", "<a/>", "\0", "<a>" * 400, b"\xff\xfe"])})


def _pdf(rng: random.Random) -> bytes:
    text = b"BT /F1 12 Tf (%s) Tj ET " % words(rng, 10).encode("latin-1", "replace")
    return pdf(text * rng.choice([0, 1, 2_000]), pages=rng.choice(["3 0 R", "2 0 R", "3 0 R " * 500, "9 0 R", "null"]))


def _pdf_filters(rng: random.Random) -> bytes:
    import zlib

    packed = zlib.compress(b"(a) Tj " * rng.choice([10, 3_000_000]))
    filters = rng.choice(
        [b"/FlateDecode", b"[/FlateDecode/FlateDecode]", b"/LZWDecode", b"/ASCII85Decode", b"/DCTDecode"]
    )
    return pdf(packed, extra=b"/Filter" + filters)


def _rows(rng: random.Random) -> bytes:
    values = [words(rng, 5), None, 3, [], ["a", "b"], {"text": "x"}, "\ud800", "a" * 100_000, True, 1e308]
    rows = [{"id": rng.choice(values), "text": rng.choice(values), "x": rng.choice(values)} for _ in range(20)]
    return "\n".join(json.dumps(row) for row in rows).encode()


def _deep_json(rng: random.Random) -> bytes:
    depth = rng.choice([500, 3_000, 200_000])
    return b'{"text": ' + b"[" * depth + b"]" * rng.choice([0, depth]) + b"}"


def _wide_table(rng: random.Random) -> bytes:
    columns = rng.choice([3, 2_000])
    name = "n" * rng.choice([1, 5_000])
    return f"text,{','.join(f'{name}{n}' for n in range(columns))}\n{words(rng, 5_000)}{',v' * columns}\n".encode()


def _quotes(rng: random.Random) -> bytes:
    return ("text,title\n" + "".join(rng.choices(['"', ",", "\n", "a", '""', "\r", "\0"], k=5_000))).encode()


def _long_title(rng: random.Random) -> bytes:
    return f"title,text\n{'t' * 1_000_000},{words(rng, 200_000)}\n".encode()


def _markdown(rng: random.Random) -> bytes:
    return rng.choice(
        [
            "# a" + " " * 60_000 + "b",
            "#" * 100_000,
            "# x\n" * 50_000,
            "# a" + " #" * 50_000 + " b",
            "`" * 100_000 + "\n" + "```\n" * 5_001,
            words(rng, 3_000),
        ]
    ).encode()


def _restructured(rng: random.Random) -> bytes:
    deep = rng.choice([20, 200, 1_000])
    return rng.choice(
        [
            "".join(f"{'  ' * depth}{rng.choice(['- x', '.. note::', 'x', '1. x'])}\n\n" for depth in range(deep)),
            "".join(f".. |a{n}| replace:: {f'|a{n + 1}| ' * 10}\n" for n in range(deep)) + "\n|a0| |a0|\n",
            ".. include:: /etc/passwd\n\n.. csv-table::\n   :file: /etc/passwd\n\n.. raw:: html\n   :url: file:///x\n",
            "+---+\n| a |\n" * 1_000,
            f"{words(rng, 3)}\n===\n---\n" * 1_000,
            rng.choice(["`a ", "*", "|a ", ":a:`", "a_ ", "[#]_ ", "`a <", ".. ", "::\n\n"]) * 5_000,
            words(rng, 3_000),
        ]
    ).encode()


def _mdx(rng: random.Random) -> bytes:
    piece = rng.choice(["<A ", '<a "', "<A x={", "{/*", "import {\n", "<A>\n  ", "</A>", "export const a = {\n\n"])
    return (piece * rng.choice([1, 20_000]) + words(rng, 100)).encode()


def _encoded(rng: random.Random) -> bytes:
    encoding = rng.choice(["utf-8", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7", "cp1252", "utf-8-sig"])
    return words(rng, 100).encode(encoding, "replace")


def _text(rng: random.Random) -> bytes:
    character = rng.choice(["a", ".", ")", "\u6c34", " ", "'", ". ", "\x1b", "\u202e", "\ufeff", "-\n"])
    return (character * rng.choice([0, 10, 1_000_000])).encode()


def _gzip(rng: random.Random) -> bytes:
    return gzip.compress(rng.choice([b"a", b"a b\n", b'{"text": "a"}\n']) * rng.choice([10, 30_000_000]), 6)


def _bzip2(rng: random.Random) -> bytes:
    return bz2.compress(b"a" * rng.choice([10, 50_000_000]))


_MAKERS: dict[str, list[Callable[[random.Random], bytes]]] = {
    ".docx": [_bomb, _spans, _entities, _deep_docx, _bad_parts, lambda rng: docx(paragraph(words(rng, 30)))],
    ".html": [_deep_html, _odd_charset, _encoded, _text],
    ".pdf": [_pdf, _pdf_filters, _text],
    ".jsonl": [_rows, _deep_json, _text, _encoded],
    ".csv": [_wide_table, _quotes, _long_title, _encoded],
    ".tsv": [_wide_table, _quotes, _rows],
    ".md": [_markdown, _encoded, _text],
    ".mdx": [_mdx, _markdown],
    ".qmd": [_markdown, _text],
    ".rst": [_restructured, _encoded, _text],
    ".txt": [_encoded, _text],
    ".txt.gz": [_gzip, _text],
    ".jsonl.gz": [_gzip, _rows],
    ".txt.bz2": [_bzip2, _text],
}
