"""Which kinds of files are documents, and who reads them."""

from collections.abc import Callable, Iterator
from pathlib import Path

from raisf.retrieval.corpus import docx, markdown, pdf, plain, readers, restructured, tables, web
from raisf.retrieval.corpus.lines import PACKED
from raisf.retrieval.passage import Passage

KINDS: dict[str, Callable[[Path, str, str | None], Iterator[Passage]]] = {
    ".txt": plain.read_text,
    ".md": markdown.read_markdown,
    ".markdown": markdown.read_markdown,
    ".mdx": markdown.read_mdx,
    ".qmd": markdown.read_markdown,
    ".rmd": markdown.read_markdown,
    ".rst": restructured.read_rst,
    ".jsonl": readers.read_jsonl_rows,
    ".csv": tables.read_table,
    ".tsv": tables.read_table,
    ".html": web.read_html,
    ".htm": web.read_html,
    ".pdf": pdf.read_pdf,
    ".docx": docx.read_docx,
    ".json": readers.read_json_rows,
}

ONLY_ALONE = (".json",)
"""Kinds that are read where they are asked for by name: folders hold such files that are no documents."""

PARSED = {
    ".md": "markdown_it",
    ".markdown": "markdown_it",
    ".mdx": "markdown_it",
    ".qmd": "markdown_it",
    ".rmd": "markdown_it",
    ".rst": "docutils",
    ".html": "lxml",
    ".htm": "lxml",
    ".pdf": "pypdf",
    ".docx": "docx",
}
"""Kinds that a library parses, and the library. It runs in a process of its own, see `parsing`."""

_PACKABLE = (".txt", ".md", ".markdown", ".mdx", ".qmd", ".rmd", ".rst", ".jsonl", ".csv", ".tsv")


def kind_of(file: Path) -> str:
    """The suffix that tells how a file is written: .tsv for psgs_w100.tsv.gz, and .jsonl for wiki_00.bz2.

    The latter is how the programs that extract Wikipedia name their files.
    """
    suffix = file.suffix.lower()
    if suffix not in PACKED:
        return suffix
    inner = Path(file.stem).suffix.lower()
    return inner if inner in _PACKABLE else suffix if inner else ".jsonl"
