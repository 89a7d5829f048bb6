"""Which kinds of files are documents, and who reads them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raisf.retrieval.corpus import docx, markdown, pdf, plain, restructured, rows, tables, web
from raisf.retrieval.corpus.lines import PACKED
from raisf.retrieval.passage import Passage


@dataclass(frozen=True)
class Kind:
    """How files of a kind are read.

    Attributes:
        read: Gives a file's passages, from its path, its name and its encoding.
        library: What parses them, in a process of its own, see `parsing`; None: they are read in this one.
        packable: Whether they are read where they are packed, as .md.gz.
    """

    read: Callable[[Path, str, str | None], Iterator[Passage]]
    library: str | None = None
    packable: bool = False


_MARKDOWN = Kind(markdown.read_markdown, "markdown_it", packable=True)

KINDS = {
    ".txt": Kind(plain.read_text, packable=True),
    ".md": _MARKDOWN,
    ".markdown": _MARKDOWN,
    ".mdx": Kind(markdown.read_mdx, "markdown_it", packable=True),
    ".qmd": _MARKDOWN,
    ".rmd": _MARKDOWN,
    ".rst": Kind(restructured.read_rst, "docutils", packable=True),
    ".jsonl": Kind(rows.read_jsonl_rows, packable=True),
    ".csv": Kind(tables.read_table, packable=True),
    ".tsv": Kind(tables.read_table, packable=True),
    ".html": Kind(web.read_html, "lxml"),
    ".htm": Kind(web.read_html, "lxml"),
    ".pdf": Kind(pdf.read_pdf, "pypdf"),
    ".docx": Kind(docx.read_docx, "docx"),
    ".json": Kind(rows.read_json_rows),
}

ONLY_ALONE = (".json",)
"""Kinds that are read where they are asked for by name: folders hold such files that are no documents."""


def kind_of(file: Path) -> str:
    """The suffix that tells how a file is written: .tsv for psgs_w100.tsv.gz, and .jsonl for wiki_00.bz2.

    The latter is how the programs that extract Wikipedia name their files.
    """
    suffix = file.suffix.lower()
    if suffix not in PACKED:
        return suffix
    inner = Path(file.stem).suffix.lower()
    if not inner:
        return ".jsonl"
    return inner if inner in KINDS and KINDS[inner].packable else suffix
