"""`raisf serve`."""

import time
from pathlib import Path

from raisf.commands.command import command, option
from raisf.commands.listening import needing_serve, serve_until_told
from raisf.commands.options import ProgramChoice, lm_options, program_options
from raisf.commands.result import CommandResult, facts_result
from raisf.commands.served import LimitChoice, limit_options, load_models, open_service, targets_argument
from raisf.commands.values import FILE, at_least
from raisf.experiments.opening import LMChoice
from raisf.utils.errors import InputError
from raisf.utils.text import visible

DEFAULT_PORT = 8080


@command(
    "serve",
    "  raisf serve indexes/home\n"
    "  raisf serve indexes/mine --program ra-isf,rag --lm openai/gpt-4o-mini\n"
    "  raisf serve artifacts/a old=artifacts/b --port 9000\n"
    "  raisf serve indexes/mine --host 0.0.0.0 --api-key-file keys.txt --documents docs\n"
    "  raisf serve http://127.0.0.1:8893 --lm openai/llama --api-base http://127.0.0.1:8000/v1",
)
@targets_argument
@option("--port", type=at_least(0), default=DEFAULT_PORT, metavar="N", help=f"default: {DEFAULT_PORT}; 0: any")
@option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="the address to listen at; any but a loopback address requires --api-key-file; default: 127.0.0.1",
)
@option("--api-key-file", type=FILE, metavar="FILE", help="keys, one per line: whoever has one may ask (Bearer KEY)")
@option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="a host name under which a proxy forwards requests; the proxy's headers then say what the clients' "
    "addresses are; default: localhost only, or any name if --host is not loopback",
)
@option(
    "--documents", type=FILE, metavar="DIR", help="the folder that was indexed, so that the page can open its files"
)
@option(
    "--conversation",
    type=FILE,
    metavar="FILE",
    help="a compiled raisf.programs.conversation.Conversation, saved as .json, which reads earlier turns",
)
@limit_options
@program_options
@lm_options
def serve_command(
    targets: tuple[str, ...],
    port: int,
    host: str,
    api_key_file: Path | None,
    hosts: tuple[str, ...],
    documents: Path | None,
    conversation: Path | None,
    limits: LimitChoice,
    choice: ProgramChoice,
    lm: LMChoice,
) -> CommandResult:
    """Serve programs: a page to ask on, OpenAI's chat completions, MCP, and events."""
    with needing_serve():
        from raisf.serving.app import make_app
        from raisf.serving.guard import Access
        from raisf.serving.indexes import IndexesWatched
        from raisf.serving.server import AppServer

    if documents is not None and not documents.is_dir():
        raise InputError(f"no folder of documents at {documents}: give the one that was indexed")
    start = time.perf_counter()
    access = Access.of(host, api_key_file, hosts)
    service = open_service(targets, choice, lm, limits, conversation)
    app = make_app(service, access, documents)
    with AppServer(app, host, port, proxied=bool(hosts)) as server, IndexesWatched(service):
        load_models(service)
        names = ", ".join(service.served)
        serve_until_told(server, f"serving {visible(names)}")
    return facts_result({"programs": names, "seconds": round(time.perf_counter() - start, 1)})
