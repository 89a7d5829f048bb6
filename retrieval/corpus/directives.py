"""Directives of MyST, three backticks or colons and `{note}`: their text is Markdown, or none of the page's."""

import re
from collections import Counter
from collections.abc import Sequence

_DIRECTIVE = re.compile(r"([ >]*)([`~:]{3,})\{(?:[\w.+-]+:)?([\w.+-]+)\}[ \t]*(.*)$")
_TEXTS = re.compile(
    r"note|tip|hint|important|warning|caution|danger|attention|error|seealso|admonition|margin|sidebar|aside|topic|"
    r"dropdown|details|card|grid(-item(-card)?)?|tab-(set|item)|figure|epigraph|pull-quote|highlights|abstract|glossary|"
    r"version(added|changed)|deprecated|theorem|lemma|proof|definition|corollary|remark|example|algorithm|"
    r"exercise(-start)?|solution(-start)?|div"
)
_TITLED = re.compile(r"admonition|margin|sidebar|topic|dropdown|card|grid-item-card|tab-item|theorem|lemma|definition")
_UNTOLD = re.compile(r"figure|grid(-item)?|tab-set|div|solution(-start)?")
"""Those whose own line names a file, or what is set: of others it is a title, or the text begins there."""
_UNSEEN = re.compile(
    r"toctree|tableofcontents|contents|include|literalinclude|bibliography|raw|todo|index|image|iframe|video|youtube|"
    r"autosummary"
)
_OPTION = re.compile(r"[ >]*(?::[\w-]+:(?:\s|$)|(?:#|//|%%)\|(?:\s|$))")
_SET = re.compile(r"[ >]*(?:[\w-]+:(?:\s|$)|[-#\s]|$)")
"""A line of options that are YAML between `---`."""
_MOST_SET = 50
_CELL = re.compile(r"[ >]*(?:[-*+] +)?[`~:]{3,}[ \t]*\{")


class Directives:
    """Goes through the lines of a text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self._place = lines, 0
        # By the sign of a fence, how many closing ones are still to come.
        self._ends = Counter(closing[0] for line in lines if (closing := _closing(line)))
        self._open = list[str]()  # the fences of the texts that a line is in
        self._unseen = ""
        self._options = False
        self._set = 0  # up to which line options are set

    def shown(self, line: str, fence: str) -> str | None:
        """The next line as Markdown where it is a mark of a directive, or stands in one that shows nothing; else None.

        The fence is that of the code that it is in.
        """
        self._place += 1
        closing = _closing(line)
        self._ends.subtract(closing[:1])
        if self._unseen or fence:
            self._unseen = "" if closing.startswith(self._unseen) else self._unseen
            return None if fence and not self._options_in(line) else ""
        if self._options_in(line):
            return ""
        if self._open and closing.startswith(self._open[-1]):
            self._open.pop()
            return ""
        self._options = _CELL.match(line) is not None
        self._set = self._end_of_set() if self._options else 0
        found = _DIRECTIVE.match(line)
        return self._opened(*found.groups()) if found else None

    def _options_in(self, line: str) -> bool:
        self._options = self._options and (self._place <= self._set or _OPTION.match(line) is not None)
        return self._options

    def _end_of_set(self) -> int:
        """The line that ends options in YAML which begin below this one; 0 where there are none."""
        below = self._lines[self._place : self._place + _MOST_SET]
        rules = [place for place, line in enumerate(below) if line.strip(" >\r") == "---"][:2]
        found = len(rules) == 2 and rules[0] == 0 and all(map(_SET.match, below[: rules[1]]))
        return self._place + rules[1] + 1 if found else 0

    def _opened(self, before: str, fence: str, name: str, told: str) -> str | None:
        name = name.lower()
        if _UNSEEN.fullmatch(name) and self._ends[fence[0]] > 0:
            self._unseen = fence
            return ""
        if not _TEXTS.fullmatch(name):
            return None
        self._open.append(fence)
        title = "" if _UNTOLD.fullmatch(name) else told.rstrip(" :\r")
        return f"{before}{title}:" if title and _TITLED.fullmatch(name) else f"{before}{title}"


def _closing(line: str) -> str:
    """The fence that a line would close: it holds nothing else. Else nothing."""
    bare = line.strip(" >\r")
    return bare if len(bare) >= 3 and bare[0] in "`~:" and not bare.strip(bare[0]) else ""
