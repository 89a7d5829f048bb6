"""What a document is about, in a few words: its first line where that is a title, else its file's name.

A passage is judged and read with its title. A wrong one does more harm than none: a language model that is shown
`00 | The Danube flows ...` takes it that the passage is about something else.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unicodedata import category

from raisf.retrieval.corpus.lines import PACKED
from raisf.retrieval.corpus.splitting import STOPS
from raisf.utils.text import clean, composed

# Words and characters of a first line that is a title.
_LONGEST, _WIDEST = 15, 120
# Words of a title that no blank line follows, and characters of the line below it, which must be a paragraph.
_CLOSE_TITLE, _PARAGRAPH = 10, 90
# Lines that are looked at: blank ones, the title, what follows; and lines of front matter.
_LOOKED_AT, _FRONT = 20, 300
# Words of a block of front matter that is a part of the page, and no description of it.
_BLOCK = 25

_UNDERLINE = re.compile(r"([=~*-])\1{2,}\s*$")
# A list, a quotation, a table, code, front matter, a heading or a link of Markdown, a tag; the end of a sentence, or
# what leads to one, in any script, but no question; a template's tag, a block's mark.
_ENDS = ".,;:\u2026\u3002\uff0c\uff1b\uff1a\u060c\u061b" + STOPS.replace("\u061f", "")
_NO_TITLE = re.compile(rf"[#>|`+*<{{=-]|:::|\.\. |!?\[|\d+[.)]\s|\\[a-z]|.*[{_ENDS}]$")
_TOLD = re.compile(r"title\s*[:=]\s*(\S.*?)\s*$", re.IGNORECASE)
_SENTENCE = re.compile(r"\w[.!?](\s|$)")
_FOLDED = re.compile(r"[>|][+-]?\d?$")
_NUMERAL = re.compile(r"(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_PART = re.compile(r"(PART|CHAPTER|SECTION|SUMMARY|INTRODUCTION|CONTENTS|APPENDIX|PREFACE|CONCLUSIONS?)\b")
_ENTRY = 8
"""Words of a line from which on it begins a paragraph, and not what stands below a title."""
_KEY = re.compile(r"[\w.-]+(:(\s|$)|\s*=)|\[[\w.-]+\]\s*$")
_ENTRY_KEY = re.compile(r"[\w.-]+( [\w.-]+){0,3}:(\s|$)|[\w.-]+\s*=")
# Capitalised keys that pages have too; with others, as in `Present: Ada`, lines between two rules are the text.
_OF_PAGES = frozenset(
    (
        "abstract alias aliases author authors categories category class cover created date description draft id image "
        "keywords lang language layout modified permalink published slug source status subject subtitle summary tag "
        "tags template theme title type updated url version weight"
    ).split()
)
# Those that nothing but a page has: with one of them, any others are its own, too.
_OF_SITES = frozenset("aliases draft layout permalink slug tags template".split())
_OF_PANDOC = ("title", "author", "date")
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


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What stands before a text: YAML between `---`, TOML between `+++`.

    Attributes:
        title: That it tells; empty where it tells none that says something.
        text: What it says, a line each, to be read where the page says nothing; without the prose in it.
        lines: How many it takes.
    """

    title: str = ""
    text: str = ""
    lines: int = 0


def without_front_matter(lines: Iterable[str], fenced: bool = False) -> tuple[FrontMatter, Iterator[str]]:
    """The front matter of a text, and the text's lines; those of the front matter are blank but where it has prose.

    Args:
        lines: Of the text.
        fenced: Whether it is one only between fences.
    """
    rest = iter(lines)
    written = list(itertools.islice(rest, _FRONT))
    head = written if fenced else _with_keys(written)
    fence = head[0].strip() if head else ""
    first = next((line for line in head[1:] if line.strip() and not line.startswith("#")), "")
    ends = (place for place, line in enumerate(head) if place and line.strip() in (fence, "..."))
    end = next(ends, None) if fence in ("---", "+++") and _KEY.match(first) else None
    if end is not None and (fence == "+++" or _is_metadata(head[1:end])):
        told, behind = head[1:end], end + 1
    elif behind := 0 if fenced else _unfenced(head):
        told = head[:behind]
    else:  # a rule, if anything
        return FrontMatter(), itertools.chain(written, rest)
    place, title = next(((at, found[1]) for at, line in enumerate(told) if (found := _TOLD.match(line))), (0, ""))
    if _FOLDED.match(title):  # it stands below, further in
        title = " ".join(itertools.takewhile(lambda line: line[:1].isspace() and line.strip(), told[place + 1 :]))
    title = clean(_unquoted(title.strip()))
    inside = _prose(told) if fence == "---" else {}
    others = (line for at, line in enumerate(told) if at not in inside and not line.startswith("#"))
    said = (line.strip(" -'\"\n\r\t") for line in others)
    front = FrontMatter(title if says_something(title) else "", "\n".join(filter(None, said)), behind)
    shown = [inside.get(place, "\n") for place in range(len(told))]
    fences = ["\n"] * (behind > len(told))
    return front, itertools.chain(fences, shown, fences, written[behind:], rest)


