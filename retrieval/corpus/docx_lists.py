"""The numbers that Word shows before items, clauses and headings: no paragraph of a docx file holds them."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from raisf.retrieval.corpus.numerals import numeral
from raisf.retrieval.corpus.shown import number_of

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
BULLET = "- "
"""What stands before an item without a number."""

_LIST, _LEVEL = f"{W}pPr/{W}numPr/{W}numId", f"{W}pPr/{W}numPr/{W}ilvl"


@dataclass(frozen=True, slots=True)
class _Level:
    """A level of a list: what it shows, such as `%1.%2`, and how it counts; see Word's elements of these names."""

    text: str = ""  # lvlText
    form: str = "decimal"  # numFmt
    start: int = 1
    restart: int | None = None  # lvlRestart: the level, from 1 on, up to which others begin it again
    style: str | None = None  # pStyle: a paragraph in it is of this level
    legal: bool = False  # isLgl: shows decimal numbers only

    @classmethod
    def of(cls, lvl: Any) -> "_Level":
        restart = value_of(lvl, f"{W}lvlRestart")
        return cls(
            (value_of(lvl, f"{W}lvlText") or "").strip(),
            value_of(lvl, f"{W}numFmt") or "decimal",
            number_of(value_of(lvl, f"{W}start"), 1),
            None if restart is None else number_of(restart, 0),
            value_of(lvl, f"{W}pStyle"),
            is_on(lvl.find(f"{W}isLgl")),
        )


@dataclass(frozen=True, slots=True)
class _List:
    """A list's levels, those of styles, the counts that all lists of its kind share, and which of these begin anew."""

    levels: Mapping[int, _Level]
    tied: Mapping[str | None, int]
    counts: dict[int, int]
    anew: set[int]

    def mark(self, at: int) -> str:
        """Counts an item of a level; what stands before it."""
        while self.anew:
            self.counts.pop(self.anew.pop(), None)
        level = self.levels.get(at, _Level())
        self.counts[at] = self.counts[at] + 1 if at in self.counts else level.start
        for below in [below for below in self.counts if below > at]:
            restart = self.levels.get(below, level).restart
            if restart is None or at < restart:
                del self.counts[below]

        def number(sign: re.Match[str]) -> str:
            place = int(sign[1]) - 1
            shown = self.levels.get(place, level)
            return numeral(self.counts.get(place, shown.start), "decimal" if level.legal else shown.form)

        counted = level.form not in ("bullet", "none") and level.text
        return f"{re.sub('%([1-9])', number, level.text)} " if counted else BULLET


def list_marks(paragraphs: Iterable[Any], relations: Iterable[Any], styles: Mapping[str, Any]) -> dict[Any, str]:
    """What stands before those of a document's paragraphs that are items of lists, by themselves or by their style.

    Args:
        paragraphs: In their order.
        relations: To the document's other parts, one of which describes the lists.
        styles: The document's, by their ids.
    """
    from docx.oxml import parse_xml

    parts = (one for one in relations if one.reltype.endswith("/numbering") and not one.is_external)
    described = [one for part in parts for one in parse_xml(part.target_part.blob)]
    kinds = {one.get(f"{W}abstractNumId"): one for one in described if one.tag == f"{W}abstractNum"}
    nums = {one.get(f"{W}numId"): one for one in described if one.tag == f"{W}num"}
    counts = defaultdict[str | None, dict[int, int]](dict)

    @functools.cache
    def based_on(name: str | None) -> list[Any]:
        style, chain = styles.get(name or ""), list[Any]()
        while style is not None:
            chain.append(style.element)
            style = getattr(style, "base_style", None)  # a list's has none
        return chain

    @functools.cache
    def list_of(number: str) -> _List:
        num = nums.get(number)
        kind = value_of(num, f"{W}abstractNumId")
        for style in based_on(value_of(kinds.get(kind), f"{W}numStyleLink"))[:1]:  # it says which list's kind it is
            kind = value_of(nums.get(value_of(style, _LIST)), f"{W}abstractNumId")
        changes = () if num is None else num.findall(f"{W}lvlOverride")
        found = [*kinds.get(kind, ()), *(lvl for one in changes for lvl in one)]
        levels = {_place(lvl): _Level.of(lvl) for lvl in found if lvl.tag == f"{W}lvl"}
        starts = {_place(one): told for one in changes if (told := value_of(one, f"{W}startOverride"))}
        levels |= {at: replace(levels.get(at, _Level()), start=number_of(told, 1)) for at, told in starts.items()}
        tied = {level.style: at for at, level in levels.items()}
        return _List(levels, tied, counts[kind], set(starts))

    def mark_of(paragraph: Any) -> str:
        chain = based_on(value_of(paragraph, f"{W}pPr/{W}pStyle"))
        number = _first(value_of(one, _LIST) for one in (paragraph, *chain))
        if number in (None, "0"):  # 0 takes it out of its list
            return ""
        if paragraph.find(f"{W}pPr/{W}rPr/{W}del") is not None:
            return BULLET
        found = list_of(number)
        by_style = _first(found.tied.get(one.get(f"{W}styleId")) for one in chain)
        own, named = value_of(paragraph, _LEVEL), _first(value_of(one, _LEVEL) for one in chain)
        return found.mark(by_style if own is None and by_style is not None else number_of(own or named, 0))

    return {paragraph: mark for paragraph in paragraphs if (mark := mark_of(paragraph))}


def is_on(mark: Any) -> bool:
    """Whether a switch is there and not set to be off."""
    return mark is not None and mark.get(f"{W}val") not in ("0", "false", "off")


def _first(told: Iterable[Any]) -> Any:
    return next((one for one in told if one is not None), None)


def value_of(element: Any, path: str) -> str | None:
    """What the attribute `val` of an element's part says, where there is one."""
    found = None if element is None else element.find(path)
    return None if found is None else found.get(f"{W}val")


def _place(level: Any) -> int:
    return number_of(level.get(f"{W}ilvl"), 0)
