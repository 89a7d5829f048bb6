"""transformers reads one model at a time: of two that threads read together, both may end without weights.

While it reads one it replaces `PreTrainedModel.tie_weights` for the whole process; whoever puts it back last may leave
the replacement there. It also imports its classes only when they are asked for, and of threads that ask for one
together some find none.
"""

import contextlib
import threading
from collections.abc import Iterator

ONE_AT_A_TIME = threading.Lock()
"""Held around every `from_pretrained` of a model, and around the import of the classes that it takes."""


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """A context in which transformers draws no progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
