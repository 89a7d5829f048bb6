"""The experiments of both papers, by name: which programs each runs, and the tables and figures made of the answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raisf.evaluation.comparison import compare_records
from raisf.evaluation.intervals import Score, bootstrap
from raisf.evaluation.metrics import precision_at_k, recall_at_k
from raisf.evaluation.report import summarise
from raisf.experiments import published_results
from raisf.experiments.comparing import RecordsById
from raisf.experiments.workspace import Setting, Workspace
from raisf.programs.registry import PROGRAMS
from raisf.reports import plots
from raisf.reports.report import ROUTES, answer_sections, judge_sections, pair_sections, route_section
from raisf.reports.sections import Cell, Section

if TYPE_CHECKING:
    from rich.progress import Progress

Answers = dict[str, RecordsById]
# How many passages a retrieval brings, and how deep sub-questions go, in the papers' sweeps.
RAISF_K, BLENDFILTER_K, DEPTHS = (1, 3, 5, 7, 9), (3, 4, 5, 6, 7, 8), (0, 1, 2, 3, 4, 5)
SYSTEMS = tuple(name for name in PROGRAMS if name != "ra-isf")
FULL = Setting("weights")


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Attributes:
        title: What it shows.
        source: Where the paper has it.
        settings: By the row's label.
        sections: Makes its tables and figures of the answers, by label; or of the judges' reports.
        judged: Whether the judges are asked alone, instead of questions answered.
    """

    title: str
    source: str
    settings: Mapping[str, Setting]
    sections: Callable[[Workspace, Any], list[Section]]
    judged: bool = False

    def run(self, workspace: Workspace, bars: "Progress") -> list[Section]:
        """Its sections, with what was answered before taken as it is."""
        sections = self.sections(
            workspace, workspace.judge(self.settings) if self.judged else workspace.answer(self.settings, bars)
        )
        sections[0].title = sections[0].title or self.title
        sections[0].text = f"{self.source}. {sections[0].text}".strip()
        return sections


def _table(
    *figures: published_results.Figures, names: tuple[str, ...] = ("paper",)
) -> Callable[[Workspace, Answers], list[Section]]:
    """Scores and cost of each row, and the paper's own figures beside them."""

    def sections(workspace: Workspace, answers: Answers) -> list[Section]:
        rows: list[list[Cell]] = []
        for label, records in answers.items():
            report = summarise(records.values())
            theirs = [published_results.figure_of(one, label, workspace.name) for one in figures]
            rows.append([label, report.em, report.f1, report.cost.get("lm_calls", 0.0), *theirs])
        where = workspace.name if workspace.name in published_results.SETS else "mean of its sets"
        columns = ["program", "exact match", "F1", "LM calls", *(f"{name}*" for name in names[: len(figures)])]
        text = (
            f"n = {len(workspace.test)}. *the paper's own figure, {where}."
            if figures
            else f"n = {len(workspace.test)}."
        )
        return [Section("", columns, rows, text)]

    return sections


def _main(workspace: Workspace, answers: Answers) -> list[Section]:
    """Table 1: the systems; what RA-ISF gains over each; by kind of question; and what it costs."""
    (table,) = _table(*published_results.TABLE_1.values(), names=tuple(published_results.TABLE_1))(workspace, answers)
    comparison = compare_records(answers)
    best = "ra-isf, weights"
    against = [pair for pair in comparison.pairs if best in (pair.first, pair.second)]
    reports = comparison.reports
    table.draw(*plots.accuracy_against_cost(reports))
    _, cost, kinds = answer_sections(comparison)
    return [table, pair_sections(against)[0], kinds, cost]


def _ablations(workspace: Workspace, answers: Answers) -> list[Section]:
    """Table 2, and each ablation's difference from the whole."""
    (table,) = _table(published_results.TABLE_2)(workspace, answers)
    against = [pair for pair in compare_records(answers).pairs if "RA-ISF" in (pair.first, pair.second)]
    return [table, pair_sections(against)[0]]


def _sweep(axis: str, by_kind: bool = False) -> Callable[[Workspace, Answers], list[Section]]:
    """A curve over a number, a line a program (or a kind of question); labels end in the number."""

    def sections(workspace: Workspace, answers: Answers) -> list[Section]:
        lines: dict[str, dict[float, Score]] = {}
        for label, records in answers.items():
            name, _, number = label.rpartition(" ")
            report = summarise(records.values())
            for line, score in (report.kinds if by_kind else {name.rpartition(",")[0]: report.em}).items():
                lines.setdefault(line, {})[float(number)] = score
        numbers = sorted({number for line in lines.values() for number in line})
        columns = ["exact match", *(f"{axis} {number:g}" for number in numbers)]
        rows: list[list[Cell]] = [[name, *(line.get(number) for number in numbers)] for name, line in lines.items()]
        section = Section("", columns, rows, f"n = {len(workspace.test)}.", main=None)
        section.draw(plots.curves(lines, axis, "exact match, percent"))
        return [section]

    return sections


