"""Reading pdf files, with the extra `documents`, in a process of their own: see `raisf.retrieval.corpus.parsing`."""

import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.logged import logged
from raisf.retrieval.corpus.pdf_page import filled_in, text_of
from raisf.retrieval.corpus.sections import Section, passages_of
from raisf.retrieval.corpus.splitting import BREAK, without_leaders
from raisf.retrieval.corpus.titles import title_of
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, in_short
from raisf.utils.text import SOFT_HYPHEN, clean, composed

logger = logging.getLogger(__name__)

_LIGATURES = {0xFB00 + place: letters for place, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
_COMBINING = "\u0300\u0301\u0302\u0303\u0304\u0307\u030a\u0306\u0308\u030b\u030c\u0327"
_DOTLESS = str.maketrans("\u0131\u0237", "ij")
_LATIN = "\u017f"
"""The end of Unicode's Latin letters with accents that names in Europe have."""
_AS_TYPED = {ord(SOFT_HYPHEN): "-", 0x2010: "-", **_LIGATURES}
_OF_TEX, _OF_UNICODE_TEX = re.compile("TeX|dvips|dvipdf"), re.compile("XeTeX|Lua(HB)?TeX|xdvipdfmx")
_ACCENTS = dict(zip("`\u00b4\u02c6\u02dc\u00af\u02d9\u02da\u02d8\u00a8\u02dd\u02c7\u00b8", _COMBINING, strict=True))
_ACCENTED = re.compile(
    rf"(?<!\d)(?![\u02c6\u02dc] (?<=\s..))([{''.join(_ACCENTS)}])"
    r"(?:(?<!\u00b8) |(?<=[\u02d8\u00a8\u02dd\u02c7])|(?<![^\s(].)(?=[A-Z]))([^\W\d_])"
)
"""An accent and the letter that TeX sets it over. In code and addresses some stand right before small letters, too; and
`\u02c6` and `\u02dc` between spaces are signs of code."""
_CEDILLA = re.compile("([cCsS])\u00b8")
"""An accent that TeX sets behind its letter."""
_QUOTING = re.compile("`(?! ?[aeiou])", re.IGNORECASE)
"""A sign that is no accent, but a mark of code."""
_NEAR, _SHORT = 200, 2
"""Characters before a break that tell what it breaks, and of a part of a word that is mostly none of its own."""
_TITLE_LINES = 3
"""Lines that a title takes on a page at most."""
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_BROKEN = re.compile(
    rf"(?:(?<![^\W\d_])(?<![^\W\d_]-)({_WORD.pattern})|(?<=\d))-[ \t]*\n[ \t]*(?!\d+\s*\Z)(?=({_WORD.pattern}|\d))"
)
"""A hyphen at a line's end, behind a word or a digit and before one, but for the number of the page below it."""
_GRADE, _DATE = re.compile("[A-DO]{1,3}"), re.compile(r"\d\d?\.? [^\W\d]|\d\d\.\d\d\.")
"""What may have a minus behind it, in whose place no hyphen is: `A-`; and what begins a line below an amount's."""
_SUSPENDED = frozenset("and or und oder bis bzw sowie och eller".split())
"""What follows the hyphen of a first part, `short- and long-term`, `Ein- und Ausgang`: it breaks no word."""
_LINKS = ("of", "to", "by", "on")
"""Short words that link others, `made-to-measure`; of `self-as-sessment` the first two are none."""
_ADDRESS = re.compile(r"(?:(?:://|www\.|@)\S*|(?:^|\s)(?:[.~]*/\S*|--?))$")
"""Before a hyphen that is a part of what it stands in: an address, a path, an option."""
_TORN = re.compile("while decompressing")
"""What pypdf logs where it goes on without the end of what is packed, or all of it."""
_MISSING = re.compile("not defined")
_NO_PAGE = re.compile(f"{_TORN.pattern}|{_MISSING.pattern}")
"""The same where a page may be missing that others follow."""
_NO_TEXT = re.compile(rf"{_TORN.pattern}|Impossible to decode|^\w*Error\(")
"""The same where a page has no text that should have some: with text, it may be of what is not shown."""


def read_pdf(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a pdf file, none across two pages, each with its `page`, counted from 1.

    Pages that hold pictures alone are logged, and those with letters that nobody can tell.

    Raises:
        InputError: It cannot be read, or one of its pages cannot.
    """
    with logged("pypdf") as faults:
        yield from _passages(file, name, faults)


def _passages(file: Path, name: str, faults: list[str]) -> Iterator[Passage]:
    import pypdf

    unread = list[int]()
    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{name} is locked with a password; save it without one, or leave it out")
        title = title_of(file, reader.metadata and reader.metadata.title)
        made_by = f"{reader.metadata.producer} {reader.metadata.creator}" if reader.metadata else ""
        pages = _accented(list(_texts(reader, name, faults, unread)), made_by)
        texts = list(map(without_leaders, _unbroken(pages)))
        if texts and ((below := _below_title(texts[0], title)).strip() or len(texts) > 1):
            texts[0] = below
        numbered = enumerate(texts, start=1)
        yield from passages_of(name, (Section(title, "", {"page": number}, text) for number, text in numbered))
        if 0 < len(unread) < len(texts):
            logger.warning(
                "%s: %d of its %d pages have no text, only pictures or letters that their fonts do not tell, and are "
                "not in the index, the first of them page %d; run text recognition over it",
                *(name, len(unread), len(texts), unread[0]),
            )
    except (InputError, MemoryError):
        raise
    except Exception as error:  # pypdf meets broken files with all sorts of errors besides its own
        raise InputError(
            f"{name}: not a pdf file that can be read ({in_short(error)}); save it anew, or leave it out"
        ) from error


def _texts(reader: Any, name: str, faults: list[str], unread: list[int]) -> Iterator[str]:
    """The texts of the pages.

    Args:
        reader: Of the file.
        name: The document's.
        faults: What pypdf logs of what it cannot read; it goes on without that.
        unread: Takes the numbers of the pages that hold something, and no text that can be read.

    Raises:
        InputError: A page cannot be read, or not to its end.
    """

    def check(fault: re.Pattern[str], what: str) -> None:
        if told := next(filter(fault.search, faults), None):
            raise InputError(f"{name}: {what} cannot be read ({told[:100]}); save it anew, or leave it out")

    faults[:] = filter(_TORN.search, faults)  # a title may be missing
    pages = list(reader.pages)
    check(_NO_PAGE, "one of its pages")
    before = list(filter(_NO_TEXT.search, faults))
    for number, page in enumerate(pages, start=1):
        faults[:] = before
        text = text_of(page)
        empty = not (text and text.strip())
        check(_NO_PAGE if empty and _lacks_contents(page) else _NO_TEXT if empty else _TORN, f"page {number}")
        missing = any(map(_MISSING.search, faults))
        typed = filled_in(page, text or "")
        if text is None or (empty and not typed and (missing or _has_pictures(page))):
            unread.append(number)
        yield BREAK.join(filter(None, (text, typed)))


def _accented(pages: list[str], made_by: str) -> list[str]:
    """The pages with each letter and its accent as one, `Schr\u00a8 odinger` as `Schr\u00f6dinger`, where TeX set them.

    Where others did, such signs are mostly quotation marks.
    """
    if not _OF_TEX.search(made_by) or _OF_UNICODE_TEX.search(made_by):
        return pages
    quoted = any(map(_QUOTING.search, pages))

    def letter(found: re.Match[str]) -> str:
        one = composed(found[2].translate(_DOTLESS) + _ACCENTS[found[1]])
        return found[0] if len(one) > 1 or one > _LATIN or (quoted and found[1] == "`") else one

    pages = [_CEDILLA.sub(lambda found: composed(f"{found[1]}\u0327"), page) for page in pages]
    return [_ACCENTED.sub(letter, page) for page in pages]


def _unbroken(pages: Iterable[str]) -> list[str]:
    """The pages with words that a line end breaks with a hyphen put together, and letters that are set as one, apart.

    A word that the pages have elsewhere with the hyphen, and never without, keeps it: `cost-effective`. So do
    `state-of-the-` before `art`, addresses, `short-` before `and long-term`, and what has a capital or a digit
    beside it: `Coca-Cola`, `COVID-19`. On a page a soft hyphen is seen as any other. Encoders know
    no word with a letter such as `\ufb01`.
    """
    texts = [page.translate(_AS_TYPED) for page in pages]
    words = {word.lower() for text in texts for word in _WORD.findall(text)}

    def whole(broken: re.Match[str]) -> str:
        first, rest = broken.groups("")
        known = first and f"{first}{rest}".lower() in words
        if rest in _SUSPENDED and not known:
            return f"{first}- "
        capital = rest[0].isupper()
        if _GRADE.fullmatch(first) and capital and rest[1:2].islower():
            return broken[0]
        if not first and (capital or _DATE.match(broken.string, broken.end())):
            return broken[0]
        if not (first and rest[0].islower()):
            return first if known and first.isupper() and rest.isupper() else f"{first}-"
        before = broken.string[max(0, broken.start() - _NEAR) : broken.start()]
        last = first.rpartition("-")[2].lower()
        chain = "-" in first and last in words and (len(last) > _SHORT or last in _LINKS)
        hyphen = chain or _ADDRESS.search(before) or (f"{first}-{rest}".lower() in words and not known)
        return f"{first}-" if hyphen else first

    return [_BROKEN.sub(whole, text) for text in texts]


def _below_title(text: str, title: str) -> str:
    """A first page's text without the title that it begins with: each passage has that already."""
    lines = text.lstrip().splitlines()
    tops = (" ".join(lines[:count]) for count in range(1, _TITLE_LINES + 1))
    count = next((count for count, top in enumerate(tops, start=1) if clean(top).casefold() == title.casefold()), 0)
    return "\n".join(lines[count:])


def _lacks_contents(page: Any) -> bool:
    """Whether what a page shows is not in the file. What it shows it with, such as a font, may be away: it is blank."""
    from pypdf.generic import ArrayObject, NullObject

    shown = page["/Contents"] if "/Contents" in page else ArrayObject()
    parts = [part.get_object() for part in shown] if isinstance(shown, ArrayObject) else [shown]
    return any(part is None or isinstance(part, NullObject) for part in parts)


def _has_pictures(page: Any) -> bool:
    try:
        return bool(page.images.keys())
    except Exception:  # a page whose text could be read is none that cannot be, whatever its pictures are
        return False
