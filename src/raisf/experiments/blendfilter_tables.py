"""The tables and figures of BlendFilter's experiments, made of answers by label, with its figures beside ours."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.evaluation.examples import gold_passages
from raisf.evaluation.intervals import Score, bootstrap
from raisf.evaluation.metrics import precision_at_k, recall_at_k
from raisf.evaluation.report import summaries
from raisf.experiments import published_results as published
from raisf.experiments.tables import Answers, fault_lines, joined, table
from raisf.reports.sections import Cell, Section
from raisf.retrieval.passage import called_by
from raisf.utils.errors import InputError
from raisf.utils.text import composed

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace


def main(workspace: "Workspace", answers: Answers) -> list[Section]:
    """Tables 2 to 4: the systems beside the paper's with GPT-3.5, and what it has of them with other LMs."""
    (lm, figures), *others = published.BLENDFILTER_MAIN.items()
    made = table(
        figures,
        f1=published.BLENDFILTER_MAIN_F1[lm],
        demonstrated=True,
        whose="GPT-3.5-turbo-instruct over ColBERTv2",
        engine="colbert",
    )
    beside = [(f"{name}*, %", figures) for name, figures in others]
    if workspace.measure != "accuracy":
        beside += [(f"{name}'s F1*, %", published.BLENDFILTER_MAIN_F1[name]) for name, _ in others]
    rows: list[list[Cell]] = []
    for label in [*answers, *workspace.left_out]:
        theirs = [published.figure_of(one, label, workspace.name, demonstrated=True) for _, one in beside]
        rows += [[label, *theirs]] if theirs[0] is not None else []
    shares = dict.fromkeys(published.shown_for(one, workspace.name) for _, one in beside)
    text = f"*the paper's own figures (Vicuna 1.5-13b and Qwen-7b over ColBERTv2), {'; of F1, '.join(shares)}. "
    text += "All were prompted with three demonstrations."
    columns = ["program", *(name for name, _ in beside)]
    return [*made(workspace, answers), Section("With other LMs", columns, rows, text)]


BM25 = table(
    published.BLENDFILTER_BM25,
    f1=published.BLENDFILTER_BM25_F1,
    demonstrated=True,
    whose="GPT-3.5-turbo-instruct over BM25",
)
"""Table 5: the systems over BM25."""
QUERIES = table(
    published.BLENDFILTER_QUERIES,
    f1=published.BLENDFILTER_QUERIES_F1,
    demonstrated=True,
    whose="GPT-3.5-turbo-instruct over ColBERTv2, and over BM25",
)
"""Table 6: BlendFilter without each of its queries."""


ACROSS = "best of the top_p"
Samples = dict[str, dict[str, dict[str, RecordsById]]]
"""Records by program, top_p and sample."""


def check_gold(workspace: "Workspace") -> None:
    """Tells of questions none of which names a gold passage, where passages are held to gold."""
    if not any(gold_passages(example)[0] for example in workspace.test):
        raise InputError(
            f"it holds passages to gold, and none of the {len(workspace.test)} test questions names any: give them "
            "gold_pids or gold_titles, or leave it out"
        )


def kept(workspace: "Workspace", answers: Answers) -> list[Section]:
    """BlendFilter's retrieval: how much of what is read from is gold, before and after filtering."""
    gold = {str(example.id): gold_passages(example) for example in workspace.test}
    rows: list[list[Cell]] = []
    for label, records in answers.items():
        measured: dict[str, list[float]] = {"precision": [], "recall": [], "S-precision": []}
        for name, record in sorted(records.items()):  # resampling by position: the order must not depend on speed
            wanted, by_id = gold[name]
            if not wanted or not record["trace"]:
                continue
            found = _read(record["trace"]["root"], "pid" if by_id else "title")
            found = list(dict.fromkeys(called_by(wanted, one) if by_id else composed(one) for one in found))
            measured["precision"].append(precision_at_k(found, wanted, len(found)) if found else 0.0)
            measured["recall"].append(recall_at_k(found, wanted, len(found)) if found else 0.0)
            measured["S-precision"].append(float(set(found) == set(wanted)))
        rows.append([label, *(bootstrap(values) for values in measured.values()), len(measured["recall"])])
    text = (
        "S-precision: the share of the questions whose passages are exactly the gold ones. n: the questions that name "
        "gold passages and were answered; one that was answered without any passage counts as 0."
    )
    return [Section("", ["passages", "precision", "recall", "S-precision", "n"], rows, text)]


