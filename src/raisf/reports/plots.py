"""The figures of reports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from raisf.optimize.judges.reliability import POSITIVE, diagram
from raisf.utils.text import plot_label

if TYPE_CHECKING:
    from raisf.evaluation.intervals import Score
    from raisf.evaluation.report import Report

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6770", "#b8a800")
UNSETTLED = "#d9dee3"


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each, the same in all figures of a report."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def accuracy_against_cost(reports: "Mapping[str, Report]", measure: str = "exact match") -> Figure:
    """The measure over LM calls and over seconds per question: what is up and to the left is better."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, cost, label in zip(panels, ("lm_calls", "seconds"), ("LM calls", "seconds"), strict=True):
        for name, colour in colours(reports).items():
            report, em = reports[name], reports[name].em
            x, y = report.cost.get(cost, 0.0), 100 * em.value
            panel.errorbar(
                x,
                y,
                yerr=[[y - 100 * em.low], [100 * em.high - y]],
                fmt="o",
                color=colour,
                capsize=3,
                label=plot_label(name),
            )
        panel.set(xlabel=f"{label} per question", ylim=(0, 100))
        panel.set_xlim(left=0)
        _quiet(panel)
    panels[0].set_ylabel(f"{measure}, percent")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def route_shares(reports: "Mapping[str, Report]", routes: Sequence[str]) -> Figure:
    """A bar a program: the share of the questions by route; what was answered right is full, the rest pale."""
    figure = Figure(figsize=(10, 0.8 + 0.5 * len(reports)), layout="constrained")
    panel = figure.subplots()
    for place, report in enumerate(reports.values()):
        left = 0.0
        for number, name in enumerate(routes):
            route = report.routes.get(name)
            if route is None:
                continue
            right = 100 * route.share * route.correct
            panel.barh(place, right, left=left, color=COLOURS[number], height=0.62)
            panel.barh(
                place, 100 * route.share - right, left=left + right, color=COLOURS[number], height=0.62, alpha=0.3
            )
            left += 100 * route.share
        panel.barh(place, 100 - left, left=left, color=UNSETTLED, height=0.62)
    panel.set_yticks(range(len(reports)), [plot_label(name) for name in reports])
    panel.invert_yaxis()
    panel.set(xlabel="percent of the questions; full colour: answered right", xlim=(0, 100))
    named = {**colours(routes), "no answer": UNSETTLED}
    handles = [Patch(color=colour, label=plot_label(name)) for name, colour in named.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(routes) + 1, frameon=False)
    _quiet(panel, "x")
    return figure


def reliability_curves(judged: Mapping[str, dict[str, Any]], colour: Mapping[str, str]) -> list[Figure]:
    """For the judges that give probabilities: how often what was given each probability is true.

    Args:
        judged: By program and judge, its report.
        colour: Of each program.
    """
    shown = [judge for judge in POSITIVE if any(report.get(judge, {}).get("bins") for report in judged.values())]
    if not shown:
        return []
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for panel, judge in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        lines = (
            (plot_label(name), colour[name], report.get(judge, {}).get("bins", [])) for name, report in judged.items()
        )
        diagram(panel, judge, lines)
        panel.set_title(judge)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return [figure]


def curves(lines: "Mapping[str, Mapping[float, Score]]", x: str, y: str) -> Figure:
    """A line for each name, with its interval as a band; scores in percent."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panel = figure.subplots()
    for name, colour in colours(lines).items():
        points = sorted(lines[name].items())
        at = [number for number, _ in points]
        panel.plot(
            at, [100 * score.value for _, score in points], "-o", markersize=4, color=colour, label=plot_label(name)
        )
        low, high = ([100 * getattr(score, end) for _, score in points] for end in ("low", "high"))
        panel.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
    panel.set(xlabel=x, ylabel=y, ylim=(0, 100))
    panel.set_xticks(sorted({number for line in lines.values() for number in line}))
    _quiet(panel)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def learning_curves(compiled: Mapping[str, dict[str, Any] | None]) -> list[Figure]:
    """The validation loss of each judge whose weights were trained, epoch by epoch."""
    curves = {
        f"{name}: {judge}": made["curve"]
        for name, report in compiled.items()
        for judge, made in (report or {}).get("predictors", {}).items()
        if "curve" in made
    }
    if not curves:
        return []
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    panel = figure.subplots()
    for name, colour in colours(curves).items():
        losses = [point["loss"] for point in curves[name]]
        panel.plot(range(len(losses)), losses, "-o", markersize=3.5, color=colour, label=plot_label(name))
    panel.set(xlabel="epoch", ylabel="validation loss, nats per token", yscale="log")
    _quiet(panel)
    figure.legend(loc="outside right center", frameon=False)
    return [figure]


def _quiet(panel: Any, grid: str = "both") -> None:
    panel.grid(axis=grid, color="#e4e7eb", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
