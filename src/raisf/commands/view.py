"""`raisf view`: a page over what evaluations have left."""

import logging
from pathlib import Path

from raisf.commands.command import argument, command, option
from raisf.commands.listening import serve_until_told
from raisf.commands.result import CommandResult, facts_result
from raisf.commands.values import FILE, at_least
from raisf.utils.errors import InputError
from raisf.utils.text import visible

logger = logging.getLogger(__name__)
DEFAULT_PORT = 8895
EXPORTED = "view.html"


@command(
    "view",
    "  raisf view reports/home\n"
    "  raisf view runs/rag.jsonl runs/ra-isf.jsonl --index indexes/home\n"
    "  raisf view reports/home --export reports/home/view.html",
)
@argument(
    "paths",
    type=FILE,
    nargs=-1,
    required=True,
    metavar="RECORDS_OR_REPORT...",
    help="records' files that `raisf eval` wrote, folders of them, folders of `raisf compare` and `raisf experiment`",
)
@option(
    "--index",
    type=FILE,
    metavar="DIR",
    help="the index that was searched: records leave out the passages' texts; default: those that the report names",
)
@option(
    "--export",
    type=FILE,
    metavar="FILE",
    help=f"write the page with all data as one HTML file and serve nothing; in a folder it is called {EXPORTED}",
)
@option("--port", type=at_least(0), default=DEFAULT_PORT, metavar="N", help=f"default: {DEFAULT_PORT}; 0: any")
@option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="the address to listen at; whoever reaches it can read the records, so name another only in a "
    "network that you trust; default: 127.0.0.1, this machine only",
)
def view_command(
    paths: tuple[Path, ...], index: Path | None, export: Path | None, port: int, host: str
) -> CommandResult:
    """Look at records in a browser: runs, questions, trees beside gold, two programs side by side."""
    from raisf.viewing.view import View

    if export is not None:
        from raisf.viewing.page import export as write

        out = export / EXPORTED if export.is_dir() or not export.suffix else export
        if out.is_file():
            with out.open("rb") as there:
                if b'content="raisf view"' not in there.read(300):
                    raise InputError(f"{out} is no page of this command, and would be replaced: give another file")
        view = View(paths, index)
        if view.lacks_texts:
            logger.warning(
                "passages of some runs have no text: the index that they searched is not here; give --index DIR"
            )
        size = write(view, out)
        shown = {"runs": len(view.summary["runs"]), "questions": len(view.summary["questions"])}
        return facts_result(shown | {"out": str(out), "megabytes": round(size / 1e6, 2)})
    from raisf.viewing.server import ViewServer

    with ViewServer(lambda: View(paths, index), host, port) as server:
        serve_until_told(server, ", ".join(map(visible, paths)), quiet=True)
    return facts_result({"viewed": ", ".join(map(str, paths))})