def best_of(workspace: "Workspace", answers: Answers) -> list[Section]:
    """BlendFilter's sampling figure: the mean of several samples, and the best of them, by exact match and by F1.

    The paper's is the best of the first sample at each top_p; the others are ours. Labels are
    `program, top_p P, sample N`; the greedy answer is sample 1 of top_p 0.
    """
    samples: Samples = {}
    for label, records in answers.items():
        program, top_p, sample = label.split(", ")
        samples.setdefault(program, {}).setdefault(top_p, {})[sample] = records
    text = (
        f"n = {len(workspace.test)}. best of several: what the best of the sampled answers has; one: the mean of them."
    )
    firsts: dict[str, list[str]] = {}  # of which --only may have left some out
    for program, of in samples.items():
        if len(first := _firsts(of)) > 1:
            firsts.setdefault(", ".join(first), []).append(program)
    told = "; ".join(f"{', '.join(programs)}: of the first at {tops}" for tops, programs in firsts.items())
    text += f" {ACROSS}, as in the paper: {told}." if told else ""
    text += " Every call of a program is sampled, those before the answer, too."
    text = joined(text, fault_lines(summaries(answers)))
    found = [_best_by("em", "", "exact match", samples, text)]
    return found if workspace.measure == "accuracy" else [*found, _best_by("f1", "F1", "F1", samples)]


def _best_by(measure: str, title: str, heading: str, samples: Samples, text: str = "") -> Section:
    found: dict[str, dict[str, Score]] = {}
    for program, of in samples.items():
        cells = found.setdefault(program, {})
        for top_p, drawn in of.items():
            values = [[one[name][measure] for one in drawn.values()] for name in sorted(next(iter(drawn.values())))]
            made = [bootstrap([sum(row) / len(row) for row in values]), bootstrap([max(row) for row in values])]
            cells |= dict(zip(_columns(of, top_p), made, strict=False))
        if len(first := _firsts(of)) > 1:
            names = sorted(next(iter(first.values())))
            cells[ACROSS] = bootstrap([max(one[name][measure] for one in first.values()) for name in names])
    columns = sorted(dict.fromkeys(column for cells in found.values() for column in cells), key=ACROSS.__eq__)
    rows: list[list[Cell]] = [[program, *map(cells.get, columns)] for program, cells in found.items()]
    return Section(title, [heading, *columns], rows, text, main=None)


def _firsts(of: Mapping[str, Mapping[str, RecordsById]]) -> dict[str, RecordsById]:
    """A program's first sample at each top_p."""
    return {top_p: drawn["sample 1"] for top_p, drawn in of.items() if "sample 1" in drawn}


def _columns(of: Mapping[str, Mapping[str, RecordsById]], top_p: str) -> list[str]:
    drawn = len(of[top_p])
    return [top_p] if drawn == 1 else [f"{top_p}, one", f"{top_p}, best of {'three' if drawn == 3 else drawn}"]


def _read(node: dict[str, Any] | None, field: str) -> list[str]:
    """The passages that a tree's answers were read from: of RA-ISF the relevant ones, of others those they kept."""
    if not node:
        return []
    verdicts = [(one.get("judgement") or {}).get("verdict") for one in node["passages"]]
    # An unreadable judgement is one, and not relevant; and where the budget was spent before the first, none was read.
    judged = node["route"] == "budget" or any(one.get("judgement") for one in node["passages"])
    here = [
        one[field]
        for one, verdict in zip(node["passages"], verdicts, strict=True)
        if not judged or verdict == "relevant"
    ]
    return here + [name for sub in node["sub_questions"] for name in _read(sub, field)]
