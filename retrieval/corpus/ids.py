"""Which ids a stream of passages has had, in little memory where they count up: Wikipedia has 21 million passages."""

_CHUNK = 512
"""Numbers to a chunk. A million passages that are numbered through take under 1 MB; as a dict they took 167 MB."""


class SeenIds:
    """The ids so far and about where each was.

    An id that ends in a number, such as 7 or guide.md#7, is a bit in a chunk of the numbers around it; a chunk keeps
    one place. Any other id is kept with its own place.
    """

    def __init__(self):
        self._chunks: dict[tuple[str, int], tuple[int, str]] = {}
        self._others: dict[str, str] = {}

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits, _ in self._chunks.values()) + len(self._others)

    def place(self, pid: str) -> str | None:
        """About where an id was; None where it has not come yet."""
        words, number = _parts(pid)
        if number is None:
            return self._others.get(pid)
        bits, first = self._chunks.get((words, number // _CHUNK), (0, ""))
        return f"{first} or a little after it" if bits >> number % _CHUNK & 1 else None

    def add(self, pid: str, place: str) -> str | None:
        """Notes an id; where it has come before, tells about where."""
        if earlier := self.place(pid):
            return earlier
        words, number = _parts(pid)
        if number is None:
            self._others[pid] = place
            return None
        chunk, bit = divmod(number, _CHUNK)
        bits, first = self._chunks.get((words, chunk), (0, place))
        self._chunks[words, chunk] = bits | 1 << bit, first
        return None


def _parts(pid: str) -> tuple[str, int | None]:
    """An id's words and its number; None where it has none to count by."""
    words = pid.rstrip("0123456789")
    digits = pid[len(words) :]
    # "07" and "7" are two ids, and a very long number would be the only one of its chunk.
    if not digits or (digits[0] == "0" and digits != "0") or len(digits) > 18:
        return words, None
    return words, int(digits)
