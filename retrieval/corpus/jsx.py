"""What an mdx file has besides Markdown: imports, exports, and the tags of components, which are no text.

Lines stay lines: what stands in which one is cited.
"""

import re
from collections.abc import Iterable, Iterator

from raisf.retrieval.corpus.shown import is_caption
from raisf.retrieval.corpus.templates import fence_at
from raisf.utils.text import clean

_STATEMENT = re.compile(
    r"import\s*(?:[\"'{*]|[^\"'\n]{1,300}\bfrom\s*[\"'])|export\s+(?:default|const|let|var|function|async|class)\b|export\s*[{*]"
)
_IMPORT = re.compile(r"(?:import\s+(?:[\w*{][^\"'\n]{0,300}\bfrom\s*)?[\"'][^\"'\n]{1,300}[\"']\s*;?\s*)+$")
_LONGEST = 200
"""Lines that are looked through for the end of a statement, after one that nobody has closed."""
_TEXT = re.compile(
    r""""(?:[^"\\\n]|\\.){0,2000}+"|'(?:[^'\\\n]|\\.){0,2000}+'|`(?:[^`\\\n]|\\.){0,2000}+`|(?<!:)//.*"""
)
"""What of a statement's line says nothing about its braces."""
_GOES_ON = re.compile(r"(?:=>?|[(,?:+]|&&|\|\|)\s*$")
_CLOSES = re.compile(r"\s*[)\]}]|.*(?:;|>\s*\))\s*$")
"""How a statement's last line begins or ends, where blank ones are within: brackets of prose close none."""
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_PIECES = re.compile(
    r"(?P<tick>(?<!`)`++)(?:[^\n]|\n(?!\s*\n)){0,500}?(?<!`)(?P=tick)(?!`)"
    r"|(?P<comment>\{/\*)"
    r"|(?P<space>\{\s*([\"'`])\s*\4\s*\})"
    r"|(?P<tag>(?<!\\)</?(?P<name>[A-Za-z][\w.-]*)?)"
)
_ATTRIBUTE = re.compile(r"""\s+(?:[\w:-]+(?:\s*=\s*(?:"[^"]{0,2000}+"|'[^']{0,2000}+'|(?=\{)))?|(?=\{))""")
_MOST = 50
"""Attributes of a tag."""
_TAG_END = re.compile(r"\s*/?>")
# What components show of their attributes.
_SHOWN = re.compile(
    r"""\s(?:title|label|heading|header|summary|question|caption|description)=\{?(["'`])((?:(?!\1).)+)\1""", re.DOTALL
)
_NAMED = re.compile(r"""\s(?:name|path|query|body)=\{?(["'`])((?:(?!\1).)+)\1""")
_DETAIL = re.compile(
    r"""\s(?:(type|default)=(?:(["'])((?:(?!\2).)+)\2|\{([^{}]{1,200})\})|(required|deprecated)(?=\s|$|=\{true))"""
)
_FIELDS = frozenset(("ParamField", "ResponseField"))
"""Components that describe a parameter, and show its name."""
_ALT = re.compile(r"""\salt=(["'])((?:(?!\1).)+)\1""")
_HOLDERS = frozenset("address article aside center details div font footer header main p section span".split())
"""Elements of HTML within which mdx reads Markdown, and Markdown does not."""


def is_mdx(lines: Iterable[str]) -> bool:
    """Whether the lines of a Markdown file import something, as those of sites do that read all Markdown as mdx."""
    fence, apart = "", True
    for line in lines:
        before, fence = fence, fence_at(line, fence)
        if apart and not fence and not before and _IMPORT.match(line):
            return True
        apart = not line.strip()
    return False


def without_jsx(text: str) -> Iterator[str]:
    """The lines of an mdx text as Markdown; of components' tags stays what they are titled."""
    return _without_tags(_outdented(_without_statements(text.split("\n"))))


def _without_statements(lines: list[str]) -> list[str]:
    """The lines, those of imports and exports blank."""
    kept, fence, above, place = list[str](), "", "", 0
    longest = len(lines)
    while place < len(lines):
        line = lines[place]
        fence = fence_at(line, fence)
        if not fence and (not above.strip() or _STATEMENT.match(above)) and _STATEMENT.match(line):
            end = _end(lines, place, place + longest)
            if end is None:
                longest = _LONGEST
                blank = (number for number in range(place + 1, len(lines)) if not lines[number].strip())
                end = next(blank, len(lines))
            kept += [""] * (end - place)
            place, above = end, ""
            continue
        kept.append(line)
        place, above = place + 1, line
    return kept


