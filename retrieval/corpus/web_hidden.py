"""What stands in a page of html and is no text of it: hidden, struck out, told again, or a way through the page."""

import re
from collections.abc import Container, Sequence
from typing import Any

from raisf.retrieval.corpus.splitting import PUNCTUATION
from raisf.utils.text import clean

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_HIDING = re.compile(r"(?<![\w-])(display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
STRUCK = ("del", "s", "strike")
"""Elements whose text is struck out: it holds no longer, and small readers take it for the text behind it."""
_STRIKING = re.compile(r"(?<![\w-])text-decoration(-line)?\s*:[^;]*\bline-through\b", re.IGNORECASE)
_SIGNS = ("#", "\u00b6", "\u00a7", "\U0001f517", "\u200b", "")
_SKIP = re.compile(r"(?:skip|jump) to (?:the )?(?:main )?(?:content|navigation|menu)", re.IGNORECASE)
_CONTENTS = re.compile(r"(?:table of contents|(?:on|in) this (?:page|article|section)):?", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:mailto|tel):", re.IGNORECASE)
_MENU = 3
"""Links of a menu, at least."""
_BEFORE_WORDS = re.compile(r"[\d.\s]*")
"""The number of a heading, as in `2.1 Fees`."""


def drop_hidden(parts: Sequence[Any]) -> None:
    """Takes out of a page's parts what it hides, strikes out or tells again, its navigation and its contents.

    A whole page is hidden only while it loads.
    """
    for element in _elements(parts):
        if element.getparent() is None:  # the whole page, or a part of navigation that has been taken out
            continue
        hidden = element.get("hidden") is not None or _HIDING.search(element.get("style", ""))
        hidden = hidden and element.tag != "body" and not _is_pictured(element)
        if hidden or _is_struck(element) or _is_again(element) or _is_way(element):
            element.drop_tree()
        elif element.get("role") == "navigation" and not is_unclosed(element):
            element.clear(keep_tail=True)
        elif code := element.get("data-cfemail"):
            element.text = _address(code) or element.text
    elements = _elements(parts)
    headings = {words for element in elements if element.tag in HEADINGS if (words := _words_of(element))}
    above = bool(headings)  # whether the first of them is still to come
    for element in elements:
        above = above and not (element.tag in HEADINGS and _words_of(element))
        if _is_contents(element, headings) or (above and (_is_menu(element) or _is_banner(element))):
            element.clear(keep_tail=True)


def _elements(parts: Sequence[Any]) -> list[Any]:
    return [one for part in parts for one in part.iter() if isinstance(one.tag, str)]


def _address(code: str) -> str:
    """The address of e-mail that a page hides from programs, as Cloudflare does: a key, and each byte with it."""
    try:
        key, *told = bytes.fromhex(code)
        return bytes(byte ^ key for byte in told).decode()
    except ValueError:
        return ""


def is_unclosed(navigation: Any) -> bool:
    """Whether navigation that nobody closed has swallowed what the page is about."""
    return next(navigation.iter("main", "article", "h1"), None) is not None


def _words_of(element: Any) -> str:
    """What a heading says, or a link to it, without its number."""
    return _BEFORE_WORDS.sub("", clean(element.text_content()), count=1)


def _is_contents(element: Any, headings: Container[str]) -> bool:
    """Whether an element is the list of the page's own headings that its generator made, or its title."""
    if element.tag not in ("ul", "ol"):
        return not len(element) and _CONTENTS.fullmatch(clean(element.text)) is not None
    links = _links_alone(element)
    return len(links) > 1 and all(
        link.get("href", "").startswith("#") and _words_of(link) in headings for link in links
    )


def _is_menu(element: Any) -> bool:
    """Whether an element is a list of links to other pages, and no address among them."""
    links = _links_alone(element) if element.tag in ("ul", "ol") else []
    return len(links) >= _MENU and not any(_ADDRESS.match(link.get("href", "")) for link in links)


def _is_banner(element: Any) -> bool:
    """Whether an element has what a site says above each page: names and ways, and no sentence, number or address."""
    if element.tag != "header" or next(element.iterancestors("main", "article", "section"), None) is not None:
        return False
    words = "".join(element.xpath(".//text()[not(ancestor::nav or ancestor::script or ancestor::style)]"))
    said = any(char.isdigit() or char in PUNCTUATION for char in words)
    held = (part.tag in HEADINGS or _ADDRESS.match(part.get("href", "")) for part in _elements([element]))
    return not said and not any(held)


def _links_alone(element: Any) -> list[Any]:
    """The links of a list that holds nothing else, and is no part of another one."""
    if next(element.iterancestors("ul", "ol"), None) is not None:
        return []
    links = list(element.iter("a"))
    return links if links and _letters(element) == sum(map(_letters, links)) else []


def _letters(element: Any) -> int:
    return sum(map(str.isalpha, element.text_content()))


def _is_struck(element: Any) -> bool:
    """Whether an element is struck out, and no part of the page that nobody closed it in."""
    struck = element.tag in STRUCK or _STRIKING.search(element.get("style", ""))
    return bool(struck) and next(element.iter("main", "article", *HEADINGS), None) is None


def _is_way(element: Any) -> bool:
    """Whether an element is a link within the page that says nothing: past its navigation, or from a heading to itself.

    Generators of sites add such a sign to each heading.
    """
    if element.tag != "a" or "#" not in element.get("href", ""):
        return False
    words, within = clean(element.text_content()), element.getparent()
    return _SKIP.fullmatch(words) is not None or (within is not None and within.tag in HEADINGS and words in _SIGNS)


def _is_pictured(element: Any) -> bool:
    """Whether an element is a formula in MathML and no more, whose picture a page shows, as Wikipedia does."""
    behind, held = element.getnext(), [child.tag for child in element]
    return behind is not None and behind.tag == "img" and held == ["math"] and not clean(element.text)


def _is_again(element: Any) -> bool:
    """Whether an element says again what a formula in MathML says, as TeX or, by KaTeX, in pieces."""
    before = element.getprevious() if element.get("class") == "katex-html" else None
    return element.tag in ("annotation", "annotation-xml") or (
        before is not None and before.get("class") == "katex-mathml"
    )
