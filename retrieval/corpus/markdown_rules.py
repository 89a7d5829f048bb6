"""How Markdown is parsed: CommonMark with tables, what is struck out, formulas, footnotes and lists of terms."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from raisf.retrieval.corpus.splitting import PUNCTUATION

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

DEEPEST = 100
"""Lists and quotations within each other: what lies deeper the parser would leave out, and tell nobody."""

_FORMULA = re.compile(  # of no code and no link, and neither US$ nor $HOME
    r"\$\$[^$]+\$\$|\$(?![\s$])(?:(?!\]\()[^$\\`\n]|\\[^\n])+(?<!\s)(?<!\b[A-Z]{2})(?<!\b[A-Z])\$(?![\w$])"
)
_ENTRY = re.compile(r"\[\^(?P<label>[^\[\]\s]{1,100})\]:[ \t]*|:[ \t]+(?=\S)")
_REFERENCE = re.compile(r"\[\^([^\[\]\s]{1,100})\]")
_INWARDS = 4
"""How far in, at most, stands what belongs to an entry."""


@cache
def parser() -> "MarkdownIt":
    """The parser; of a footnote's entry the token has the label, of a term's nothing."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
    parser.block.ruler.before("reference", "entry", _entry, {"alt": ["paragraph", "reference", "blockquote"]})
    # Stars and backslashes between `$` are signs of mathematics.
    parser.inline.ruler.before("escape", "formula", _text_rule(_FORMULA, lambda found, _: found[0]))
    parser.inline.ruler.before("link", "footnote", _text_rule(_REFERENCE, _label))
    return parser


def _entry(state: "StateBlock", start: int, end: int, silent: bool) -> bool:
    """The rule for a footnote, `[^1]: Forbidden`, and for what a term means, a line of `: Two rents` below it."""
    begin = state.bMarks[start] + state.tShift[start]
    found = _ENTRY.match(state.src, begin, state.eMarks[start])
    if found is None or state.is_code_block(start):
        return False
    if silent:
        return True
    label = found["label"] or ""
    state.env.setdefault("footnotes", set()).add(label)
    if not label:
        _end_paragraph(state, ":")
    token = state.push("entry_open", "", 1)
    token.info, token.map = label, [start, start + 1]
    kept = state.bMarks[start], state.tShift[start], state.sCount[start], state.blkIndent
    state.blkIndent += min(state.sCount[start] - state.blkIndent + found.end() - begin, _INWARDS)
    state.bMarks[start], state.tShift[start], state.sCount[start] = found.end(), 0, state.blkIndent
    state.md.block.tokenize(state, start, end)
    state.bMarks[start], state.tShift[start], state.sCount[start], state.blkIndent = kept
    if not label:
        _end_paragraph(state, ".")
    state.push("entry_close", "", -1)
    return True


def _end_paragraph(state: "StateBlock", mark: str) -> None:
    """Ends the last paragraph, where nothing stands behind it, by a mark if it has none."""
    if state.tokens and state.tokens[-1].type == "paragraph_close":
        inline = state.tokens[-2]
        inline.content += "" if inline.content.rstrip(" *_")[-1:] in PUNCTUATION else mark


def _label(found: re.Match[str], env: Mapping[str, Any]) -> str:
    return f"[{found[1]}]" if found[1] in env.get("footnotes", ()) else ""


def _text_rule(
    pattern: re.Pattern[str], said: Callable[[re.Match[str], Mapping[str, Any]], str]
) -> Callable[["StateInline", bool], bool]:
    """The rule for what matches, which is text; where that says nothing, other rules read it."""

    def rule(state: "StateInline", silent: bool) -> bool:
        found = pattern.match(state.src, state.pos)
        if found is None or not (text := said(found, state.env)):
            return False
        if not silent:
            state.push("text", "", 0).content = text
        state.pos = found.end()
        return True

    return rule
