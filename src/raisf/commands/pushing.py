"""`raisf index push`: an index goes to Qdrant, which searches corpora that are too large for one machine."""

import argparse
from pathlib import Path
from typing import Any

from raisf.commands.outcome import Outcome, told
from raisf.commands.parsing import add_command


def add_parser(index: Any) -> None:
    """Adds the action `push`.

    Args:
        index: The parser of `raisf index`.
    """
    push = add_command(
        index,
        "push",
        "copy an index into a collection of Qdrant; one that was stopped goes on",
        "  raisf index push indexes/mine qdrant+http://127.0.0.1:6333/mine\n"
        '  raisf ask "..." --index qdrant+http://127.0.0.1:6333/mine',
        resume="run the same command again to go on where it stopped",
        home="pushing",
    )
    push.set_defaults(command="index-push")
    push.add_argument("index", type=Path, metavar="DIR", help="a colbert index, not one made with --search plaid")
    push.add_argument("url", help="the collection: qdrant+http://HOST:PORT/NAME; its key in $QDRANT_API_KEY")


def index_push(arguments: argparse.Namespace) -> Outcome:
    """Copies an index into a collection of Qdrant."""
    from raisf.retrieval.engines.qdrant import connect_qdrant
    from raisf.retrieval.engines.qdrant_push import push_index

    client, collection = connect_qdrant(arguments.url)
    passages = push_index(arguments.index, client, collection)
    return told({"url": arguments.url, "passages": passages}, f'raisf ask "..." --index {arguments.url}')
