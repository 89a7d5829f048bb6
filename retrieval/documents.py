"""Documents become passages: reading txt, md, jsonl, csv and tsv files, and cutting them at sentence ends."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ujson

from data.errors import InputError
from retrieval.passage import Passage

TARGET = 100
"""Words a passage: the length of the passages of DPR and of the RA-ISF paper's Wikipedia corpus."""
SHORTEST, LONGEST = 50, 130
"""A cut may move from TARGET to a sentence end within these; a text up to LONGEST stays whole."""

BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# A word is a run without spaces, at most 40 characters of it (a data blob must be cut too), or one Chinese, Japanese
# or Korean character: those scripts put no spaces between words.
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_SENTENCE_END = re.compile(r"""[.!?\u2026][)"'\u201d\u2019\]]*(?=\s)|[\u3002\uff01\uff1f]""")
_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")


def read_documents(path: Path | str, encoding: str | None = None) -> Iterator[Passage]:
    """Passages of about 100 words from a file or a folder (with its subfolders), streamed in the order of the paths.

    txt and md files are cut into passages with the ids `file#1`, `file#2`, ...; a passage's title is the file's name,
    or the markdown headings above it. A row of a jsonl, csv or tsv file has a `text`, maybe a `title` and an `id`;
    it stays one passage up to 130 words, and a longer one becomes `id#1`, `id#2`, .... Rows without text are left out.
    In a folder, other kinds of files and hidden ones are passed over.

    Args:
        path: A file or a folder.
        encoding: How the files are encoded. None: by the byte order mark, else UTF-8. Nothing is guessed: a wrong
            guess would fill the index with garbled words and tell nobody.

    Raises:
        InputError: Nothing at the path, an unknown kind of file, another encoding, a broken line, a missing column,
            an id that comes twice, or no passage at all. The message names the file and the line.
    """
    path = Path(path)
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError as error:
            raise InputError(f"unknown encoding {encoding!r}: give a name such as utf-8, utf-16 or cp1252") from error
    files = ((_READERS[file.suffix.lower()], file, name) for file, name in _files(path))
    return checked(passage for read, file, name in files for passage in read(file, name, encoding))


def checked(passages: Iterable[Passage]) -> Iterator[Passage]:
    """The same passages, while making sure that there is one at all and that no id comes twice.

    Raises:
        InputError: No passage, or an id that comes twice; the message says where both stand.
    """
    places: dict[str, str] = {}
    for number, passage in enumerate(passages, start=1):
        place = passage.source or f"passage {number}"
        if passage.pid in places:
            raise InputError(
                f"the id {passage.pid!r} comes twice: {places[passage.pid]} and {place}; ids must differ, "
                "or leave them out and they are numbered"
            )
        places[passage.pid] = place
        yield passage
    if not places:
        raise InputError("the corpus is empty: no passage with any text was found; give documents with text")


def split_text(text: str) -> list[str]:
    """Cuts a text into pieces of about 100 words, at sentence ends where one is near; whitespace is collapsed.

    A piece has at most 130 words, and 50 at least unless the whole text has fewer or no sentence ends near (the last
    piece may then have 30).
    """
    text = _clean(text)
    ends = [match.end() for match in _WORD.finditer(text)]
    if len(ends) <= LONGEST:
        return [text] if text else []
    sentence_ends = {match.end() for match in _SENTENCE_END.finditer(text)}
    pieces, first, offset = [], 0, 0
    while len(ends) - first > LONGEST:
        cut = min(
            (i for i in range(first + SHORTEST, first + LONGEST + 1) if ends[i - 1] in sentence_ends),
            key=lambda i: abs(i - first - TARGET),
            default=first + TARGET,
        )
        pieces.append(text[offset : ends[cut - 1]].strip())
        first, offset = cut, ends[cut - 1]
    return [*pieces, text[offset:].strip()]


def _clean(text: str) -> str:
    # Half a surrogate pair, as a JSON escape can bring it, could be written to no file.
    return " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")


def _files(path: Path) -> list[tuple[Path, str]]:
    """The files to read, each with the name that its passages' sources show."""
    kinds = ", ".join(kind.removeprefix(".") for kind in _READERS)
    if path.is_file():
        if path.suffix.lower() not in _READERS:
            raise InputError(
                f"cannot read {path}: {path.suffix or 'without a suffix it'} is no kind of document; those are {kinds}"
            )
        return [(path, path.name)]
    if not path.is_dir():
        raise InputError(f"no documents at {path}; give a file or a folder")
    names = {file: file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()}
    files = [
        (file, name.as_posix())
        for file, name in names.items()
        if file.suffix.lower() in _READERS and not any(part.startswith(".") for part in name.parts)
    ]
    if not files:
        raise InputError(f"no document in {path}: of its {len(names)} files none is a {kinds} file")
    return files


