"""How many files the process may have open."""

import resource

WANTED = (65_536, 10_240, 4_096, 1_024)
"""The first that the system lets a process have: a Mac has a further limit, usually 10,240, and does not tell it."""


def raise_open_files() -> None:
    """Raises the limit of open files as far as is of use, and as far as the system lets this process.

    Each thread that asks DSPy's cache holds some files of it: a Mac's usual 256 are too few for a compilation, and
    1,024 for a server that answers a hundred questions at a time; one without a file left accepts nobody.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY:
        return
    for wanted in WANTED if most == resource.RLIM_INFINITY else (min(one, most) for one in WANTED):
        if wanted <= now:
            return
        try:
            return resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        except (OSError, ValueError):
            continue
