"""What the flavours of Markdown add to a line: attributes, roles and targets, alerts, raised letters; none is text.

Pandoc, Quarto, kramdown, MyST, GitHub, Obsidian and MkDocs have them.
"""

import re

TICKED = r"(?P<tick>(?<!`)`++)[^\n]{0,500}?(?<!`)(?P=tick)(?!`)"
"""Code in a line."""

_ATTRIBUTES = r"\{ ?(?:[.#:][^{}\n]{0,2000}|[\w-]+=[^{}\n]{0,2000})\}"
_ALONE = re.compile(
    rf"[ >]*{_ATTRIBUTES}\s*$"
    r"|\s*\([\w./: -]{1,100}\)=\s*$"  # a target of MyST
    r"|\s*-{1,4}8<-{1,4}(?:\s.*)?$"  # a file that MkDocs puts in
)
_ALERT = re.compile(r"(\s{0,3}(?:[-*+] +)?>[ >]*)\[!\w{1,30}\][+-]?[ \t]*(.*)$")
_INLINE = re.compile(
    r"\{(?P<role>[a-zA-Z][\w:+.-]{0,40})\}(?P<mark>(?<!`)`++)(?P<told>[^\n]{1,500}?)(?<!`)(?P=mark)(?!`)"
    rf"|{TICKED}"
    r"|\[(?P<span>[^\[\]\n]{1,300})\]\{ ?[.#][^{}\n]{0,200}\}"
    rf"|(?<=[\])`*:]){_ATTRIBUTES}|(?<= )\{{ ?[.#:][^{{}}\n]{{0,2000}}\}}$"
    r"|(?<=\w)\^(?P<raised>[^\W_]{1,10})\^(?!\w)|(?<=[A-Za-z])~(?P<lowered>\d{1,3})~(?!~)"
)
_TARGETED = re.compile(r"(.*\S)\s*<[^<>]*>$")
_PLACES = frozenset("ref numref doc any eq".split())
_DRAWN = re.compile(r"octicon|fa[a-z]?|material-.*|bdg-.*-icon")


def plain_line(line: str) -> str:
    """A line as any Markdown has it; code in it stays as it is."""
    if _ALONE.match(line):
        return "\n" if line.endswith("\n") else ""
    if "[!" in line and (alert := _ALERT.match(line)):
        return f"{alert[1]}{alert[2].rstrip()}:" if alert[2].strip() else alert[1]
    return _INLINE.sub(_said, line) if any(sign in line for sign in "{^~") else line


def _said(found: re.Match[str]) -> str:
    if found["role"]:
        return _role(found["role"].lower().rpartition(":")[2], found["told"].strip(), found["mark"])
    if found["tick"]:
        return found[0]
    if raised := found["raised"]:
        return raised if raised.isalpha() else f"^{raised}"
    return found["span"] or found["lowered"] or ""


def _role(kind: str, told: str, mark: str) -> str:
    """What is seen of a role of MyST; of a place that is not told by words, its name as words."""
    if _DRAWN.fullmatch(kind):
        return ""
    if titled := _TARGETED.match(told):
        return titled[1]
    return re.sub(r"[-_]+", " ", told.rpartition("/")[2]) if kind in _PLACES else f"{mark}{told}{mark}"
