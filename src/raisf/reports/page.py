"""A report as one self-contained HTML page: its tables, and its figures as drawings within the page."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from raisf.evaluation.intervals import Score
from raisf.reports.examples import Example
from raisf.reports.sections import Cell, Section, shown
from raisf.utils.files import write_text
from raisf.utils.text import visible

# What matplotlib draws in black and in the light grey of the grids follows the page, so that it is seen in the dark.
_COLOURS = {"#000000": "currentColor", "#e4e7eb": "var(--faint)", "#9aa3ab": "var(--muted)", "#d9dee3": "var(--line)"}
_SIZE = re.compile(r'\b(width|height)="([\d.]+)pt"')


def write_page(
    path: Path,
    title: str,
    facts: dict[str, Any],
    sections: Sequence[Section],
    headline: str = "",
    examples: Sequence[Example] = (),
    others: Sequence[Section] = (),
) -> None:
    """Writes a page that needs nothing beside it: no network, no script, no file.

    Args:
        path: The `.html` file.
        title: Its heading.
        facts: What the results were made from, shown as provenance.
        sections: Its parts, in order; the first drawing of the first that has one is the main figure, on top.
        headline: The result in a sentence.
        examples: Questions with the trees of two programs.
        others: Parts that come last, none of whose drawings is the main figure.
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_data)
    environment.filters |= {"parts": _parts, "element": _element, "probability": _probability}
    template = environment.from_string(files("raisf.reports").joinpath("page.html.j2").read_text("utf-8"))
    main = next((section.drawings[0] for section in sections if section.drawings), None)
    page = template.render(
        title=title,
        facts=facts,
        sections=[*sections, *others],
        headline=headline,
        examples=examples,
        main=main,
        style=_markup(files("raisf.reports").joinpath("look.css").read_text("utf-8")),
    )
    write_text(path, page)


def _data(value: Any) -> Any:
    """What the page says of data: jinja escapes the markup in it, and control characters are made visible."""
    return visible(value) if type(value) is str else value


def _parts(cell: Cell) -> list[str]:
    """A cell's value and, of a score, its interval, which stands below it."""
    if isinstance(cell, Score) and cell.n:
        return [shown(cell, interval=False), f"{100 * cell.low:z.1f} to {100 * cell.high:z.1f}"]
    return [shown(cell)]


def _probability(judgement: dict[str, Any] | None) -> str:
    value = (judgement or {}).get("probability")
    return f" p={value:.2f}" if isinstance(value, int | float) else ""


def _element(drawing: str) -> Any:
    """The SVG element of a drawing, in the page's colours; what stands before it is for a file of its own."""
    element = drawing[drawing.index("<svg") :]
    for colour, variable in _COLOURS.items():
        element = element.replace(colour, variable)
    return _markup(_SIZE.sub(r'\1="\2"', element, count=2))


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)
