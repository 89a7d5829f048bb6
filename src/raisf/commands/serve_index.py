"""`raisf serve-index`."""

import time
from pathlib import Path

from raisf.commands.command import argument, command, option
from raisf.commands.listening import serve_until_told
from raisf.commands.result import CommandResult, facts_result
from raisf.commands.values import FILE, at_least
from raisf.utils.text import visible

DEFAULT_PORT = 8893  # the port of the ColBERTv2 servers that DSPy's documentation speaks to


@command(
    "serve-index",
    "  raisf serve-index indexes/mine --port 8893\n"
    '  raisf ask "..." --index http://127.0.0.1:8893\n'
    "  dspy.ColBERTv2(url='http://127.0.0.1:8893')('Who wrote Hamlet?', k=3)",
)
@argument("index", type=FILE, metavar="DIR", help="a folder made by `raisf index`")
@option("--port", type=at_least(0), default=DEFAULT_PORT, metavar="N", help=f"default: {DEFAULT_PORT}; 0: any")
@option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="the address to listen at; whoever reaches it can search, so use 0.0.0.0 only in a network that you "
    "trust; default: 127.0.0.1, this machine only",
)
def serve_index_command(index: Path, port: int, host: str) -> CommandResult:
    """Serve an index to other processes and machines, in the protocol of DSPy's ColBERTv2 client."""
    from raisf.retrieval.index import open_folder
    from raisf.retrieval.serving.server import IndexServer

    start = time.perf_counter()
    served = open_folder(index)
    with IndexServer(served, host, port, lambda: open_folder(index)) as server:
        serve_until_told(server, f"serving {visible(index)}")
        facts = server.info()
    shown = {"index": str(index), "queries": facts["queries"], "batches": facts["batches"]}
    return facts_result(shown | {"seconds": round(time.perf_counter() - start, 1)})
