"""A report as Markdown, for a page among the documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raisf.reports.sections import Section, shown
from raisf.utils.errors import InputError
from raisf.utils.files import check_name, check_writable, write_text
from raisf.utils.text import visible

MARK = "<!-- Below this line all is written by the command; above it, by hand. -->"


def markdown(facts: Mapping[str, Any], sections: Sequence[Section], figures: Mapping[str, Sequence[str]]) -> str:
    """Facts as a list, then each section as a heading, its text, its table and its figures.

    Args:
        facts: What the results were made from.
        sections: Its parts, in order.
        figures: By section's title, the addresses of its figures.
    """
    lines = [f"- {name}: {_cell(str(value))}" for name, value in facts.items()]
    for section in sections:
        lines += ["", f"## {_cell(section.title)}", ""]
        lines += [_cell(section.text), ""] if section.text else []
        lines.append(_line(section.columns))
        lines.append(_line(["---", *["---:"] * (len(section.columns) - 1)]))
        lines += [_line([shown(cell) for cell in row]) for row in section.rows]
        for address in figures.get(section.title, []):
            lines += ["", f"![{_cell(section.title)}]({address})"]
    return "\n".join([*lines, ""])


def write_markdown(
    path: Path, title: str, facts: Mapping[str, Any], sections: Sequence[Section], *, figures: bool = False
) -> None:
    """Writes the tables into a page; what a person wrote above them stays, if the page has the mark between both.

    Args:
        path: The `.md` file; made if it is not there.
        title: The heading of a new page.
        facts: What the results were made from.
        sections: Its parts, in order.
        figures: Whether their figures go into files beside the page, and are shown.
    """
    before = path.read_text("utf-8") if path.is_file() else f"# {title}\n\n"
    above = before.partition(MARK)[0] if MARK in before else f"{before.rstrip()}\n\n"
    drawn = {section.title: _draw(path, section) for section in sections if figures}
    write_text(path, f"{above}{MARK}\n\n{markdown(facts, sections, drawn)}")


def check_page(path: Path | None) -> None:
    """Makes sure that a page can be written, if one is asked for, before the work whose tables go into it.

    Raises:
        InputError: It is a folder, or no UTF-8 text; or nothing can be written there.
    """
    if path is None:
        return
    check_name(path)
    check_writable(path.parent)
    try:
        if path.exists():
            path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no page to write tables into ({error}): give another file") from error


def _draw(page: Path, section: Section) -> list[str]:
    """Writes a section's figures beside the page, on white, since the page may be read on black; their names."""
    names = []
    for number, drawing in enumerate(section.drawings, 1):
        names.append(f"{page.stem}-{section.name}-{number}.svg")
        write_text(page.parent / names[-1], drawing.replace("<svg ", '<svg style="background: white" ', 1))
    return names


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return " ".join(visible(text).split()).replace("|", "\\|")
