"""`raisf index` and its actions: to make, change, look at and copy an index."""

import dataclasses
import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from raisf.commands.command import GO_ON, argument, command, option
from raisf.commands.result import CommandResult, facts_result, facts_view
from raisf.commands.values import FILE
from raisf.experiments.opening import given
from raisf.utils.errors import InputError
from raisf.utils.text import composed

logger = logging.getLogger(__name__)

# Files that are shown to a person.
SHOWN = 50
UNCHANGED = "nothing has changed in the index"
ALONE = "give one file or one folder, all of which is read; `raisf index add` adds others"
# What --checkpoint, --search and --ray mean nothing to.
USELESS = {"bm25": ("checkpoint", "search", "ray"), "dense": ("search",)}

encoding_option = option(
    "--encoding",
    metavar="NAME",
    help="encoding of the text files that are not UTF-8, such as latin-1; default: that of their byte order mark, "
    "in html the one that the page declares, else UTF-8",
)
strict_option = option(
    "--strict",
    is_flag=True,
    help="stop at the first file that cannot be read; default: it is skipped and named at the end (exit code 1)",
)
index_argument = argument("index", type=FILE, metavar="DIR", help="a folder made by `raisf index`")


def _action(name: str, example: str = "", **options: Any) -> Callable[[Callable[..., Any]], click.Command]:
    return command(name, f"  raisf index {name} indexes/mine{example}", resume=UNCHANGED, **options)


@_action("add", " more.pdf", alone=ALONE)
@index_argument
@argument("docs", type=FILE, metavar="DOCS", help="a folder or a file; a document replaces the one of the same name")
@strict_option
@encoding_option
def index_add_command(index: Path, docs: Path, strict: bool, encoding: str | None) -> CommandResult:
    """Add documents to an index, or put new versions in place of old ones."""
    from raisf.retrieval.corpus.documents import Skipped, stop
    from raisf.retrieval.index import add_to_index, documents_of

    skipped: list[Skipped] = []
    before = _prints(documents_of(index))
    change = add_to_index(index, docs, encoding, skip=stop if strict else skipped.append)
    now = _prints(documents_of(index))
    replaced = [name for name, print in now.items() if before.get(name, print) != print]
    ends = {name[at + 1 :]: name for name in before for at, sign in enumerate(name) if sign == "/"}
    if beside := [f"{name} beside {ends[name]}" for name in now if name not in before and name in ends]:
        again = f"raisf index DOCS --out {shlex.quote(str(index))}"
        logger.warning(
            "added %s; both stay: for a new version in its place, %s (the whole folder)", _named(beside), again
        )
    facts = {"path": str(index), **dataclasses.asdict(change)}
    view = facts_view(facts | {"replaced": _named(replaced) or None})
    return _with_skipped(CommandResult(facts | {"replaced": replaced}, view), skipped)


@_action("remove", " --where \"source = 'old.pdf'\"")
@index_argument
@option(
    "--where",
    required=True,
    metavar="FILTER",
    help="such as: source = 'old.pdf' or page > 99. They are no longer found, but their text leaves the disk "
    "later: see docs/sizing.md",
)
def index_remove_command(index: Path, where: str) -> CommandResult:
    """Take the passages that satisfy a filter out of an index."""
    from raisf.retrieval.index import remove_from_index

    change = remove_from_index(index, where)
    if not change.removed:
        raise InputError(f"no passage of {index} satisfies {where!r}: nothing was removed")
    return facts_result({"path": str(index), **dataclasses.asdict(change)})


@_action("info")
@index_argument
def index_info_command(index: Path) -> CommandResult:
    """Show what an index is made of."""
    from raisf.retrieval.index import index_info

    return facts_result(index_info(index))


@_action("check")
@index_argument
def index_check_command(index: Path) -> CommandResult:
    """Read every byte of an index and compare it with its checksum."""
    from raisf.retrieval.index import check_index

    if problems := check_index(index):
        raise InputError("; ".join(problems))
    return facts_result({"path": str(index), "checked": "every file is as it was written"})


@command(
    "push",
    "  raisf index push indexes/mine qdrant+http://127.0.0.1:6333/mine\n"
    '  raisf ask "..." --index qdrant+http://127.0.0.1:6333/mine',
    resume=GO_ON,
)
@argument("index", type=FILE, metavar="DIR", help="a colbert or hybrid index, not one made with --search plaid")
@argument("url", metavar="URL", help="the collection: qdrant+http://HOST:PORT/NAME; its key in $QDRANT_API_KEY")
def index_push_command(index: Path, url: str) -> CommandResult:
    """Copy an index into a collection of Qdrant; a stopped copy goes on.

    Of a hybrid index the collection is searched by the vectors alone, without BM25.
    """
    from raisf.retrieval.engines.qdrant import connect_qdrant
    from raisf.retrieval.engines.qdrant_push import push_index

    client, collection = connect_qdrant(url)
    passages = push_index(index, client, collection)
    return facts_result({"url": url, "passages": passages}, f'raisf ask "..." --index {url}')


