"""`raisf mcp`."""

import os
import signal

from raisf.commands.command import command, tell
from raisf.commands.listening import needing_serve
from raisf.commands.options import ProgramChoice, lm_options, program_options
from raisf.commands.result import INTERRUPTED
from raisf.commands.served import LimitChoice, limit_options, open_service, targets_argument
from raisf.experiments.opening import LMChoice


@command(
    "mcp",
    "  raisf mcp indexes/home\n"
    "  raisf mcp artifacts/a --lm openai/gpt-4o-mini\n"
    '  {"mcpServers": {"handbook": {"command": "/path/to/.venv/bin/raisf", "args": ["mcp", "/path/to/indexes/home"]}}}',
    shows=False,
)
@targets_argument
@limit_options
@program_options
@lm_options
def mcp_command(targets: tuple[str, ...], limits: LimitChoice, choice: ProgramChoice, lm: LMChoice) -> None:
    """Offer the tools `ask` and `search` to an MCP client over standard input and output."""
    import anyio

    with needing_serve():
        from raisf.serving.indexes import IndexesWatched
        from raisf.serving.mcp_tools import make_mcp, serve_stdio

    service = open_service(targets, choice, lm, limits)
    with IndexesWatched(service):
        signal.signal(signal.SIGINT, _interrupted)
        anyio.run(serve_stdio, make_mcp(service))
        if service.admission.under_way:
            os._exit(0)  # nobody listens; a thread that Python's end cuts off inside torch would abort the process


def _interrupted(*signalled: object) -> None:
    tell("interrupted")
    os._exit(INTERRUPTED)  # any other end would wait for the thread that reads the client's next line
