"""The project's family of errors. Each message says what was wrong, what was found and what to do."""

from collections.abc import Collection
from numbers import Integral


class RaisfError(Exception):
    """Anything the command line reports without a traceback.

    Args:
        text: What was wrong, what was found and what to do.
        besides: The text's end: what `raisf compile` and Python can do besides, and an experiment cannot.
    """

    exit_code = 1
    brief = ""
    """The same without what an endpoint or a retriever said, which may repeat a question; "" where neither said any."""

    def __init__(self, text: str = "", besides: str = "") -> None:
        super().__init__(text + besides)
        self.besides = besides

    @property
    def text(self) -> str:
        """Without `besides`."""
        return str(self).removesuffix(self.besides)


class InputError(RaisfError):
    """The user's mistake: an option, a file, a corpus, an index or an artifact that cannot be used as it is."""

    exit_code = 2


class LMError(RaisfError):
    """A language model that could not answer: an endpoint that is down, too slow, refuses, or sends rubbish."""

    transient = False
    """Whether the same call may succeed later."""
    too_long = False
    """Whether the prompt was more than it can read, so that it may well answer another."""


class SearchError(RaisfError):
    """A retriever that could not search. The text may name its address."""


def check_named(what: str, value: object, known: Collection[str]) -> None:
    """Raise InputError for a name that is none of those that are known."""
    if value not in known:
        raise InputError(f"unknown {what} {value!r}: choose {', '.join(known)}")


def check_least(settings: object, why: str = "", /, **least: int) -> None:
    """Refuses settings of which a number is no whole one, or too small.

    Args:
        settings: Has each number as an attribute.
        why: Why it must be as much, for the message.
        **least: By its name, what it must be at least.

    Raises:
        InputError: One is less, or no such number.
    """
    for name, bound in least.items():
        check_whole(settings, name)
        if getattr(settings, name) < bound:
            raise InputError(f"{name} must be at least {bound}, found {getattr(settings, name)}" + (why and f": {why}"))


def check_whole(settings: object, name: str) -> None:
    """Raise InputError for a setting that is no whole number."""
    if not isinstance(value := getattr(settings, name), Integral):
        raise InputError(f"{name} must be a whole number, found {value!r:.60}")


def in_short(error: Exception) -> str:
    """An error's text on one line, cut; its class where it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def chain_of(error: BaseException | None) -> list[BaseException]:
    """An error, and those of which it came."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
