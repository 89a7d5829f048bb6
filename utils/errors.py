"""The project's family of errors. Each message says what was wrong, what was found and what to do."""


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


class MetricError(LMError):
    """A language model that a metric asks could not answer, or what it said cannot be read."""


class SearchError(RaisfError):
    """A retriever that could not search. The text may name its address."""


def in_short(error: BaseException) -> str:
    """An error's text on one line, cut; its class where it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def chain_of(error: BaseException | None) -> list[BaseException]:
    """An error, and those of which it came."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
