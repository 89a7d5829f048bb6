"""Reading a corpus document by document: each becomes passages whole, or is skipped and named."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from raisf.retrieval.corpus.bounds import bounded
from raisf.retrieval.corpus.checking import checked, twice
from raisf.retrieval.corpus.documents import Document, NoText, Skip, Skipped, find_documents, skipped
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.kinds import kind_of
from raisf.retrieval.corpus.parsing import ParserProcess
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.progress import progress_bar

logger = logging.getLogger(__name__)

HELD = 20_000
"""Passages of a document that are held until it has been read to its end. A longer one is read twice."""


def read_documents(path: Path | str, encoding: str | None = None) -> Iterator[Passage]:
    """Passages of about 100 words from a file or a folder (with its subfolders), streamed in the order of the paths.

    txt, md, mdx, qmd, rmd, rst, html and docx files are cut into passages with the ids `file#1`, `file#2`, ...; a
    passage's title is the document's, and the heading it stands under begins its text. So are pdf files, and no
    passage spans two pages. A row of a jsonl, csv or tsv file (or of a list in a json file, which must be given by its
    name) has a `text`, maybe a `title` and an `id`; it stays one passage up to 130 words, and a longer one becomes
    `id#1`, `id#2`, ...; its other columns become metadata. Rows without text are left out. Where a csv or tsv file has
    no such column, its rows are told in words, by the names of all columns. In a folder, other kinds of files, hidden
    ones and links that leave it are passed over.

    So the corpora of the field are read as they are distributed: DPR's psgs_w100.tsv (columns id, text, title), the
    folders of HotpotQA's Wikipedia abstracts (JSON Lines, `text` a list of sentences), ColBERT's collection.tsv (no
    column names; id, text that may begin with `title | `, maybe title). Text files may be packed: .gz or .bz2.

    Args:
        path: A file or a folder.
        encoding: Of the files that are not UTF-8 and have no byte order mark. None: UTF-8 (html: or its own
            declaration). Nothing is guessed: a wrong guess would fill the index with garbled words and tell nobody.

    Raises:
        InputError: Nothing at the path, an unknown kind of file, another encoding, a broken line, a missing column,
            an id that comes twice, a file that grows beyond all measure, or no passage at all. The message names the
            file and the line.
    """
    documents = find_documents(path, encoding)
    with ParserProcess() as parser:
        yield from checked(passage for document in documents for passage in _passages(parser, document))


def read_whole(documents: Sequence[Document], skip: Skip, seen: SeenIds, progress: bool = False) -> Iterator[Passage]:
    """The passages of those documents that can be read to their end, streamed.

    Args:
        documents: In the order in which they are read.
        skip: Is told of a document that cannot be read, that has no text, or in which an id comes twice; nothing of
            such a document has been given then.
        seen: The ids that others have; those of the passages are added.
        progress: Whether to show a bar on standard error.
    """
    with ParserProcess() as parser, progress_bar(progress) as bar:
        task = bar.add_task("reading documents", total=len(documents))
        for done, document in enumerate(documents, 1):
            try:
                found = _read_to_end(parser, document, seen)
            except InputError as error:
                skip(skipped(document.name, error))
                found = ()
            for passage in found:
                seen.add(passage.pid, passage.citation)
                yield passage
            bar.update(task, completed=done)


def _read_to_end(parser: ParserProcess, document: Document, seen: SeenIds) -> Iterable[Passage]:
    """The passages of a document, which has been read to its end."""
    if _is_empty(document.file):
        raise NoText(f"{document.name} has no text: the file is empty")
    own, held, rest = SeenIds(), list[Passage](), 0
    for passage in _passages(parser, document):
        if earlier := seen.place(passage.pid) or own.add(passage.pid, passage.citation):
            raise twice(passage.pid, earlier, passage.citation)
        if len(held) < HELD:
            held.append(passage)
        else:
            rest += 1
    if not held:
        unread = (
            ", only pictures perhaps, or letters that its fonts do not tell; run text recognition over it, or leave it "
            "out"
        )
        raise NoText(f"{document.name} has no text{unread if kind_of(document.file) == '.pdf' else ''}")
    # Read again, no further than it has been checked: the file may have grown.
    return itertools.islice(_passages(parser, document), len(held) + rest) if rest else held


def _is_empty(file: Path) -> bool:
    """Whether a file has no bytes; of one that cannot be looked at, its reader says why."""
    try:
        return not file.stat().st_size
    except OSError:
        return False


def _passages(parser: ParserProcess, document: Document) -> Iterator[Passage]:
    return bounded(parser.passages(document.file, document.name, document.encoding), document.file, document.name)


def log_skipped(skipped: Skipped) -> None:
    """A `Skip` that logs a warning."""
    logger.warning("%s was skipped: %s", skipped.name, skipped.reason)
