"""The connection to a Ray cluster."""

import logging
import os
import socket
from typing import Any

from raisf.utils.errors import InputError, in_short

KNOCK_SECONDS = 10.0
"""How long a head may take to accept a connection."""


def connect_ray(address: str) -> Any:
    """The module `ray`, connected to the cluster at an address; as it is where this process is connected already.

    Args:
        address: `HOST:PORT` of its head, `ray://HOST:PORT` from outside, or `auto` on one of its nodes.

    Raises:
        InputError: Ray is not installed, or no cluster answers there.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError("--ray needs Ray: pip install 'raisf[ray]', here and on every node") from error
    try:
        _knock(address)
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({in_short(error)}): start one with `ray start --head`, and give its "
            "HOST:PORT, or auto on one of its nodes"
        ) from error
    return ray


def _knock(address: str) -> None:
    """Raises OSError where nobody listens; Ray itself would try for twenty minutes, or end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()