def _lines(file: Path, name: str, encoding: str | None) -> Iterator[str]:
    """The lines of a file, decoded, with their line ends."""
    raw = file.open("rb")
    if encoding is None:
        start = raw.read(4)
        raw.seek(0)
        mark = next((mark for mark in BOMS if start.startswith(mark)), b"")
        encoding = BOMS.get(mark, "utf-8")
        raw.seek(len(mark) if encoding == "utf-8" else 0)  # the others read their mark to tell the byte order
    number = 0
    with io.TextIOWrapper(raw, encoding=encoding, newline="") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if "\0" in line:
                    raise InputError(
                        f"{name}, line {number}: zero bytes: no text, or UTF-16 without its mark; save it as UTF-8, or "
                        "name its encoding (encoding='utf-16-le', on the command line --encoding utf-16-le)"
                    )
                yield line
        except UnicodeError as error:
            raise InputError(
                f"{name}, after line {number}: not {encoding} ({getattr(error, 'reason', error)}); save it as UTF-8, "
                "or name its encoding (encoding='cp1252', on the command line --encoding cp1252)"
            ) from error


def _read_text(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    title = _title(file)
    for number, piece in enumerate(split_text("".join(_lines(file, name, encoding))), start=1):
        yield Passage(f"{name}#{number}", piece, title, source=name)


def _read_markdown(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    number = 0
    for title, line, text in _sections(_lines(file, name, encoding), _title(file)):
        for piece in split_text(text):
            number += 1
            yield Passage(f"{name}#{number}", piece, title, source=f"{name}, line {line}")


def _sections(lines: Iterable[str], title: str) -> Iterator[tuple[str, int, str]]:
    """A markdown file's sections: `document: heading`, the number of its first line, the text below."""
    heading, first, body, in_code = "", 1, [], False
    for number, line in enumerate(lines, start=1):
        in_code ^= bool(_FENCE.match(line))
        match = None if in_code else _HEADING.match(line)
        if match is None:
            body.append(line)
            continue
        yield (f"{title}: {heading}" if heading else title), first, "".join(body)
        first, body = number, []
        if line.startswith("# "):
            title, heading = match[1], ""
        else:
            heading = match[1]
    yield (f"{title}: {heading}" if heading else title), first, "".join(body)


def _read_jsonl(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    for number, line in enumerate(_lines(file, name, encoding), start=1):
        if not line.strip():
            continue
        try:
            row = ujson.loads(line)
        except ValueError as error:
            shown = line[:60].strip()
            raise InputError(f"{name}, line {number}: not JSON ({error}): {shown!r}; mend or drop the line") from error
        if not isinstance(row, dict):
            raise InputError(f'{name}, line {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from _row_passages(row, name, number)


def _read_table(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    csv.field_size_limit(1 << 30)  # the library's own limit of 128 kB a field is below a long document
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    rows = csv.DictReader(_lines(file, name, encoding), delimiter=delimiter, strict=True)
    try:
        columns = [column.strip().lower() for column in rows.fieldnames or []]
        if "text" not in columns:
            raise InputError(
                f"{name}: its first line must name a column 'text'; found {', '.join(columns) or 'nothing'}"
            )
        rows.fieldnames = columns
        for row in rows:
            if None in row or None in row.values():
                state = "more" if None in row else "fewer"
                raise InputError(f"{name}, line {rows.line_num}: {state} than the {len(columns)} columns of line 1")
            yield from _row_passages(row, name, rows.line_num)
    except csv.Error as error:
        raise InputError(f"{name}, line {rows.line_num}: not a table ({error}); check its quotes") from error


def _row_passages(row: Mapping[str, Any], name: str, number: int) -> Iterator[Passage]:
    place = f"{name}, line {number}"
    text, title, pid = (row.get(key) for key in ("text", "title", "id"))
    if not isinstance(text, str):
        raise InputError(f"{place}: no 'text' of type string; found the keys {', '.join(map(str, row)) or '(none)'}")
    pid = f"{name}#{number}" if pid is None or pid == "" else str(pid)
    title = _clean(str(title or ""))
    pieces = split_text(text)
    for i, piece in enumerate(pieces, start=1):
        yield Passage(pid if len(pieces) == 1 else f"{pid}#{i}", piece, title, source=place)


def _title(file: Path) -> str:
    return _clean(re.sub(r"[_-]+", " ", file.stem))


_READERS = {".txt": _read_text, ".md": _read_markdown, ".jsonl": _read_jsonl, ".csv": _read_table, ".tsv": _read_table}
