"""Every judge and every way of compiling beside each other: which are worth their cost."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.evaluation.comparison import compare_records
from raisf.evaluation.report import Report, summaries, waited
from raisf.evaluation.seen import seen_lines
from raisf.experiments.settings import THRESHOLDS, Setting
from raisf.experiments.tables import fault_lines, judged_beside
from raisf.reports.report import left_out_of, pair_sections, uncounted_line
from raisf.reports.sections import Cell, Section, score_of

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace

WHOLE = "know: confidence"
ALWAYS = "always retrieve"
KNOW_PROBE = ("probe", {"predictors": ("know",)})
RELEVANCE_PROBE = ("probe", {"predictors": ("relevant",)})
_CONFIDENT: Mapping[str, Any] = {"know": "confidence"}

# By label. The decomposition judge's weights are trained in all but the rows of ways, and the same everywhere.
ROWS: dict[str, Setting] = {
    "way: none": Setting("ra-isf"),
    "way: prompts": Setting("prompts"),
    "way: weights": Setting("weights"),
    "way: both": Setting("both"),
    "way: outcome": Setting("outcome"),
    "way: probes": Setting("probe"),
    ALWAYS: Setting("weights", {"use_know": False}),
    "know: verbal": Setting("weights", then=(THRESHOLDS,)),
    "know: probe": Setting("weights", then=(KNOW_PROBE, THRESHOLDS)),
    "know: consistency": Setting("weights", {"know": "consistency"}, then=(THRESHOLDS,)),
    "know: truth": Setting("weights", {"know": "truth"}, then=(THRESHOLDS,)),
    "relevance: probe": Setting("weights", then=(RELEVANCE_PROBE, THRESHOLDS)),
    "relevance: the retriever's score": Setting("weights", {"relevance": "score"}, then=(THRESHOLDS,)),
    "sufficiency": Setting("weights", {"sufficiency": True}, then=(THRESHOLDS,)),
    "decomposition: stepwise": Setting("weights", {"decomposition": "stepwise"}, then=(THRESHOLDS,)),
    "decomposition: chains": Setting("weights", {"decomposition": "chains"}, then=(THRESHOLDS,)),
    "know: confidence, for its cost": Setting("weights", _CONFIDENT, then=(("thresholds", {"aim": "cost"}),)),
    f"{WHOLE}, no self-knowledge": Setting("weights", {**_CONFIDENT, "use_know": False}, then=(THRESHOLDS,)),
    f"{WHOLE}, no relevance": Setting("weights", {**_CONFIDENT, "use_relevance": False}, then=(THRESHOLDS,)),
    f"{WHOLE}, no decomposition": Setting("weights", {**_CONFIDENT, "use_decomposition": False}, then=(THRESHOLDS,)),
    WHOLE: Setting("weights", _CONFIDENT, then=(THRESHOLDS,)),
}
MEASURES = {"auroc": "AUROC", "ece": "ECE", "aurc": "AURC"}


def sections(workspace: "Workspace", answers: Mapping[str, RecordsById]) -> list[Section]:
    """What each row answers and costs, how good its judges are alone, and the whole against each other row."""
    reports = summaries(answers)
    judged = judged_beside(workspace, {label: ROWS[label] for label in answers})
    made = [_answers(workspace, reports), _judges(judged)]
    if WHOLE in answers and len(answers) > 1:
        made.append(pair_sections(compare_records(answers, WHOLE).pairs)[0])
    return made


def _answers(workspace: "Workspace", reports: Mapping[str, Report]) -> Section:
    rows: list[list[Cell]] = []
    for label, report in reports.items():
        cost = map(report.told, ("lm_calls", "prompt_tokens", "retrievals", "seconds"))
        rows.append([label, report.em, report.f1, *cost])
    text = f"n = {len(workspace.test)}; cost: mean per question. seconds: {waited(reports.values())}."
    text = f"{text}{uncounted_line(reports)} {fault_lines(reports)}".strip()
    return Section("", ["program", "exact match", "F1", "LM calls", "tokens read", "retrievals", "seconds"], rows, text)


def _judges(judged: Mapping[str, Mapping[str, Any]]) -> Section:
    found = {
        (label, judge): reports[judge]
        for label, reports in judged.items()
        for judge in ("know", "relevance")
        if judge in reports
    }
    missing, left_out_line = left_out_of(found.values())
    rows: list[list[Cell]] = []
    for (label, judge), report in found.items():
        scores = {name: score_of(value) for name, value in report["scores"].items()}
        left_out = [report.get(count, 0) for count in missing]
        n = scores["ece" if "ece" in scores else "accuracy"].n if scores else 0
        rows.append([label, judge, *(scores.get(name) for name in MEASURES), n, *left_out])
    text = "Each judge asked alone, against gold. AURC: the mean risk over all coverages, lower is better."
    seen = seen_lines({label: report.get("not_held_out", ()) for (label, _), report in found.items()})
    text = " ".join([text + left_out_line, *seen])
    columns = ["program", "judge", *MEASURES.values(), "n", *missing]
    return Section("Judges alone", columns, rows, text, main=None)
