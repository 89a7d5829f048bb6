"""What is logged while a file is read."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Kept(logging.Handler):
    """What is logged, until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@contextmanager
def logged(name: str) -> Iterator[list[str]]:
    """As a context, the messages of a logger, and of those below it, as they come."""
    handler, logger = _Kept(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler.told
    finally:
        logger.removeHandler(handler)
