"""What the commands that serve have in common: ending when they are told to, and what they need installed."""

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raisf.commands.command import tell
from raisf.utils.errors import RaisfError

if TYPE_CHECKING:
    from raisf.retrieval.serving.listening import HttpServer


def serve_until_told(server: "HttpServer", what: str, *, quiet: bool = False) -> None:
    """Serves until Ctrl-C, or a supervisor's SIGTERM, which ends it alike: what has come in is answered first.

    Args:
        server: Listens already.
        what: Is served, as stderr tells it.
        quiet: Do not tell that it is about to end: where answers take no time, it has ended by then.
    """

    def stop(*signalled: object) -> None:
        server.stop()
        if not quiet:
            tell("answering what has come in ...")

    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, stop)
    tell(f"{what} at {server.url} (Ctrl-C ends it)")
    server.serve()


@contextlib.contextmanager
def needing_serve() -> Iterator[None]:
    """As a context for imports: says what installs a package that is missing.

    Raises:
        RaisfError: One is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise RaisfError(f"{error.name} is missing: install it with: pip install 'raisf[serve]'") from error
