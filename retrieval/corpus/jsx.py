"""What an mdx file has besides Markdown: imports, exports, and the tags of components, which are no text.

Lines stay lines: what stands in which one is cited.
"""

import re
from collections.abc import Iterable, Iterator

from raisf.retrieval.corpus.splitting import is_caption
from raisf.retrieval.corpus.templates import fence_at

_STATEMENT = re.compile(
    r"import\s*(?:[\"'{*]|[^\"'\n]{1,300}\bfrom\s*[\"'])|export\s+(?:default|const|let|var|function|async|class)\b|export\s*[{*]"
)
_LONGEST = 200
"""Lines of a statement with blank ones between them."""
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
# A tag, with values in quotes and in braces; what is longer, or nobody closes, is left as it is.
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,500}+\}){0,500}+\}){0,500}+\}"
_PIECES = re.compile(
    r"(?P<tick>(?<!`)`++)(?:[^\n]|\n(?!\s*\n)){0,500}?(?<!`)(?P=tick)(?!`)"
    r"|(?P<comment>\{/\*.{0,1000}?\*/\})"
    r"|(?P<space>\{\s*([\"'`])\s*\4\s*\})"
    r"|(?P<tag>(?<!\\)</?(?:(?P<name>[A-Za-z][\w.-]*)"
    rf"(?P<told>(?:\s+[\w:-]+(?:\s*=\s*(?:\"[^\"]{{0,2000}}+\"|'[^']{{0,2000}}+'|{_BRACES}))?|\s+{_BRACES}){{0,50}}+)\s*)?"
    r"/?>)",
    re.DOTALL,
)
# What components show of their attributes.
_SHOWN = re.compile(r"""\s(?:title|label|heading|header|summary|question|caption|description)=\{?(["'`])(.+?)\1""")
_NAMED = re.compile(r"""\s(?:name|path|query|body|header)=\{?(["'`])(.+?)\1""")
_FIELDS = frozenset(("ParamField", "ResponseField"))
"""Components that describe a parameter, and show its name."""
_ALT = re.compile(r"""\salt=(["'])(.+?)\1""")
_HOLDERS = frozenset("address article aside center details div font footer header main p section span".split())
"""Elements of HTML within which mdx reads Markdown, and Markdown does not."""


def without_jsx(text: str) -> Iterator[str]:
    """The lines of an mdx text as Markdown; of components' tags stays what they are titled."""
    return _without_tags(_outdented(_without_statements(text.split("\n"))))


def _without_statements(lines: list[str]) -> list[str]:
    """The lines, those of imports and exports blank."""
    kept, fence, above, place = list[str](), "", "", 0
    while place < len(lines):
        line = lines[place]
        fence = fence_at(line, fence)
        if not fence and (not above.strip() or _STATEMENT.match(above)) and _STATEMENT.match(line):
            end = _end(lines, place)
            kept += [""] * (end - place)
            place, above = end, ""
            continue
        kept.append(line)
        place, above = place + 1, line
    return kept


def _end(lines: list[str], start: int) -> int:
    """The line behind a statement: the first blank one outside of its braces, or the first where none are closed."""
    first, open_braces = 0, 0
    for place in range(start, min(start + _LONGEST, len(lines))):
        line = lines[place]
        if not line.strip():
            first = first or place
            if open_braces <= 0:
                return place
        open_braces += sum(map(line.count, "{([")) - sum(map(line.count, "})]"))
        if open_braces <= 0 and place + 1 < len(lines) and not _STATEMENT.match(lines[place + 1]):
            return place + 1
    return first or min(start + _LONGEST, len(lines))


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
    bare = _PIECES.sub(_said, "\n".join(lines)).split("\n")
    return (f"{line}\n" for line in bare)


def _said(found: re.Match[str]) -> str:
    """What a piece says, on as many lines."""
    lines = "\n" * found[0].count("\n")
    if found["tick"]:
        return found[0]
    if found["tag"] is None:
        return " " if found["space"] else lines
    name, told = found["name"] or "", found["told"] or ""
    if name[:1].islower() and "." not in name and name not in _HOLDERS:  # HTML's, which Markdown reads but for braces
        return f"{found[0][: 1 + len(name)]}{lines}>" if "{" in told and found[0][1] != "/" else found[0]
    titles = [words for _, words in (*(_NAMED.findall(told) if name in _FIELDS else ()), *_SHOWN.findall(told))]
    alts = [words for _, words in _ALT.findall(told) if is_caption(words)]
    shown = f"{' '.join(titles)}{':' if titles and titles[-1][-1].isalnum() else ''} {' '.join(alts)}"
    return f"{shown.strip()}{lines or ' ' * bool(titles)}"
