"""What site generators write into a text that is no text: tags of templates, marks of their blocks.

Lines stay lines: what stands in which one is cited.
"""

import re

# Liquid's, Jinja's, Nunjucks', Hugo's and ERB's tags; what is to be written out, `{{ name }}`, stands for text. In code
# they are none. A tag of more characters, or over lines, is left: what nobody closes must not cost a search each.
_TAG = re.compile(
    r"(?P<tick>`+)(?!`)[^\n]{0,500}?(?<!`)(?P=tick)(?!`)"
    r"|(?P<tag>\{%[^\n]{0,500}?%\}|\{\{[<%][^\n]{0,500}?[>%]\}\}|<%[^\n]{0,500}?%>)"
)
_TARGET = re.compile(r"(?<=\]\()(?:[^()\n{]{0,200}\{\{[^()\n]{0,200}\}\}[^()\n]{0,200}|\s{1,9})(?=\))")
_QUOTED = re.compile(r"""(["'])((?:(?!\1).)+)\1""")
_SAID = 5
"""Words of a tag's text that say something, as of a picture's; fewer name a file or a colour."""

# Blocks of MkDocs and MyST: `!!! note "Title"` above indented lines, `:::{note} Title` above a `:::`; HTML's headings.
_INDENTED = re.compile(r"""( *)(?:(?:!!!|\?\?\?\+?)[ \t]+[\w-][\w -]*|===(?=[ \t]+"))[ \t]*(?:"([^"]*)")?[ \t]*$""")
_COLONS = re.compile(r" {0,3}:{3,}[ \t]*(?:\{[\w-]+\}|[\w-]+)?[ \t]*(.*?)[ \t]*:*$")
_HEADING = re.compile(r" {0,3}<h([1-6])\b[^<>]*>(.*?)</h\1>\s*$", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def without_tags(line: str) -> str:
    """A line without the tags of a site's templates, but for what these say in quotes; code stays as it is."""
    if "{%" not in line and "{{" not in line and "<%" not in line:
        return line
    return _TARGET.sub("", _TAG.sub(lambda found: _said(found["tag"]) if found["tag"] else found[0], line))


def _said(tag: str) -> str:
    return " ".join(words for _, words in _QUOTED.findall(tag) if len(words.split()) >= _SAID)


def as_markdown(text: str) -> str:
    """A Markdown text without such tags, with blocks and headings of a site's own kinds as any Markdown has them."""
    lines, fence, within, above = list[str](), "", list[int](), ""
    written = text.split("\n")
    for number, line in enumerate(written, start=1):
        indent = len(line) - len(line.lstrip(" "))
        while within and line.strip() and indent < within[-1]:
            within.pop()
        line = line[min(within[-1], indent) :] if within else line
        if fence:
            closed = line.strip().startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closed else fence
        elif mark := _FENCE.match(line):
            fence = mark[1]
        else:
            line = without_tags(line)
            if (block := _INDENTED.match(line)) and (block[2] or _is_indented(written[number : number + 2])):
                within.append((within[-1] if within else 0) + len(block[1]) + 4)
                line = f"{block[2]}:" if block[2] else ""
            elif line.lstrip().startswith(":::") and (block := _COLONS.match(line)):
                line = block[1]
            elif not above.strip() and (heading := _HEADING.match(line)):
                line = f"{'#' * int(heading[1])} {heading[2]}"
        lines.append(line)
        above = line
    return "\n".join(lines)


def _is_indented(below: list[str]) -> bool:
    return next((line for line in below if line.strip()), "").startswith("    ")
