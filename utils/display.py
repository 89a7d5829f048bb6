"""What is shown in the terminal: data goes into rich's tables, lines and console as text, never as its markup."""

import io
import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from raisf.utils.text import visible


def as_text(data: object, style: str = "", **options: Any) -> Text:
    """Data as a line; the options are `rich.text.Text`'s."""
    return Text(visible(data), style, **options)


class DataTable(Table):
    """A table whose strings (headers, cells, title and caption) are data; what is styled comes as `Text`."""

    def __init__(self, *headers: str, title: str | None = None, caption: str | None = None, **options: Any):
        super().__init__(title=_shown(title, "table.title"), caption=_shown(caption, "table.caption"), **options)
        for header in headers:
            self.add_column(header)

    def add_column(self, header: RenderableType = "", *args: Any, **options: Any) -> None:
        """As rich's; the header is data."""
        super().add_column(_shown(header) or "", *args, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        """As rich's; cells are data."""
        super().add_row(*map(_shown, cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns stand side by side without a space between them and their lines, where words would break else."""
        wanted = self.__rich_measure__(console, options.update(width=sys.maxsize)).maximum
        padding = self.padding
        if self.box and wanted > options.max_width:
            self.padding = (0, 0)
        yield from super().__rich_console__(console, options)
        self.padding = padding


class _Terminal(Console):
    """A console that obeys rich alone: no markup in strings, no control character in what is printed."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def _write_buffer(self) -> None:
        """On standard error what cannot be written (its reader is gone, its disk full) is lost, and nothing else."""
        try:
            super()._write_buffer()
        except OSError:
            if not self.stderr:
                raise
            del self._buffer[:]


def console(*, stderr: bool = False) -> Console:
    """The console on standard output, or standard error."""
    # Rich would take 0 columns, which some terminals and containers tell, at their word, and show nothing.
    width = shutil.get_terminal_size().columns if os.environ.get("COLUMNS") == "0" else None
    return _Terminal(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def as_plain(view: RenderableType, width: int) -> str:
    """A view as it stands in a terminal of that many columns, without colours."""
    page = io.StringIO()
    _Terminal(file=page, width=width, no_color=True, markup=False, emoji=False, highlight=False).print(view)
    return page.getvalue().rstrip()


def _shown(cell: Any, style: str = "") -> Any:
    return as_text(cell, style) if isinstance(cell, str) else cell
