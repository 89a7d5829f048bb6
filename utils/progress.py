"""Progress bars on standard error. Each ends full, or says why it did not."""

import contextlib
from types import TracebackType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from raisf.utils.display import as_text, console


class ProgressBars(Progress):
    """Bars as a context. A task may carry a text `score`, which is shown behind its bar.

    Where the work ended before the total was reached, the bar is full at what was done and says so; where an exception
    ended it, the bar stays as it stood and says that.

    Args:
        shown: Whether anything is shown.
        speed_seconds: Over how long the speed is measured, for the time that is left.
    """

    def __init__(self, shown: bool = True, *, speed_seconds: float = 30.0):
        columns = (
            _DataColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            _DataColumn("score"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        super().__init__(*columns, console=console(stderr=True), disable=not shown, speed_estimate_period=speed_seconds)

    def end(self, task: TaskID, why: str = "") -> None:
        """Ends a task where it stands: its bar is full, and says why."""
        done = max(1.0, self._tasks[task].completed)
        self.update(task, total=done, completed=done)
        self._say(task, why)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self.tasks:
            if task.total == 0:  # nothing to do, which is nothing to show
                self.remove_task(task.id)
            elif task.finished:
                continue
            elif kind is None:
                self.end(task.id, "" if task.total is None else f"done after {task.completed:g} of {task.total:g}")
            else:
                self._say(task.id, "interrupted" if issubclass(kind, KeyboardInterrupt) else "stopped by an error")
        super().__exit__(kind, error, traceback)

    def _say(self, task: TaskID, what: str) -> None:
        said = self._tasks[task].fields.get("score") or ""
        self.update(task, score=", ".join(filter(None, (said, what))))


def progress_bar(shown: bool | Progress = True) -> contextlib.AbstractContextManager[Progress]:
    """Bars as a context; bars that somebody else shows stay theirs."""
    return contextlib.nullcontext(shown) if isinstance(shown, Progress) else ProgressBars(shown)


class _DataColumn(ProgressColumn):
    """A task's description, or one of its fields, as text."""

    def __init__(self, field: str | None = None):
        super().__init__()
        self.field = field

    def render(self, task: Task) -> Text:
        return as_text((task.fields.get(self.field) or "") if self.field else task.description)
