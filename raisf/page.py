"""A report as one self-contained HTML page: its tables, and its figures as drawings within the page."""

import io
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.sections import Section, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_page(path: Path, title: str, facts: dict[str, Any], sections: Sequence[Section]) -> None:
    """Writes a page that needs nothing beside it: no network, no script, no file.

    Args:
        path: The `.html` file.
        title: Its heading.
        facts: What the results were made from, shown under the heading.
        sections: Its parts, in order.
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"shown": shown, "drawing": _drawing}
    template = environment.from_string(files("raisf").joinpath("page.html.j2").read_text("utf-8"))
    path.write_text(template.render(title=title, facts=facts, sections=sections), encoding="utf-8")


def _drawing(figure: "Figure") -> Any:
    """A figure as the text of an SVG element; equal figures give equal text."""
    from markupsafe import Markup
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context({"svg.hashsalt": "raisf", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    # What stands before the element is for a file of its own.
    return Markup(re.sub(r"^.*?(?=<svg)", "", file.getvalue(), count=1, flags=re.DOTALL))
