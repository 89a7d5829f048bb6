"""A table as the terminal shows it."""

import io
from collections.abc import Sequence

from rich.console import Console

from raisf.evaluation.intervals import Score
from raisf.reports.sections import Section


def printed(columns: Sequence[str]) -> str:
    """A row of one score a column, all of which count alike, in a terminal of 80 columns."""
    row = ["ra-isf", *[Score(0.295, 0.236, 0.362, 200)] * len(columns)]
    file = io.StringIO()
    Console(width=80, file=file).print(Section("Depths", ["program", *columns], [row], main=None).view())
    return file.getvalue()


def test_scores_that_count_alike_have_their_intervals_below_them_while_these_fit() -> None:
    """They stood there bare, and 29.5 looked like more than 29.0."""
    few, many = (printed([f"max_depth {number}" for number in range(count)]) for count in (4, 5))
    assert few.count("29.5") == few.count("[23.6, 36.2]") == 4
    assert many.count("29.5") == 5 and "[" not in many