def _effort(workspace: Workspace, answers: Answers) -> list[Section]:
    """Table 4: retrievals and sub-questions a question, over all and by kind."""
    rows: list[list[Cell]] = []
    for label, records in answers.items():
        kinds = sorted({record["kind"] for record in records.values() if record["kind"]})
        for kind in ("all", *(kinds if len(kinds) > 1 else ())):
            of = [record for record in records.values() if kind in ("all", record["kind"])]
            searched = sum(record["cost"].get("retrievals", 0) for record in of) / len(of)
            asked = sum(_sub_questions((record["trace"] or {}).get("root")) for record in of) / len(of)
            rows.append([label if kind == "all" else f"{label}: {kind}", searched, asked, len(of)])
    theirs = [
        published_results.figure_of(published_results.TABLE_4, name, workspace.name)
        for name in ("retrievals", "sub-questions")
    ]
    rows.append(["the paper's, mean of its sets", *theirs, None])
    return [Section("", ["program", "retrievals", "sub-questions", "n"], rows, "Mean per question.")]


def _reliability(_: Workspace, judged: dict[str, dict[str, Any]]) -> list[Section]:
    """Table 5: each judge alone against gold."""
    sections = judge_sections(judged)
    for section in sections:
        judge = section.title.removeprefix("Judge: ")
        theirs = ", ".join(f"{who} {value}" for who, value in published_results.TABLE_5[judge].items())
        section.text += f" The paper's agreement: {theirs}."
    sections[0].draw(*plots.reliability_curves(judged, plots.colours(judged)))
    return sections


def _routes(workspace: Workspace, answers: Answers) -> list[Section]:
    """Table 7: what each module settles, and how much of that is right."""
    comparison = compare_records(answers)
    section = route_section(comparison)
    section.draw(plots.route_shares(comparison.reports, ROUTES))
    return [section]


def _kept(workspace: Workspace, answers: Answers) -> list[Section]:
    """BlendFilter's retrieval: how much of what is read from is gold, before and after filtering."""
    gold = {str(example.id): example.get("gold_pids") or example.get("gold_titles") or [] for example in workspace.test}
    field = "pid" if any(example.get("gold_pids") for example in workspace.test) else "title"
    rows: list[list[Cell]] = []
    for label, records in answers.items():
        measured: dict[str, list[float]] = {"precision": [], "recall": [], "S-precision": []}
        for name, record in records.items():
            wanted = gold[name]
            if not wanted or not record["trace"]:
                continue
            kept = list(dict.fromkeys(_read(record["trace"]["root"], field)))
            measured["precision"].append(precision_at_k(kept, wanted, len(kept)) if kept else 0.0)
            measured["recall"].append(recall_at_k(kept, wanted, len(kept)) if kept else 0.0)
            measured["S-precision"].append(float(set(kept) == set(wanted)))
        rows.append([label, *(bootstrap(values) for values in measured.values())])
    text = "S-precision: the share of the questions whose passages are exactly the gold ones."
    return [Section("", ["passages", "precision", "recall", "S-precision"], rows, text)]


def _read(node: dict[str, Any] | None, field: str) -> list[str]:
    """The passages that a tree's answers were read from: of RA-ISF the relevant ones, of others those they kept."""
    if not node:
        return []
    verdicts = [(one.get("judgement") or {}).get("verdict") for one in node["passages"]]
    judged = any(one.get("judgement") for one in node["passages"])  # an unreadable judgement is one, and not relevant
    here = [
        one[field]
        for one, verdict in zip(node["passages"], verdicts, strict=True)
        if not judged or verdict == "relevant"
    ]
    return here + [name for sub in node["sub_questions"] for name in _read(sub, field)]


def _sub_questions(node: dict[str, Any] | None) -> int:
    return sum(1 + _sub_questions(sub) for sub in node["sub_questions"]) if node else 0


def _over(program: str, label: str, option: str, values: tuple[int, ...]) -> dict[str, Setting]:
    return {f"{label}, {option} {value}": Setting(program, {option: value}) for value in values}


