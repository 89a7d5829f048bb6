"""What stands before a text and tells of it: YAML between `---`, TOML between `+++`, or lines `title: ...` alone."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from raisf.retrieval.corpus.titles import says_something
from raisf.utils.text import clean

_FRONT = 300
"""Lines that front matter has at most."""
_BLOCK = 25
"""Words of a text in front matter that is a part of the page, and no description of it."""

_TOLD = re.compile(r"title\s*[:=]\s*(\S.*?)\s*$", re.IGNORECASE)
_SENTENCE = re.compile(r"\w[.!?](\s|$)")
_FOLDED = re.compile(r"[>|][+-]?\d?$")
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
    told, behind = _found(written if fenced else _with_keys(written), fenced)
    if not behind:
        return FrontMatter(), itertools.chain(written, rest)
    inside = _prose(told) if written[0].strip() == "---" else {}
    others = (line for at, line in enumerate(told) if at not in inside and not line.startswith("#"))
    said = (line.strip(" -'\"\n\r\t") for line in others)
    shown = [inside.get(place, "\n") for place in range(len(told))]
    fences = ["\n"] * (behind > len(told))
    front = FrontMatter(_title(told), "\n".join(filter(None, said)), behind)
    return front, itertools.chain(fences, shown, fences, written[behind:], rest)


def _found(head: Sequence[str], fenced: bool) -> tuple[Sequence[str], int]:
    """The lines of the front matter that a text begins with, without its fences, and how many it takes with them."""
    fence = head[0].strip() if head else ""
    first = next((line for line in head[1:] if line.strip() and not line.startswith("#")), "")
    if fence in ("---", "+++") and _KEY.match(first):
        end = next((place for place, line in enumerate(head) if place and line.strip() in (fence, "...")), None)
        if end is not None and (fence == "+++" or _is_metadata(head[1:end])):
            return head[1:end], end + 1
    behind = 0 if fenced else _unfenced(head)
    return head[:behind], behind


def _title(told: Sequence[str]) -> str:
    """The title that front matter tells; nothing where it tells none, or one that says nothing."""
    place, title = next(((at, found[1]) for at, line in enumerate(told) if (found := _TOLD.match(line))), (0, ""))
    if _FOLDED.match(title):  # it stands below, further in
        title = " ".join(itertools.takewhile(lambda line: line[:1].isspace() and line.strip(), told[place + 1 :]))
    title = clean(_unquoted(title.strip()))
    return title if says_something(title) else ""


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
