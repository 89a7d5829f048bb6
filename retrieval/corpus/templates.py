"""What generators of sites and notebooks write into a text that is none: tags of templates, marks of blocks and links.

Lines stay lines: what stands in which one is cited.
"""

import re

from raisf.retrieval.corpus.directives import Directives
from raisf.retrieval.corpus.flavours import TICKED, plain_line
from raisf.retrieval.corpus.shown import is_caption

# Liquid's, Jinja's and Nunjucks' tags, Hugo's shortcodes, ERB's; what is to be written out, `{{ name }}` and
# `<%= name %>`, stands for text. In code they are none. A tag of more characters, or over lines, is left as it is: what
# nobody closes must not cost a search each.
_TAG = re.compile(
    TICKED + r"|(?P<target>(?<=\]\()[^()\n{]{0,200}\{\{[^()\n]{0,200}\}\}[^()\n]{0,200}(?=\)))"
    r"|(?P<tag>\{%[^\n]{0,500}?%\}|\{\{[<%][^\n]{0,500}?[>%]\}\}|<%(?!=)[^\n]{0,500}?%>)"
)
_QUOTED = re.compile(r"""(=?)(["'])((?:(?!\2).)+)\2""")
# Within a line of text a shortcode stands for a word of it, as `{{< var glossary.quorum >}}`, and so do translations.
_WORD = re.compile(r"\{\{[<%]|\{%-?\s*trans")
_LAST = re.compile(r"([\w-]+)\W*$")

# Blocks of MkDocs and MyST: `!!! note "Title"` above indented lines, `:::{note} Title` above a `:::`; HTML's headings.
_INDENTED = re.compile(r"""( *)(?:(?:!!!|\?\?\?\+?)[ \t]+[\w-]+(?: [\w-]+)*|===(?=[ \t]+"))(?:[ \t]+"([^"]*)")?$""")
_COLONS = re.compile(
    r"( *(?:[-*+] +)?):{3,}[ \t]*"
    r"(?:\{[\w-]+\}|(?:note|tip|hint|info|important|warning|caution|danger|details)\b|[\w-]+$)?"
    r"""[ \t]*(?:\[(.*)\]$|\{[^{}]{0,200}\btitle="([^"]{0,200})"[^{}]{0,200}\}$)?"""
)
# An element of HTML whose contents are Markdown, as kramdown has them; a link to another note of a wiki or a notebook.
_CONTAINER = re.compile(
    r""" {0,3}<[a-zA-Z][\w-]*(?: [^<>]{0,300})? markdown(?:=["']?(?:1|block|span)["']?)?(?: [^<>]{0,300})?>$"""
)
# Where the contents of the page are to stand; kramdown puts them in the place of an item.
_CONTENTS, _TOC = re.compile(r" {0,3}\[{1,2}_?toc_?\]{1,2}$", re.IGNORECASE), re.compile(r"\s*\{:\s*toc\b")
_NOTE = re.compile(
    TICKED + r"|(?P<shown>!?)\[\[(?P<note>[^\[\]|\n]{1,200})(?:\|(?P<words>[^\[\]\n]{1,200}))?\]\](?![(\[:])"
)
# What Logseq keeps of a block in lines of their own: nobody wrote it.
_KEPT = re.compile(r"\s*(?:- )?(?:id|collapsed|(?:card|logseq|query)[-.][\w.-]+):: +\S.*$")
# Where a page ends on paper, as pandoc has it.
_PAGE_END = re.compile(r" {0,3}\\(?:newpage|pagebreak|clearpage)$")
# A closing tag, or one that needs none, alone in a line: a heading right below it would be a part of the HTML.
_TAG_ALONE = re.compile(
    r" {0,3}(?:</(?!(?:pre|script|style|textarea)\b)\w+>|<(?:br|hr|img)\b[^<>]*>)\s*$", re.IGNORECASE
)
_HEADING = re.compile(r" {0,3}<h([1-6])\b[^<>]*>(.*?)</h\1>$", re.IGNORECASE)
_MARKED_HEADING = re.compile(r"#{1,6} +\S")
_FENCE = re.compile(r"(?:[ >]|[-*+:] |\d{1,9}[.)] )*+(`{3,}+(?!.*`)|~{3,})")
_CODE_INDENT = 4
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
# A callout of Quarto: the heading that it begins with is its title.
_CALLOUT = re.compile(r":{3,}[ \t]*\{[^{}]*\.callout-")
_CALLOUT_TITLE = re.compile(r" {0,3}#{1,6} +(.*?)[ :#]*$")


