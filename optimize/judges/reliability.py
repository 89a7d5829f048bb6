"""How a calibration changed what the judges' probabilities mean, as a picture."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation.intervals import proportion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

PLOT = "reliability.png"
# Okabe and Ito's, which the colour-blind can tell apart.
COLOURS = {"before": "#d55e00", "after": "#0072b2"}
POSITIVE = {"know": "known", "relevance": "relevant", "sufficiency": "sufficient"}


def save_reliability(calibration: dict[str, Any], folder: Path) -> None:
    """Draws `draw_reliability` into a folder's reliability.png; where that fails, a warning says so, and why."""
    try:
        figure = draw_reliability(calibration)
        if figure is not None:
            figure.savefig(folder / PLOT, dpi=130)
    except Exception as error:  # a picture is not worth the program that it was to be kept with
        logger.warning("%s could not be drawn (%s: %s) and is left out", PLOT, type(error).__name__, error)
        (folder / PLOT).unlink(missing_ok=True)


def draw_reliability(calibration: dict[str, Any]) -> "Figure | None":
    """A panel a judge: the share positive by gold over its probability, before and after; the diagonal is ideal.

    A point is a bin; the legend says how many judgements lie in it. After, probabilities are put on the scale on
    which the threshold is one half.

    Args:
        calibration: What `raisf.optimize.optimizers.calibrate` reports.

    Returns:
        The figure, without the judges that were not measured (`skipped`); None where none was.

    Source: DeGroot and Fienberg 1983; Guo et al. 2017, figure 1.
    """
    from matplotlib.figure import Figure

    judges = {judge: found for judge, found in calibration["judges"].items() if "skipped" not in found}
    if not judges:
        return None
    figure = Figure(figsize=(4.6 * len(judges), 4.2), layout="constrained")
    for panel, (judge, found) in zip(figure.subplots(1, len(judges), squeeze=False)[0], judges.items(), strict=True):
        lines = []
        for when, colour in COLOURS.items():
            ece, at = found[when]["scores"]["ece"]["value"], found["threshold"][when]
            lines.append((f"{when}: threshold {at:.2g}, ECE {100 * ece:.1f}", colour, found[when]["bins"]))
        diagram(panel, judge, lines)
        panel.set(aspect="equal", title=f"{judge} judge")
        panel.legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def diagram(panel: Any, judge: str, lines: "Iterable[tuple[str, str, list[dict[str, Any]]]]") -> None:
    """Draws a judge's bins into a panel, a line for each label and colour; n: judgements per point."""
    panel.plot((0, 1), (0, 1), color="#9aa3ab", linewidth=0.8, linestyle="--")
    for label, colour, bins in lines:
        held = [one for one in bins if one["n"]]
        if not held:
            continue
        points = [(one["probability"], one["share"]) for one in held]
        ends = [proportion(one["share"] * one["n"], one["n"]) for one in held]
        counts = sorted({one["n"] for one in held})
        many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        panel.plot(
            *zip(*points, strict=True), "-o", markersize=4, color=colour, linewidth=1.2, label=f"{label}, n = {many}"
        )
        at = [x for x, _ in points]
        panel.vlines(at, [end.low for end in ends], [end.high for end in ends], color=colour, alpha=0.35)
    panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    panel.set(xlabel=f"probability of {POSITIVE.get(judge, judge)}", ylabel="share by gold")
    panel.spines[["top", "right"]].set_visible(False)
