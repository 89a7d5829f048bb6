"""What a document is about, in a few words: its first line where that is a title, else its file's name.

A passage is judged and read with its title. A wrong one does more harm than none: a language model that is shown
`00 | The Danube flows ...` takes it that the passage is about something else.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from unicodedata import category

from raisf.retrieval.corpus.lines import PACKED
from raisf.retrieval.corpus.splitting import STOPS
from raisf.utils.text import clean, composed

# Words and characters of a first line that is a title.
_LONGEST, _WIDEST = 15, 120
# Words of a title that no blank line follows, and characters of the line below it, which must be a paragraph.
_CLOSE_TITLE, _PARAGRAPH = 10, 90
# Lines that are looked at: blank ones, the title, what follows.
_LOOKED_AT = 20

_UNDERLINE = re.compile(r"([=~*-])\1{2,}\s*$")
# A list, a quotation, a table, code, front matter, a heading or a link of Markdown, a tag; the end of a sentence, or
# what leads to one, in any script, but no question; a template's tag, a block's mark.
_ENDS = ".,;:\u2026\u3002\uff0c\uff1b\uff1a\u060c\u061b" + STOPS.replace("\u061f", "")
_NO_TITLE = re.compile(rf"[#>|`+*<{{=-]|:::|\.\. |!?\[|\d+[.)]\s|\\[a-z]|.*[{_ENDS}]$")
_NUMERAL = re.compile(r"(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_PART = re.compile(r"(PART|CHAPTER|SECTION|SUMMARY|INTRODUCTION|CONTENTS|APPENDIX|PREFACE|CONCLUSIONS?)\b")
_ENTRY = 8
"""Words of a line from which on it begins a paragraph, and not what stands below a title."""
# Three letters, or one of a script that writes words with fewer: those behind Hebrew.
_WORD = re.compile(r"[^\W\d_\u0590-\U0010ffff]{3,}|[^\W\d_\u0000-\u058f]+")
_INITIALS = re.compile(r"[^\W\d_]{2}|[A-Z]\W{1,2}")
_SAYS_NOTHING = frozenset(
    (
        "abstract article chapter contents copy doc docs document documents download draft file final home index "
        "introduction new note notes overview page paragraph part passage powerpoint preface presentation readme "
        "sample scan section slide slides summary test text tmp txt untitled version word"
    ).split()
)
# What programs put before the name of a file that they make a pdf of.
_MADE_BY = re.compile(r"^Microsoft (Word|PowerPoint|Excel) - ")
_OF_FILE = re.compile(r"\.(dvi|tex|docx?|odt|rtf|pptx?|xlsx?|indd|qxd|html?|pdf)$", re.IGNORECASE)
_PATH = re.compile(r"\w+:|[/\\]|\S*$")
# What they tell where nobody gave a title; identifiers, which publishers' programs tell.
_MADE_UP = re.compile(
    r"title|layout \d+|no job name|\(?anonymous\)?|powerpoint-pr.sentation|about:blank|(pii|doi|arxiv): ?\S+|"
    r"(main|paper|manuscript)\.(dvi|tex|pdf)",
    re.IGNORECASE,
)


def title_of(file: Path, told: object = None) -> str:
    """The title of a document: what it tells of itself, else its file's name as words; empty where that says nothing.

    Args:
        file: The document's, such as marie_curie.txt (which says something) or 0017.txt.
        told: The title that stands in the document's own data; of a file's name there, what it says as words.
    """
    title = clean(composed(str(told or "")))
    if _MADE_UP.fullmatch(title):
        title = ""
    elif _MADE_BY.match(title) or _OF_FILE.search(title):
        name = _MADE_BY.sub("", title)
        title = title_of(Path(re.split(r"[/\\]", name)[-1])) if _PATH.match(name) else _OF_FILE.sub("", name)
    if says_something(title) or (_INITIALS.fullmatch(title) and title.isupper() and not _NUMERAL.fullmatch(title)):
        return title
    stem = Path(file.stem).stem if file.suffix.lower() in PACKED else file.stem
    name = clean(re.sub(r"[_-]+", " ", composed(stem)))
    if not says_something(name):
        return ""
    # Names are capitalised in texts, and models know them so.
    return name if name != name.lower() else re.sub(r"(?<!\S)\w", lambda first: first[0].upper(), name)


def says_something(name: str) -> bool:
    """Whether a name tells one document from others."""
    name = "".join(letter for letter in name if not category(letter).startswith("M"))  # vowels, in India's scripts
    return any(word.casefold() not in _SAYS_NOTHING and not _NUMERAL.fullmatch(word) for word in _WORD.findall(name))


def titled(lines: Iterable[str]) -> tuple[str, Iterator[str]]:
    """The title that a text begins with, and its lines; the title's are blank then.

    A title is a first line that is short, no sentence, and stands apart: by an underline, by a blank line, or from a
    paragraph.

    Returns:
        An empty title where there is none.
    """
    rest = iter(lines)
    head = list(itertools.islice(rest, _LOOKED_AT))
    first = next((place for place, line in enumerate(head) if line.strip()), None)
    below = head[first + 1 :] if first is not None else []
    underlined = bool(below) and _UNDERLINE.match(below[0]) is not None
    if first is None or not any(line.strip() for line in below[underlined:]):
        return "", itertools.chain(head, rest)
    title = clean(head[first])
    apart = underlined or _stands_apart(title, below[0].strip())
    if not is_title(title) or not apart or _is_one_of_several(title, below):
        return "", itertools.chain(head, rest)
    head[first] = "\n"
    if underlined:
        head[first + 1] = "\n"
    return title, itertools.chain(head, rest)


def is_title(line: str) -> bool:
    """Whether a line may be a title, by its words."""
    return is_short(line) and not _NO_TITLE.match(line) and says_something(line)


def is_short(line: str) -> bool:
    """Whether a line is no longer than a title, or a heading."""
    return len(line.split()) <= _LONGEST and len(line) <= _WIDEST


def _is_one_of_several(title: str, below: list[str]) -> bool:
    """Whether a line in capitals heads the first of several entries: behind its paragraph comes another one like it."""
    told = list(filter(str.strip, below))
    paragraph = not told[0].isupper() and len(told[0].split()) >= _ENTRY
    return title.isupper() and paragraph and any(line.isupper() and _is_entry(clean(line)) for line in told)


def _is_entry(line: str) -> bool:
    return is_title(line) and not _PART.match(line)


def _stands_apart(title: str, below: str) -> bool:
    """Whether the line below a title is blank, or a paragraph that a line as short is no part of."""
    return not below or (len(title.split()) <= _CLOSE_TITLE and len(below) >= max(_PARAGRAPH, 2 * len(title)))
