"""Documents become passages: which files there are, who reads them, and what tells two versions of one apart."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raisf.retrieval.corpus.formats import read_docx, read_html, read_pdf
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.readers import (
    kind_of,
    read_json_rows,
    read_jsonl_rows,
    read_markdown,
    read_table,
    read_text,
)
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.files import sha256_file

_RECIPE = 2
"""Raised when a file is read or cut in another way than before, so that indexes read it again."""

_READERS = {
    ".txt": read_text,
    ".md": read_markdown,
    ".jsonl": read_jsonl_rows,
    ".csv": read_table,
    ".tsv": read_table,
    ".html": read_html,
    ".htm": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".json": read_json_rows,
}
_ONLY_ALONE = (".json",)
"""Kinds that are read where they are asked for by name: folders hold such files that are no documents."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file of a corpus.

    Attributes:
        name: Its path within the folder that was asked for; the `source` of its passages.
        file: Where it is.
        encoding: How its text is encoded; None: by its byte order mark, else UTF-8.
    """

    name: str
    file: Path
    encoding: str | None = None

    def passages(self) -> Iterator[Passage]:
        """Its passages, streamed.

        Raises:
            InputError: See `read_documents`.
        """
        return _READERS[kind_of(self.file)](self.file, self.name, self.encoding)

    def fingerprint(self) -> str:
        """Changes when its passages may have changed: SHA-256 of its bytes and of how they are read."""
        return hashlib.sha256(f"{_RECIPE} {self.encoding} {sha256_file(self.file)}".encode()).hexdigest()


def read_documents(path: Path | str, encoding: str | None = None) -> Iterator[Passage]:
    """Passages of about 100 words from a file or a folder (with its subfolders), streamed in the order of the paths.

    txt, md, html and docx files are cut into passages with the ids `file#1`, `file#2`, ...; a passage's title is the
    document's, with the heading it stands under. So are pdf files, and no passage spans two pages. A row of a jsonl,
    csv or tsv file (or of a list in a json file, which must be given by its name) has a `text`, maybe a `title` and an
    `id`; it stays one passage up to 130 words, and a longer one becomes `id#1`, `id#2`, ...; its other columns become
    metadata. Rows without text are left out. In a folder, other kinds of files and hidden ones are passed over.

    So the corpora of the field are read as they are distributed: DPR's psgs_w100.tsv (columns id, text, title), the
    folders of HotpotQA's Wikipedia abstracts (JSON Lines, `text` a list of sentences), ColBERT's collection.tsv (no
    column names; id, text that may begin with `title | `, maybe title). Text files may be packed: .gz or .bz2.

    Args:
        path: A file or a folder.
        encoding: How the files are encoded. None: by the byte order mark (html: or its own declaration), else UTF-8.
            Nothing is guessed: a wrong guess would fill the index with garbled words and tell nobody.

    Raises:
        InputError: Nothing at the path, an unknown kind of file, another encoding, a broken line, a missing column,
            an id that comes twice, or no passage at all. The message names the file and the line.
    """
    return checked(passage for document in find_documents(path, encoding) for passage in document.passages())


def find_documents(path: Path | str, encoding: str | None = None) -> list[Document]:
    """The documents at a path, in the order of their names; `read_documents` says which kinds there are.

    Raises:
        InputError: Nothing at the path, an unknown kind of file, a file's name that is not UTF-8, or no such encoding.
    """
    path = Path(path)
    if encoding is not None:
        try:
            "".encode(encoding)  # base64 and its like are codecs too, but not of text
        except (LookupError, UnicodeError) as error:
            raise InputError(f"unknown encoding {encoding!r}: give a name such as utf-8, utf-16 or cp1252") from error
    kinds = ", ".join(kind.removeprefix(".") for kind in _READERS)
    if path.is_file():
        if kind_of(path) not in _READERS:
            raise InputError(
                f"cannot read {path}: {path.suffix or 'without a suffix it'} is no kind of document; those are {kinds}"
            )
        return [Document(_name_of(path, path.name), path, encoding)]
    if not path.is_dir():
        raise InputError(f"no documents at {path}; give a file or a folder")
    names = {file: file.relative_to(path) for file in sorted(path.rglob("*")) if file.is_file()}
    documents = [
        Document(_name_of(file, name.as_posix()), file, encoding)
        for file, name in names.items()
        if kind_of(file) in _READERS
        and kind_of(file) not in _ONLY_ALONE
        and not any(part.startswith(".") for part in name.parts)
    ]
    if not documents:
        raise InputError(f"no document in {path}: of its {len(names)} files none is a {kinds} file")
    return documents


def _name_of(file: Path, name: str) -> str:
    """A document's name, which its passages' ids begin with."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(file).decode("utf-8", "backslashreplace")
        raise InputError(f"the name of the file {shown} is not UTF-8; rename it, or leave it out") from error
    return name


def checked(passages: Iterable[Passage]) -> Iterator[Passage]:
    """The same passages, while making sure that there is one at all and that no id comes twice.

    Raises:
        InputError: No passage, or an id that comes twice; the message says where both stand, the first at least nearly.
    """
    seen, number = SeenIds(), 0
    for number, passage in enumerate(passages, start=1):
        place = passage.citation if passage.source else f"passage {number}"
        if earlier := seen.add(passage.pid, place):
            raise InputError(
                f"the id {passage.pid!r} comes twice: {earlier} and {place}; ids must differ, "
                "or leave them out and they are numbered"
            )
        yield passage
    if not number:
        raise InputError("the corpus is empty: no passage with any text was found; give documents with text")