def _end(lines: list[str], start: int, last: int) -> int | None:
    """The line behind a statement: the first one, or blank one, outside of its braces; None where they stay open."""
    open_braces, blank, template = 0, False, False
    for place in range(start, min(last, len(lines))):
        line = lines[place]
        if not line.strip() and open_braces <= 0 and not template:
            return place
        blank = blank or not line.strip()
        if template:
            _, closed, line = line.partition("`")
            template = not closed
        line = _TEXT.sub("", line)
        if not template:
            line, opened, _ = line.partition("`")  # one that goes on below
            template = bool(opened)
        open_braces += sum(map(line.count, "{([")) - sum(map(line.count, "})]"))
        if template or open_braces > 0 or _GOES_ON.search(line):
            continue
        if blank and not _CLOSES.match(line):
            return None
        if not (place + 1 < len(lines) and _STATEMENT.match(lines[place + 1])):
            return place + 1
    return None


def _outdented(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the indents that show which component they are in, and are no code: mdx has none such."""
    base, item, fence = 0, False, ""
    for line in lines:
        before, fence, indent = fence, fence_at(line, fence), len(line) - len(line.lstrip())
        if line.strip() and not before and not (item and indent > base):
            base, item = indent, _ITEM.match(line) is not None
        yield line[min(base, indent) :]


def _without_tags(lines: Iterable[str]) -> Iterator[str]:
    """The lines without tags, but for what these are titled, and but for those in code."""
    text, fence = list[str](), ""
    for line in lines:
        before, fence = fence, fence_at(line, fence)
        if (before or fence) and text:
            yield from _as_text(text)
            text = []
        if before or fence:
            yield f"{line}\n"
        else:
            text.append(line)
    yield from _as_text(text)


def _as_text(lines: list[str]) -> Iterator[str]:
    bare = _bare("\n".join(lines)).split("\n")
    return (f"{line}\n" for line in bare)


def _bare(text: str) -> str:
    """The text without tags, comments and blanks in braces; a tag that nobody closes is none."""
    closes, kept, place = _closing_braces(text), list[str](), 0
    last_comment = text.rfind("*/}")
    while found := _PIECES.search(text, place):
        end, said = found.end(), found[0]
        if found["comment"] and end <= last_comment:
            end = text.index("*/}", end) + 3
            said = ""
        elif found["space"]:
            said = " "
        elif found["tag"]:
            after = _behind_attributes(text, end, closes) if found["name"] else end
            if closed := _TAG_END.match(text, after) if after else None:
                told, end = text[end : closed.start()], closed.end()
                said = _said(found["tag"], found["name"] or "", told, text[found.start() : end])
        lines = text.count("\n", found.start(), end) - said.count("\n")  # lines stay lines
        kept += [text[place : found.start()], said, "\n" * lines]
        place = end
    return "".join([*kept, text[place:]])


def _closing_braces(text: str) -> dict[int, int]:
    """The place of each brace that opens -> that of the one that closes it."""
    closes, opened = dict[int, int](), list[int]()
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closes[opened.pop()] = brace.start()
    return closes


def _behind_attributes(text: str, place: int, closes: dict[int, int]) -> int:
    """Where the attributes of a tag end that begin at a place; 0 where one is not whole."""
    for _ in range(_MOST):
        found = _ATTRIBUTE.match(text, place)
        if found is None:
            break
        place = found.end()
        if text[place : place + 1] == "{":
            if place not in closes:
                return 0
            place = closes[place] + 1
    return place


def _said(tag: str, name: str, told: str, whole: str) -> str:
    """What a tag says."""
    if name[:1].islower() and "." not in name and name not in _HOLDERS:  # HTML's, which Markdown reads but for braces
        lines = "\n" * whole.count("\n")
        return f"{tag}{lines}>" if "{" in told and not tag.startswith("</") else whole
    named = _NAMED.findall(told) if name in _FIELDS else []
    titles = [title for _, words in (*named, *_SHOWN.findall(told)) if (title := clean(words))]
    if name in _FIELDS and titles and (details := [_detail(*found) for found in _DETAIL.findall(told)]):
        titles[0] += f" ({', '.join(details)})"
    alts = [words for _, words in _ALT.findall(told) if is_caption(words)]
    leads = titles and (titles[-1][-1].isalnum() or titles[-1][-1] == ")")
    shown = f"{' '.join(titles)}{':' if leads else ''} {' '.join(alts)}"
    return shown.strip() + " " * (bool(titles) and "\n" not in whole)


def _detail(key: str, _: str, quoted: str, braced: str, flag: str) -> str:
    value = clean(quoted or braced).strip("\"'`")
    return f"default {value}" if key == "default" else value or flag