def _with_keys(lines: Sequence[str]) -> list[str]:
    """Lines whose first ones are pandoc's, as programs that make manuals have them: `% Rivers` as `title: Rivers`."""
    marked = itertools.takewhile(lambda line: line.startswith("% "), lines)
    told = [f"{key}: {line[2:]}" for key, line in zip(_OF_PANDOC, marked, strict=False)]
    return [*told, *lines[len(told) :]]


def _unquoted(title: str) -> str:
    """A title without the quotes around it, as YAML and TOML write them; within it they stay."""
    mark = title[:1]
    if mark not in ("'", '"'):
        return title
    return title[1:].removesuffix(mark).replace("''" if mark == "'" else '\\"', mark)


def _is_metadata(lines: Sequence[str]) -> bool:
    """Whether what stands between two rules is YAML, and not prose or entries below a line such as `Date: 5 May`."""
    if not (_are_of_pages(lines) or any(map(_TOLD.match, lines))):
        return False
    if not lines[0].strip() and not any(line[:1].islower() and _KEY.match(line) for line in lines):
        return False
    key = ""
    for line in lines:
        if _KEY.match(line):
            key = line.rstrip()
        elif line[:1] == "-" and not key.endswith(":"):  # items that no key has
            break
        elif line.strip() and line[:1] not in " \t-#]}":
            break
    else:
        return True
    import yaml

    try:
        return isinstance(yaml.compose("".join(lines), Loader=yaml.SafeLoader), yaml.MappingNode)
    except (yaml.YAMLError, RecursionError):
        return False


def _are_of_pages(lines: Sequence[str]) -> bool:
    """Whether the keys of lines are a page's: `date`, `Title`. Others, such as `Present:`, are entries of a text."""
    told = [line.strip().partition(":")[0] for line in lines if line.strip() and line[0] not in "# \t-]}"]
    keys = set(map(str.casefold, told))
    return any(key[:1].islower() for key in told) or keys <= _OF_PAGES or not keys.isdisjoint(_OF_SITES)


def _unfenced(head: Sequence[str]) -> int:
    """The lines of metadata that a text begins with, a title among them, up to a blank line or one of dashes.

    Where the others are entries of the text, the title alone if it is the first.
    """
    end = next((place for place, line in enumerate(head) if not line.strip(" -\r\n\t")), 0)
    if not any(map(_TOLD.match, head[:end])):
        return 0
    if not all(_ENTRY_KEY.match(line) or line[:1].isspace() for line in head[:end]):
        return 0
    if not _are_of_pages(head[:end]):
        return int(_TOLD.match(head[0]) is not None)
    below = next((place for place in range(end, len(head)) if head[place].strip()), end)
    return below + 1 if end and set(head[below].strip()) == {"-"} else end


def _prose(lines: Sequence[str]) -> dict[int, str]:
    """The lines of YAML that are a text of several sentences or paragraphs, by their place: a page may lie there.

    Such are blocks, `text: |`, of `_BLOCK` words and more with a sentence; a shorter one is a description or a caption.
    """
    if not any(_FOLDED.search(line.rstrip()) for line in lines):
        return {}
    import yaml

    try:
        nodes = [yaml.compose("".join(lines), Loader=yaml.SafeLoader)]
    except (yaml.YAMLError, RecursionError):  # a template's, perhaps
        return {}
    found, seen = dict[int, str](), set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:  # an anchor's, maybe one within itself
            continue
        seen.add(id(node))
        if isinstance(node, yaml.CollectionNode):
            nodes += itertools.chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        elif isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") and _is_prose(node.value):
            block = lines[node.start_mark.line + 1 : node.end_mark.line]
            inwards = min(len(line) - len(line.lstrip()) for line in block if line.strip())
            found |= {node.start_mark.line + 1 + place: line[inwards:] or "\n" for place, line in enumerate(block)}
    return found


def _is_prose(text: str) -> bool:
    return len(text.split()) >= _BLOCK and _SENTENCE.search(text) is not None


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