@command(
    "index",
    "  raisf index docs/ --out indexes/mine        run again: reads and encodes only what has changed\n"
    "  raisf index corpus.jsonl --out indexes/bm25 --engine bm25\n"
    "  raisf index corpus.jsonl --out indexes/v2 --checkpoint colbert-ir/colbertv2.0\n"
    "  raisf index corpus.jsonl --out indexes/wiki --ray 10.0.0.1:6379\n"
    "then, each with a --help of its own (documents in a folder named add: write ./add):\n"
    "  raisf index add indexes/mine more.pdf\n"
    "  raisf index remove indexes/mine --where \"source = 'old.pdf'\"\n"
    "  raisf index info indexes/mine\n"
    "  raisf index check indexes/mine\n"
    "  raisf index push indexes/mine qdrant+http://127.0.0.1:6333/mine",
    resume="no index was written, and one that stood there before stands unchanged; the same command goes on with what "
    "it has encoded of many passages",
    alone=ALONE,
    actions={
        "add": index_add_command,
        "remove": index_remove_command,
        "info": index_info_command,
        "check": index_check_command,
        "push": index_push_command,
    },
)
@argument("docs", type=FILE, metavar="DOCS", help="a folder or a file")
@option("--out", type=FILE, required=True, metavar="DIR", help="the index's folder")
@option(
    "--engine",
    type=click.Choice(("colbert", "bm25", "dense", "hybrid")),
    help="hybrid fuses colbert and bm25; dense has one vector per passage (as Contriever); default: that of "
    "an existing index at --out, else colbert",
)
@option(
    "--checkpoint",
    metavar="NAME",
    help="the encoder (bm25 has none): raisf-minilm (trained, ships with the project), minilm (its base, not "
    "trained as a ColBERT), a path, or a hub id; default: that of an existing index at --out, else "
    "raisf-minilm (for dense: minilm)",
)
@option(
    "--search",
    type=click.Choice(("auto", "exact", "plaid")),
    help="for colbert and hybrid: exact compares all passages; auto, in a large corpus, only likely ones, "
    "stored in a quarter of the disk; plaid stores them in a seventh; default: that of an existing "
    "index at --out, else auto",
)
@option(
    "--ray",
    metavar="ADDRESS",
    help="encode passages on the nodes of a Ray cluster, such as auto or HOST:6379; default: on this machine",
)
@strict_option
@encoding_option
def index_command(
    docs: Path,
    out: Path,
    engine: Any,
    checkpoint: str | None,
    search: Any,
    ray: str | None,
    strict: bool,
    encoding: str | None,
) -> CommandResult:
    """Index a folder or a file: txt, md, mdx, qmd, rmd, rst, html, pdf, docx, csv, tsv, jsonl (title, text)."""
    from raisf.retrieval.corpus.documents import Skipped, stop
    from raisf.retrieval.index import build_index, documents_of, index_info, standing_at

    start = time.perf_counter()
    chosen = given({"checkpoint": checkpoint, "search": search, "ray": ray})
    standing = standing_at(out)
    told = standing or standing_at(out, damaged=True)
    engine = engine or (told.kind if told else "colbert")
    if wrong := [name for name in USELESS.get(engine, ()) if name in chosen]:
        raise InputError(f"--{' and --'.join(wrong)} does nothing with --engine {engine}: leave it out")
    skipped: list[Skipped] = []
    skip = stop if strict else skipped.append
    build_index(docs, out, engine=engine, encoding=encoding, skip=skip, **chosen)
    facts = index_info(out)
    made: dict[str, Any] = {"out": str(out)}
    made |= {name: facts[name] for name in ("engine", "search", "checkpoint", "passages", "documents", "bytes")}
    made["seconds"] = round(time.perf_counter() - start, 2)
    told_below = {composed(one.name) for one in skipped}
    before = _prints(told.documents).keys() - told_below if told else set()
    if gone := sorted(before - _prints(documents_of(out)).keys()):
        keep = "to add to an index and take nothing from it: `raisf index add`"
        logger.warning("gone from %s, as not in %s: %s (%s)", out, docs, _named(gone), keep)
    made["changed"] = standing_at(out) != standing
    following = f'raisf ask "..." --index {shlex.quote(str(out))}'
    view = facts_view(made | {"changed": None if made["changed"] else "nothing"}, following)
    return _with_skipped(CommandResult(made, view), skipped)


def _prints(documents: Mapping[str, str]) -> dict[str, str]:
    """The documents' fingerprints by their names, which are one name however their letters are composed."""
    return {composed(name): print for name, print in documents.items()}


def _named(documents: Sequence[str]) -> str:
    more = f", and {len(documents) - SHOWN} more" if len(documents) > SHOWN else ""
    return ", ".join(documents[:SHOWN]) + more


def _with_skipped(result: CommandResult, skipped: Sequence[Any]) -> CommandResult:
    """The result, with the files that are not in the index and why."""
    from rich.console import Group

    from raisf.utils.display import as_text
    from raisf.utils.text import counted

    data = {**result.data, "skipped": [{"name": file.name, "reason": file.reason} for file in skipped]}
    if not skipped:
        return CommandResult(data, result.view)
    lines = [as_text(f"  {file.name}: {file.reason}") for file in skipped[:SHOWN]]
    if len(skipped) > SHOWN:
        lines.append(as_text(f"  and {len(skipped) - SHOWN} more: --json has all"))
    return CommandResult(
        data, Group(result.view, as_text(f"skipped {counted(len(skipped), 'file')}:", "bold"), *lines), 1
    )
