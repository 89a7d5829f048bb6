"""The figures of reports."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from raisf.evaluation.report import waited
from raisf.optimize.judges.reliability import POSITIVE, diagram
from raisf.utils.text import plot_label

if TYPE_CHECKING:
    from raisf.evaluation.intervals import Score
    from raisf.evaluation.report import Report

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6770", "#b8a800")
# Which part those of one colour: another form each time that all colours are used.
MARKERS = "osD^vP*X"
UNSETTLED = "#d9dee3"
WIDTH = 5.2  # inches
LEAST_SPAN = 20  # percent, of an axis that does not show all of them


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each, the same in all figures of a report."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def _markers(names: Iterable[str]) -> Iterator[str]:
    """The form of each one's points."""
    return (MARKERS[number // len(COLOURS) % len(MARKERS)] for number, _ in enumerate(names))


def exact_match(reports: "Mapping[str, Report]") -> Figure:
    """The result at a glance: exact match of each program with its interval."""
    figure = _figure(0.9 + 0.34 * len(reports))
    panel = figure.subplots()
    for place, (name, colour) in enumerate(colours(reports).items()):
        em = reports[name].em
        value = 100 * em.value
        panel.errorbar(value, place, xerr=_bars([em]), fmt="o", color=colour, capsize=3)
        panel.annotate(f"{value:.1f}", (value, place), (0, 5), textcoords="offset points", ha="center", fontsize=9)
    panel.set_yticks(range(len(reports)), [plot_label(name) for name in reports])
    panel.set(xlabel="exact match, percent, with 95% intervals", xlim=(0, 100), ylim=(len(reports) - 0.4, -0.8))
    _quiet(panel, "x")
    return figure


def accuracy_against_cost(reports: "Mapping[str, Report]", measure: str = "exact match") -> list[Figure]:
    """The measure over LM calls and over seconds per question: what is up and to the left is better."""
    figures = []
    for cost, label in (("lm_calls", "LM calls per question"), ("seconds", f"seconds {waited(reports.values())}")):
        figure = _figure(3.3, legend=len(reports))
        panel = figure.subplots()
        for (name, colour), marker in zip(colours(reports).items(), _markers(reports), strict=True):
            em = reports[name].em
            # What costs nobody knows how much stands in the legend alone.
            x, y = reports[name].cost.get(cost, math.nan), 100 * em.value
            style = {"fmt": marker, "color": colour, "capsize": 3, "label": plot_label(name)}
            panel.errorbar(x, y, yerr=_bars([em]), **style)
        panel.set(xlabel=label, ylabel=f"{measure}, percent", ylim=(0, 100))
        panel.set_xlim(left=0)
        _quiet(panel)
        _legend(figure, *panel.get_legend_handles_labels())
        figures.append(figure)
    return figures


def route_shares(reports: "Mapping[str, Report]", routes: Sequence[str]) -> Figure:
    """A bar a program: the share of the questions by route; what was answered right is full, the rest pale."""
    figure = _figure(1.1 + 0.42 * len(reports), legend=len(routes) + 1)
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
    # In two lines: beside long names it would end outside the figure.
    panel.set(xlabel="percent of the questions;\nfull colour: answered right", xlim=(0, 100))
    named = {**colours(routes), "no answer": UNSETTLED}
    handles = [Patch(color=colour) for colour in named.values()]
    _legend(figure, handles, [plot_label(name) for name in named])
    _quiet(panel, "x")
    return figure


def reliability_curves(judged: Mapping[str, dict[str, Any]], colour: Mapping[str, str]) -> list[Figure]:
    """For the judges that give probabilities: how often what was given each probability is true.

    Args:
        judged: By program and judge, its report.
        colour: Of each program.
    """
    shown = [judge for judge in POSITIVE if any(report.get(judge, {}).get("bins") for report in judged.values())]
    figures = []
    for judge in shown:
        figure = _figure(3.8, legend=len(judged), columns=1)
        panel = figure.subplots()
        lines = (
            (plot_label(name), colour[name], report.get(judge, {}).get("bins", [])) for name, report in judged.items()
        )
        diagram(panel, judge, lines)
        panel.set_title(f"the {judge} judge; n: judgements per point", fontsize=10)
        _legend(figure, *panel.get_legend_handles_labels(), columns=1)
        figures.append(figure)
    return figures


def curves(lines: "Mapping[str, Mapping[float, Score]]", x: str, y: str) -> Figure:
    """A line for each name, with its interval as a band; scores in percent."""
    figure = _figure(3.4, legend=len(lines))
    panel = figure.subplots()
    for (name, colour), marker in zip(colours(lines).items(), _markers(lines), strict=True):
        points = sorted(lines[name].items())
        at, means = [number for number, _ in points], [100 * score.value for _, score in points]
        panel.plot(at, means, f"-{marker}", markersize=4, color=colour, label=plot_label(name))
        low, high = ([100 * getattr(score, end) for _, score in points] for end in ("low", "high"))
        panel.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
    panel.set(xlabel=x, ylabel=y, ylim=(0, 100))
    panel.set_xticks(sorted({number for line in lines.values() for number in line}))
    _quiet(panel)
    _legend(figure, *panel.get_legend_handles_labels())
    return figure


def by_rows(panels: "Mapping[str, Mapping[str, Mapping[float, Score]]]", level: str) -> Figure:
    """Panels one below the other, each a measure in percent over a number of rows, on a logarithmic axis.

    Args:
        panels: By measure and line, the scores by the number of rows.
        level: The line that is the same at all numbers: dashed, with its interval as a band. The others have bars.
    """
    sizes = sorted({n for lines in panels.values() for points in lines.values() for n in points})
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colour = colours(name for name in names if name != level)
    figure = _figure(0.4 + 1.9 * len(panels), legend=len(names), columns=3)
    below = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for panel, (measure, lines) in zip(below, panels.items(), strict=True):
        for name, points in lines.items():
            at = sorted(points)
            value, low, high = ([100 * getattr(points[n], end) for n in at] for end in ("value", "low", "high"))
            if name == level:
                ends = [min(sizes) / 1.15, max(sizes) * 1.15]
                panel.plot(ends, [value[0]] * 2, "--", color=COLOURS[6], linewidth=1.2, label=plot_label(name))
                panel.fill_between(ends, low[0], high[0], color=COLOURS[6], alpha=0.12, linewidth=0)
                continue
            beside = 1.035 ** (list(colour).index(name) - (len(colour) - 1) / 2)  # bars on each other cannot be read
            style = {"color": colour[name], "markersize": 4, "linewidth": 1.4, "elinewidth": 1, "capsize": 2}
            bars = _bars([points[n] for n in at])
            panel.errorbar([n * beside for n in at], value, yerr=bars, fmt="-o", label=plot_label(name), **style)
        panel.set(ylabel=measure, xscale="log")
        low, high = panel.get_ylim()
        beyond = max(0.0, LEAST_SPAN - (high - low)) / 2  # on a narrow scale noise would look like something
        panel.set_ylim(low - beyond, high + beyond)
        panel.set_xticks(sizes, [f"{n:,g}" for n in sizes])
        panel.minorticks_off()
        _quiet(panel)
    below[0].set_title("percent, with 95% intervals", fontsize=10)
    below[-1].set_xlabel("rows a judge")
    _legend(figure, *below[0].get_legend_handles_labels(), columns=3)
    return figure


def learning_curves(compiled: Mapping[str, dict[str, Any] | None]) -> list[Figure]:
    """The validation loss of each judge whose weights were trained, epoch by epoch; a figure per judge.

    Losses of different judges differ by orders of magnitude, and one that is low and flat from the first epoch would
    leave the others no room on an axis that all share. A judge that was good enough before any epoch has no curve.
    """
    losses: dict[str, dict[str, list[float]]] = {}
    for name, report in compiled.items():
        for judge, made in (report or {}).get("predictors", {}).items():
            if len(made.get("curve", ())) > 1:
                losses.setdefault(judge, {})[name] = [point["loss"] for point in made["curve"]]
    colour = colours(dict.fromkeys(name for lines in losses.values() for name in lines))
    figures = []
    for judge, lines in losses.items():
        figure = _figure(2.6, legend=len(lines) if len(colour) > 1 else 0)
        panel = figure.subplots()
        for name, line in lines.items():
            panel.plot(range(len(line)), line, "-o", markersize=3.5, color=colour[name], label=plot_label(name))
        highest = max(max(line) for line in lines.values())
        panel.set(xlabel="epoch", ylabel="loss, nats per token", ylim=(0, 1.1 * highest or 1))
        panel.set_title(f"{judge}, on what it was validated on", fontsize=10)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        _quiet(panel)
        if len(colour) > 1:
            _legend(figure, *panel.get_legend_handles_labels())
        figures.append(figure)
    return figures


def _figure(height: float, legend: int = 0, columns: int = 2) -> Figure:
    """A figure as wide as a telephone's screen, so that its text is read there too; pages set two side by side.

    Args:
        height: In inches, of what is drawn.
        legend: Names in the legend below it.
        columns: That they stand in.
    """
    return Figure(figsize=(WIDTH, height + 0.22 * -(-legend // columns)), layout="constrained")


def _bars(scores: "Sequence[Score]") -> list[list[float]]:
    """How far intervals reach below their points, and above, in percent; what rounding makes less than 0 is 0."""
    below = [max(0.0, 100 * one.value - 100 * one.low) for one in scores]
    return [below, [max(0.0, 100 * one.high - 100 * one.value) for one in scores]]


def _legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], columns: int = 2) -> None:
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _quiet(panel: Any, grid: str = "both") -> None:
    panel.grid(axis=grid, color="#e4e7eb", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
