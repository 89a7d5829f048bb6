"""A question's tree in the terminal, as it grows."""

from collections.abc import Callable
from typing import Any

import dspy
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from raisf.programs.calls import Run
from raisf.programs.events import DoneEvent, Event, GrowingTrace
from raisf.programs.live import live_module, stream
from raisf.programs.program import Program
from raisf.programs.rendering import render
from raisf.utils.display import console

REFRESH = 10
"""Frames a second, of which those without a change cost nothing."""


def ask_live(
    program: Any,
    question: str,
    screen: Console | None = None,
    reword: Callable[[str, Run], str] | None = None,
) -> dspy.Prediction:
    """The program's prediction; its tree is shown on standard error until then, and taken away at the end.

    Args:
        program: A `Program`, or a module of the user's own.
        question: The question.
        screen: Where to show it; None: standard error. What is no terminal shows nothing.
        reword: As `Program.live` takes it.

    Raises:
        RaisfError: As calling the program does.
    """
    growing = GrowingTrace(getattr(program, "system", type(program).__name__))
    screen = screen or console(stderr=True)
    spinner = Spinner("dots", style="dim")

    def view() -> RenderableType:
        return Group(_last_lines(render(growing.trace), screen), spinner)

    ours = isinstance(program, Program)
    live = program.live(question, reword=reword) if ours else live_module(program, question, reword=reword)
    last: Event | None = None
    with Live(console=screen, refresh_per_second=REFRESH, transient=True, get_renderable=view):
        for last in stream(live):
            growing.add(last)
    assert isinstance(last, DoneEvent)
    return dspy.Prediction(trace=last.trace, answer=last.answer)


def _last_lines(view: RenderableType, screen: Console) -> RenderableType:
    """A tree's last lines, as many as the terminal shows: what is taken away must not have scrolled out of it."""
    lines = screen.render_lines(view, pad=False)
    room = max(3, screen.size.height - 3)
    cut = lines[-room:] if len(lines) > room else lines
    return Text("\n").join(Text.assemble(*((part.text, part.style or "") for part in line)) for line in cut)