def without_tags(line: str) -> str:
    """A line without the tags of a site's templates, but for what these say in quotes; code stays as it is."""
    if "{%" not in line and "{{" not in line and "<%" not in line:
        return line
    alone = not _TAG.sub("", line).strip()

    def said(found: re.Match[str]) -> str:
        tag = found["tag"]
        if tag is None:
            return "" if found["target"] else found[0]
        quoted = [(given, words) for given, _, words in _QUOTED.findall(tag)]
        long = [words for _, words in quoted if is_caption(words)]
        if long or alone or not _WORD.match(tag):
            return " ".join(long)
        last = None if "=" in tag else _LAST.search(tag)
        return " ".join(words for given, words in quoted if not given) or (last[1].replace("-", " ") if last else "")

    return _TAG.sub(said, line)


def is_made(title: str) -> bool:
    """Whether a title is still to be made, as `{{ page.title }}`."""
    return "{{" in title or "<%" in title


def as_markdown(text: str) -> str:
    """A Markdown text without such tags, with blocks and headings of a site's own kinds as any Markdown has them."""
    lines, fence, within, above = list[str](), "", list[int](), ""
    inner, callout = 0, False  # where the text of the last item begins; whether a callout has just begun
    written = text.split("\n")
    directives = Directives(written)
    for number, line in enumerate(written, start=1):
        indent = len(line) - len(line.lstrip(" "))
        while within and line.strip() and indent < within[-1]:
            within.pop()
        line = line[min(within[-1], indent) :] if within else line
        shown = directives.shown(line, fence)
        bare, before, fence = line.rstrip(), fence, fence if shown is not None else fence_at(line, fence)
        indent = len(line) - len(line.lstrip(" "))
        marked = None if before or fence or indent >= inner + _CODE_INDENT else _ITEM.match(line)
        inner = marked.end() if marked else 0 if bare and not indent and not above.strip() else inner
        if shown is not None:
            line = shown
        elif before or fence:
            pass  # code
        elif _KEPT.match(bare) or _PAGE_END.match(bare):
            line = ""
        elif (block := _INDENTED.match(bare)) and (block[2] or _is_indented(written[number : number + 2])):
            within.append((within[-1] if within else 0) + len(block[1]) + 4)
            line = f"{block[2]}:" if block[2] else ""
        elif block := _COLONS.match(bare) if ":::" in bare else None:
            callout = _CALLOUT.match(bare.lstrip()) is not None
            title = (block[2] or block[3] or bare[block.end() :]).rstrip(" :")
            line = f"{block[1]}{title}"
        elif indent >= inner + _CODE_INDENT:
            pass  # code perhaps
        elif callout and (heading := _CALLOUT_TITLE.match(bare)):
            line = f"{plain_line(heading[1])}:"
        elif _CONTENTS.match(bare) or any(map(_TOC.match, written[number : number + 1])):
            line = ""
        else:
            if _TAG_ALONE.match(above) and _MARKED_HEADING.match(line):
                lines[-1] = ""
            line = _text_line(line, begins=not above.strip())
        callout = callout and (not bare or bare.lstrip().startswith(":::"))
        lines.append(line)
        above = line
    return "\n".join(lines)


def _text_line(line: str, begins: bool) -> str:
    """A line of text as any Markdown has it; a heading of HTML is one where a block begins."""
    if _CONTAINER.match(line.rstrip()):
        return ""
    line = _without_notes(plain_line(without_tags(line)))
    heading = _HEADING.match(line.rstrip()) if begins else None
    return f"{'#' * int(heading[1])} {heading[2]}" if heading else line


def _without_notes(line: str) -> str:
    """A line with the words of its links to other notes, `[[engine]]` or `[[engine|motor]]`, without what it shows."""
    if "[[" not in line:
        return line

    def said(found: re.Match[str]) -> str:
        if found["note"] is None:  # code
            return found[0]
        return "" if found["shown"] else found["words"] or found["note"].replace("#", " ").strip()

    return _NOTE.sub(said, line)


def fence_at(line: str, fence: str) -> str:
    """The fence of the code that a line is in, or opens, as far in as it stands; else, and where it is closed, nothing.

    Args:
        line: Of Markdown.
        fence: What this gave for the line above.
    """
    if not fence:
        opens = _FENCE.match(line)
        return " " * opens.start(1) + opens[1] if opens else ""
    bare = line.rstrip()
    inwards, mark = len(bare) - len(bare.lstrip(" >")), fence.lstrip()
    ends = bare[inwards:].startswith(mark) and not bare[inwards:].strip(mark[0])
    return "" if ends and inwards < len(fence) - len(mark) + _CODE_INDENT else fence


def _is_indented(below: list[str]) -> bool:
    return next((line for line in below if line.strip()), "").startswith("    ")
