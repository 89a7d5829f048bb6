"""Addresses of servers: what in them may be a secret is neither sent nor told."""

import re
from urllib.parse import urlsplit

from raisf.utils.errors import InputError


def is_address(place: object) -> bool:
    """Whether it is a URL of any scheme, and no path."""
    return "://" in str(place)


def check_no_address(name: str, what: str, wanted: str) -> None:
    """Makes sure that a name is no address, which would be told as names are, with the password that it may have.

    Raises:
        InputError: It is one: `what` is an address, `wanted` says what to give.
    """
    if is_address(name):
        raise InputError(f"{what} is an address: {wanted}")


def without_secrets(url: str) -> str:
    """A URL without the user, the password, the query and the fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def without_passwords(text: str) -> str:
    """A text, such as a library's complaint, without the users, passwords and queries of the addresses in it."""
    return re.sub(r"\?[^\s'\")?]*=[^\s'\")]*", "?***", re.sub(r"(?<=://)[^\s'\"]+@", "***@", text))


def check_bare(url: str, what: str, key: str | None = None) -> None:
    """Makes sure that an address has nothing that would not be sent, or would be told where it is told.

    Args:
        url: The address.
        what: What the message calls it, such as "--api-base".
        key: The environment variable that the server's key is taken from, if there is one.

    Raises:
        InputError: It has a user, a password, a query or a fragment.
    """
    shown = url.rpartition("@")[2].partition("?")[0].partition("#")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InputError(f"{what} {shown!r} is no URL") from None
    if "@" in parts.netloc:
        found = f"a user name or password before {shown!r}"
    elif parts.query or parts.fragment:
        found = f"a query or fragment behind {shown!r}"
    else:
        return
    raise InputError(
        f"{what} has {found}, which is not sent: leave it out"
        + (f", and give the server's key as {key} in the environment" if key else "")
    )
