"""What roles of reStructuredText show, docutils' own and Sphinx's; one that nobody knows keeps its text."""

import re
from typing import Any

from docutils import nodes, utils

# Roles whose text is meant as it is written; other roles name a target behind it, `:ref:`text <target>``.
_LITERAL = frozenset(
    "code literal math kbd samp file sub subscript sup superscript emphasis strong title title-reference regexp "
    "command program mimetype abbr abbreviation menuselection guilabel dfn".split()
)
AS_WRITTEN = frozenset(("code", "literal", "math"))
"""Those of them in which a backslash is one; a document may have others like them, `.. role:: cpp(code)`."""
_DRAWN = frozenset("fa fas fab far octicon rspan cspan raw cite:empty".split())
"""Roles that show an icon, or nothing."""
_TARGETED = re.compile(r"(.*?\S)\s*<([^<>]*)>", re.DOTALL)
_PLACES = frozenset("ref numref doc any".split())
OWN_CODE = "code_roles"
"""Where a document keeps the names of its own roles that are code."""
_BEFORE = {"pep": "PEP ", "rfc": "RFC "}


def role(name: str, *_: object) -> tuple[Any, list[nodes.Node]]:
    """What docutils asks for a role: the one function for all."""
    return _shown_by_role, []


def _shown_by_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, *_: object
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """What a reader sees of `:name:`text``."""
    kind = name.lower().rpartition(":")[2]
    code = kind in AS_WRITTEN or kind in inliner.document.get(OWN_CODE, ())
    text = utils.unescape(text, restore_backslashes=code)
    if kind in _DRAWN or kind.startswith(("raw", "material", "fa-")):
        return [], []
    if kind in ("sup", "superscript"):
        return [nodes.superscript(rawtext, text)], []
    found = None if not kind or code or kind in _LITERAL else _TARGETED.fullmatch(text)
    if found:
        return [nodes.inline(rawtext, found[1])], []
    shown = nodes.inline(rawtext, _untargeted(kind, text))
    if kind in _PLACES:
        shown["place"] = " ".join(text.lower().split())  # the heading of that place is shown, where it is known
    return [shown], []


def _untargeted(kind: str, text: str) -> str:
    """What is shown of a role's text that names no target besides."""
    match kind:
        case "ref" | "numref" | "doc" | "any":  # the title of what it names, whose name is the nearest thing to it
            return re.sub(r"[-_]+", " ", text.rstrip("/").rpartition("/")[2])
        case "menuselection":
            return text.replace("-->", ">").replace("&", "")
        case "guilabel":
            return re.sub(r"&(?=\w)", "", text)
        case "file" | "samp":
            return re.sub(r"(?<!\\)[{}]", "", text)
        case "index":
            return text.partition(";")[0]
        case "" | "code" | "math" | "literal":
            return text
    text = text.rpartition(".")[2] if text.startswith("~") else text.removeprefix("!")
    return _BEFORE.get(kind, "") + text