RAISF, BLEND = "Liu et al. 2024", "Wang et al. 2024 (BlendFilter)"
_VARIANTS = {
    "ra-isf, zero-shot": Setting("ra-isf"),
    "ra-isf, prompts": Setting("prompts"),
    "ra-isf, weights": FULL,
}
_OVER_K = {
    **_over("weights", "ra-isf, weights", "k", RAISF_K),
    **_over("rag", "rag", "k", RAISF_K),
}
_BLENDFILTER = ("direct", "cot", "rag", "cot-rag", "react", "self-ask", "iter-retgen", "blendfilter")

EXPERIMENTS: dict[str, Experiment] = {
    "table1": Experiment(
        "All systems", f"{RAISF}, Table 1", {**{name: Setting(name) for name in SYSTEMS}, **_VARIANTS}, _main
    ),
    "table2": Experiment(
        "RA-ISF without each of its modules",
        f"{RAISF}, Table 2",
        {
            "RA-ISF": FULL,
            "no self-knowledge": Setting("weights", {"use_know": False}),
            "no relevance": Setting("weights", {"use_relevance": False}),
            "no decomposition": Setting("weights", {"use_decomposition": False}),
        },
        _ablations,
    ),
    "fig2": Experiment(
        "How deep sub-questions may go",
        f"{RAISF}, Figure 2",
        _over("weights", "ra-isf, weights", "max_depth", DEPTHS),
        _sweep("max_depth"),
    ),
    "table3": Experiment(
        "Whose weights the judges are",
        f"{RAISF}, Table 3",
        {
            "the answering LM itself": Setting("ra-isf"),
            "the answering LM, prompts": Setting("prompts"),
            "Llama, LoRA": FULL,
            "Llama, all weights": Setting("weights", training={"method": "full"}),
            "Llama, half the width": Setting("weights", base="pocket-tiny"),
            "T5": Setting("weights", base="pocket-t5"),
        },
        _table(published_results.TABLE_3),
    ),
    "table4": Experiment("Retrievals and sub-questions", f"{RAISF}, Table 4", _VARIANTS, _effort),
    "table5": Experiment("Each judge alone", f"{RAISF}, Table 5", _VARIANTS, _reliability, judged=True),
    "fig3": Experiment("How many passages are retrieved", f"{RAISF}, Figure 3", _OVER_K, _sweep("k")),
    "fig4": Experiment(
        "How many passages, by kind of question",
        f"{RAISF}, Figure 4",
        _over("weights", "ra-isf, weights", "k", RAISF_K),
        _sweep("k", by_kind=True),
    ),
    "table7": Experiment("What each module settles", f"{RAISF}, Table 7", _VARIANTS, _routes),
    "blendfilter-main": Experiment(
        "BlendFilter and its baselines",
        f"{BLEND}, Table 2",
        {name: Setting(name) for name in _BLENDFILTER},
        _table(published_results.BLENDFILTER_MAIN),
    ),
    "blendfilter-bm25": Experiment(
        "BlendFilter over BM25",
        f"{BLEND}, the table of its BM25 results",
        {name: Setting(name, engine="bm25") for name in ("rag", "cot-rag", "iter-retgen", "blendfilter")},
        _table(published_results.BLENDFILTER_BM25),
    ),
    "blendfilter-queries": Experiment(
        "BlendFilter without each of its queries",
        f"{BLEND}, its ablation",
        {
            "blendfilter": Setting("blendfilter"),
            "without q": Setting("blendfilter", {"use_question": False}),
            "without q_ex": Setting("blendfilter", {"use_external": False}),
            "without q_in": Setting("blendfilter", {"use_internal": False}),
        },
        _table(),
    ),
    "blendfilter-retrieval": Experiment(
        "What is read from, against gold",
        f"{BLEND}, its retrieval accuracy",
        {
            "retrieved, before any filter": Setting("rag"),
            "kept by blendfilter": Setting("blendfilter"),
            "kept by ra-isf, zero-shot": Setting("ra-isf"),
            "kept by ra-isf, weights": FULL,
        },
        _kept,
    ),
    "blendfilter-k": Experiment(
        "How many passages a query",
        f"{BLEND}, its figure over K",
        {
            **_over("blendfilter", "blendfilter", "k", BLENDFILTER_K),
            **_over("cot-rag", "cot-rag", "k", BLENDFILTER_K),
        },
        _sweep("k"),
    ),
    "blendfilter-sampling": Experiment(
        "Answers sampled instead of greedy",
        f"{BLEND}, its sampling figure",
        {
            f"{program}, top_p {p:g}": Setting(
                program, sampling={"temperature": 1.0, "top_p": p, "seed": 0} if p else {}
            )
            for program in ("blendfilter", "cot-rag")
            for p in (0.0, 0.5, 1.0)
        },
        _sweep("top_p"),
    ),
}
