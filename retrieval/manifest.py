"""What every index folder holds beside its search structure: the passages, and a manifest that tells what it is."""

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.files import atomic_folder, dump_line, read_json, read_jsonl, sha256_file, write_json
from retrieval.documents import checked
from retrieval.passage import Passage

FORMAT = 1
"""Raised when an older version could not read what this one writes, or the other way round."""

MANIFEST, PASSAGES = "manifest.json", "passages.jsonl"
LIBRARIES = ("bm25s", "colbert-ai", "faiss-cpu", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an index is and what it was made from.

    Attributes:
        kind: "colbert" or "bm25".
        search: How it is searched: "exact" or "plaid" for ColBERT, "bm25" for BM25.
        passages: How many.
        corpus_sha256: Of passages.jsonl.
        checkpoint: The ColBERT checkpoint as it was named: "minilm", a folder or a hub id; None for BM25.
        checkpoint_sha256: Of the checkpoint's files.
        files: Size in bytes of each other file of the folder, so that a cut or missing one is noticed.
        versions: The libraries it was made with; for the curious, not checked.
        format: The version of this layout.
    """

    kind: str
    search: str
    passages: int
    corpus_sha256: str
    checkpoint: str | None
    checkpoint_sha256: str | None
    files: dict[str, int]
    versions: dict[str, str]
    format: int = FORMAT


@contextlib.contextmanager
def new_index(out: Path | str, kind: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder to write an index into, and a dict for what the manifest shall say of search and checkpoint.

    The manifest is written when the block ends well. Until then an index that stands at `out` stays as it is, and any
    exception (Ctrl-C too) leaves it there.

    Raises:
        InputError: `out` is a folder with other things in it.
    """
    with atomic_folder(out, MANIFEST) as folder:
        facts: dict[str, str] = {}
        yield folder, facts
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        for file in files:
            file.chmod(folder.stat().st_mode & 0o666)  # safetensors makes files that nobody else may read
        others = {file.relative_to(folder).as_posix(): file.stat().st_size for file in files if file.name != PASSAGES}
        with (folder / PASSAGES).open("rb") as lines:
            count = sum(1 for _ in lines)
        manifest = Manifest(
            kind=kind,
            search=facts["search"],
            passages=count,
            corpus_sha256=sha256_file(folder / PASSAGES),
            checkpoint=facts.get("checkpoint"),
            checkpoint_sha256=facts.get("checkpoint_sha256"),
            files=others,
            versions={name: importlib.metadata.version(name) for name in LIBRARIES},
        )
        write_json(folder / MANIFEST, dataclasses.asdict(manifest))


def read_manifest(path: Path | str) -> Manifest:
    """The manifest of the index in a folder.

    Raises:
        InputError: Nothing there, a folder that is not an index, another format version, or files missing or cut.
    """
    path = Path(path)
    make = "make one with: raisf index DOCS --out " + str(path)
    if not path.exists():
        raise InputError(f"no index at {path}; {make}")
    if not path.is_dir():
        raise InputError(f"{path} is a file, an index is a folder; {make}")
    if not (path / MANIFEST).is_file():
        raise InputError(f"{path} is not an index: it has no {MANIFEST}; give another folder, or {make}")
    found: Any = read_json(path / MANIFEST)
    if not isinstance(found, dict) or "format" not in found or "kind" not in found:
        raise InputError(f"{path} is not an index of this program: its {MANIFEST} says other things; {make}")
    if found["format"] != FORMAT:
        raise InputError(f"the index {path} has format {found['format']}, this version reads {FORMAT}; {make}")
    try:
        manifest = Manifest(**found)
    except TypeError as error:
        raise InputError(f"the {MANIFEST} of {path} is damaged ({error}); {make}") from error
    for name, size in manifest.files.items():
        file = path / name
        if not file.is_file() or file.stat().st_size != size:
            state = f"has {file.stat().st_size} bytes, not {size}" if file.is_file() else "is missing"
            raise InputError(f"the index {path} is damaged: {name} {state}; {make}")
    return manifest


def write_passages(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """The same passages, streamed, while writing them to the index.

    Raises:
        InputError: No passage, or an id that comes twice.
    """
    with (folder / PASSAGES).open("w", encoding="utf-8") as out:
        for passage in checked(passages):
            row = {"id": passage.pid, "title": passage.title, "text": passage.text, "source": passage.source}
            out.write(dump_line({key: value for key, value in row.items() if value}))
            yield passage


def read_passages(path: Path | str, manifest: Manifest) -> list[Passage]:
    """The passages of an index, in the order of their numbers.

    Raises:
        InputError: They are not the ones it was made from.
    """
    file = Path(path) / PASSAGES
    if not file.is_file() or sha256_file(file) != manifest.corpus_sha256:
        state = "has changed since the index was made" if file.is_file() else "is missing"
        raise InputError(f"the index {path} is damaged: {PASSAGES} {state}; make the index again")
    return [Passage(row["id"], row["text"], row.get("title", ""), source=row.get("source")) for row in read_jsonl(file)]


def check_k(k: int) -> None:
    """Raises an InputError where `k` is no number of passages to search for."""
    if k < 1:
        raise InputError(f"k is {k}; search for at least 1 passage")
