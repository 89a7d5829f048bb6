"""Progress over all settings of an experiment."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raisf.experiments.settings import Setting
from raisf.utils.progress import ProgressBars

if TYPE_CHECKING:
    from rich.progress import TaskID


class WorkspaceBars(ProgressBars):
    """Bars for `Workspace.answer`, the first of which counts the questions of all settings: it tells how long is left.

    Args:
        settings: Those of all experiments that will be run.
        n: Questions a setting.
    """

    def __init__(self, settings: Iterable[Mapping[str, Setting]], n: int):
        super().__init__(speed_seconds=600)
        different = {repr(setting) for one in settings for setting in one.values()}
        self._all = super().add_task("all questions", total=n * len(different))

    def add_task(self, description: str, *args: Any, completed: int = 0, **kwargs: Any) -> "TaskID":
        """As rich's; what is completed counts among all questions."""
        self.advance(self._all, completed)
        return super().add_task(description, *args, completed=completed, **kwargs)

    def update(self, task_id: "TaskID", *, advance: float | None = None, **kwargs: Any) -> None:
        """As rich's; what advances counts among all questions."""
        super().update(task_id, advance=advance, **kwargs)
        if advance and task_id != self._all:
            self.advance(self._all, advance)
