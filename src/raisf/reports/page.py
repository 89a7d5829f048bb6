"""A report as one self-contained HTML page: its tables, and its figures as drawings within the page."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from raisf.reports.sections import Section, shown
from raisf.utils.text import visible


def write_page(path: Path, title: str, facts: dict[str, Any], sections: Sequence[Section]) -> None:
    """Writes a page that needs nothing beside it: no network, no script, no file.

    Args:
        path: The `.html` file.
        title: Its heading.
        facts: What the results were made from, shown under the heading.
        sections: Its parts, in order.
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_data)
    environment.filters |= {"shown": shown, "element": _element}
    template = environment.from_string(files("raisf.reports").joinpath("page.html.j2").read_text("utf-8"))
    path.write_text(template.render(title=title, facts=facts, sections=sections), encoding="utf-8")


def _data(value: Any) -> Any:
    """What the page says of data: jinja escapes the markup in it, and control characters are made visible."""
    return visible(value) if type(value) is str else value


def _element(drawing: str) -> Any:
    """The SVG element of a drawing; what stands before it is for a file of its own."""
    from markupsafe import Markup

    return Markup(drawing[drawing.index("<svg") :])
