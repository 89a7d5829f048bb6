"""The experiments of both papers, by name: which programs each runs, and the tables and figures made of the answers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from raisf.evaluation.intervals import Score, caution
from raisf.experiments import blendfilter_tables, data_efficiency, every_judge, tables
from raisf.experiments import published_results as published
from raisf.experiments.by_hand import reliability_and_people
from raisf.experiments.cases import cases
from raisf.experiments.comparing import counted
from raisf.experiments.remarks import FEW_SHOT, LEARNT, LEVEL, SETS, TABLE_1, OfRows, remarks
from raisf.experiments.settings import Setting, labels_in
from raisf.experiments.titles import TITLES
from raisf.experiments.workspace import Workspace
from raisf.programs.registry import PROGRAMS
from raisf.reports.compiled import teacher_section
from raisf.reports.sections import Section

if TYPE_CHECKING:
    from rich.progress import Progress

# How many passages a retrieval brings, and how deep sub-questions go, in the papers' sweeps.
RAISF_K, BLENDFILTER_K, DEPTHS = (1, 3, 5, 7, 9), (3, 4, 5, 6, 7, 8), (0, 1, 2, 3, 4, 5)
SYSTEMS = tuple(name for name in PROGRAMS if name != "ra-isf")
FULL = Setting("weights")
VARIANTS = {"weights": "weights", "prompts": "prompts", "zero-shot": "ra-isf"}
ABOUT_VARIANTS = {
    "weights": "the one with trained judges",
    "prompts": "the one whose judges are shown demonstrations, where the paper's are trained",
    "zero-shot": "as it is, where the paper's judges are trained",
}
SAMPLES = 3
Rows = Mapping[str, Setting]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Attributes:
        title: What it shows.
        source: Where the paper has it.
        settings: By the row's label; or what gives them for a workspace.
        sections: Makes its tables and figures of the answers, by label; or of the judges' reports.
        judged: Whether the judges are asked alone, instead of questions answered.
        check: Tells, before anything is asked, of test questions that cannot fill its table.
        one_variant: Whether it shows one RA-ISF, which is compiled to weights if nobody says otherwise.
        departs: What a reader must know before comparing with the paper; docs/fidelity.md has all.
        of_rows: The same of some rows alone.
    """

    title: str
    source: str
    settings: Rows | Callable[[Workspace], Rows]
    sections: Callable[[Workspace, Any], list[Section]]
    judged: bool = False
    check: Callable[[Workspace], None] | None = None
    one_variant: bool = False
    departs: str = ""
    of_rows: OfRows = ()

    def rows(
        self, workspace: Workspace, *, few_shot: bool = True, variant: str = "weights", only: Sequence[str] = ()
    ) -> Rows:
        """By label, what is run.

        Args:
            workspace: Where.
            few_shot: Whether the few-shot rows are among them.
            variant: A key of `VARIANTS`: what the RA-ISF of an experiment that shows one is.
            only: The labels of the rows that are wanted, cut at their commas; all if empty.

        Raises:
            InputError: `only` names what is no row's label.
        """
        settings = self.settings(workspace) if callable(self.settings) else self.settings
        if self.one_variant:
            settings = {
                label.replace("ra-isf, weights", f"ra-isf, {variant}"): replace(setting, program=VARIANTS[variant])
                if setting.program == FULL.program
                else setting
                for label, setting in settings.items()
            }
        rows = {label: setting for label, setting in settings.items() if few_shot or not setting.few_shot}
        wanted = labels_in(only, rows)
        return {label: setting for label, setting in rows.items() if label in wanted or not only}

    def run(
        self,
        workspace: Workspace,
        bars: "Progress",
        *,
        few_shot: bool = True,
        variant: str = "weights",
        only: Sequence[str] = (),
    ) -> list[Section]:
        """Its sections, with what was answered before taken as it is; what cannot be run is named in the first.

        Raises:
            InputError: As its `check`.
            RaisfError: As `Workspace.answer` and `judge`.
        """
        if self.check is not None:
            self.check(workspace)
        settings = self.rows(workspace, few_shot=few_shot, variant=variant, only=only)
        workspace.outputs = {}
        if self.judged:
            sections = self.sections(workspace, workspace.judge(settings))
        else:
            answers = workspace.answer(settings, bars).items()
            sections = self.sections(workspace, {label: counted(one, workspace.measure) for label, one in answers})
            for section in sections:
                section.call("exact match", workspace.measure)
        first, *others = sections
        first.title = first.title or self.title
        counts = [cell.n for row in first.rows for cell in row if isinstance(cell, Score) and cell.n]
        few = caution(min(len(workspace.test), *counts)) if counts else ""
        told = [f"{self.source}.", first.text, f"{few}." if few else "", *self.known_of(settings.values())]
        if self.one_variant and any(one.system == "ra-isf" for one in settings.values()):
            told.append(f"RA-ISF is {ABOUT_VARIANTS[variant]}.")
        first.text = tables.joined(*told, *remarks(workspace, settings))
        taught = [teacher_section(workspace.taught)] if workspace.taught else []
        return [first, *(section for section in others if section.rows), *taught]

    def known_of(self, rows: Collection[Setting]) -> list[str]:
        """What a reader must know of these rows before comparing them with the paper's."""
        told = (sentence for about, sentence in self.of_rows if any(map(about, rows)))
        return [*told, self.departs, _FORMS * (self.source != OURS)]


def _over(program: str, label: str, option: str, values: tuple[int, ...]) -> dict[str, Setting]:
    return {f"{label}, {option} {value}": Setting(program, {option: value}) for value in values}


def _few_shot(rows: Rows) -> dict[str, Setting]:
    """Each row as it is, but with demonstrations."""
    return {f"{label}{published.FEW_SHOT}": replace(setting, few_shot=True) for label, setting in rows.items()}


def _bases(workspace: Workspace) -> Rows:
    """Table 3: whose weights the judges are."""
    own = workspace.base or workspace.lm.spec
    return {
        "the answering LM itself": Setting("ra-isf"),
        "the answering LM, prompts": Setting("prompts"),
        f"{own}, LoRA": FULL,
        f"{own}, all weights": Setting("weights", training={"method": "full"}),
        **{f"{base}, LoRA": Setting("weights", base=base) for base in workspace.bases},
    }


def _blendfilter(*systems: str, engine: str | None = None) -> dict[str, Setting]:
    """Systems as BlendFilter's tables run them: five passages a search for ReAct too."""
    return {name: Setting(name, {"k": 5} if name == "react" else {}, engine=engine) for name in systems}


def _queries(label: str, engine: str | None) -> dict[str, Setting]:
    without = {"": None, "without q": "use_question", "without q_ex": "use_external", "without q_in": "use_internal"}
    return {
        f"{name or 'blendfilter'}{label}": Setting("blendfilter", {option: False} if option else {}, engine=engine)
        for name, option in without.items()
    }


def _retrieved(label: str, engine: str | None) -> dict[str, Setting]:
    return {
        f"retrieved, before any filter{label}": Setting("rag", engine=engine),
        f"read by iter-retgen at last{label}": Setting("iter-retgen", engine=engine),
        f"kept by blendfilter{label}": Setting("blendfilter", engine=engine),
    }


def _samples(*programs: str) -> dict[str, Setting]:
    found = {}
    for program in programs:
        found[f"{program}, top_p 0, sample 1"] = Setting(program, sampling={"temperature": 0.0})
        for top_p in (0.5, 1.0):
            for number in range(SAMPLES):
                sampling = {"temperature": 1.0, "top_p": top_p, "seed": number}
                found[f"{program}, top_p {top_p:g}, sample {number + 1}"] = Setting(program, sampling=sampling)
    return found


RAISF, BLEND, OURS = "Liu et al. 2024", "Wang et al. 2024 (BlendFilter)", "No paper's"
_BASELINES = {name: Setting(name) for name in SYSTEMS}
_VARIANTS = {
    "ra-isf, zero-shot": Setting("ra-isf"),
    "ra-isf, prompts": Setting("prompts"),
    "ra-isf, weights": FULL,
}
# The other reading of sufficiency: which passages suffice as a set, as the examples of the paper's appendix have it.
_LISTWISE = {
    f"{label}, listwise": Setting(setting.program, {"relevance": "listwise"}) for label, setting in _VARIANTS.items()
}
_BLENDFILTER = ("direct", "cot", "rag", "cot-rag", "react", "self-ask", "iter-retgen", "blendfilter")
_PLAIN = "BlendFilter and its baselines are zero-shot here; the paper's show three demonstrations."
_FORMS = "Prompts are ours, not the papers'; docs/fidelity.md lists, system by system, what else differs."

EXPERIMENTS: dict[str, Experiment] = {
    "table1": Experiment(
        TITLES["table1"],
        f"{RAISF}, Table 1",
        {
            **_BASELINES,
            "replug, tuned index": Setting("replug", tuned=True),
            **_few_shot({**_BASELINES, "ra-isf": Setting("ra-isf")}),
            **_VARIANTS,
        },
        tables.main,
        departs="The paper searches Wikipedia with Contriever.",
        of_rows=TABLE_1,
    ),
    "table2": Experiment(
        TITLES["table2"],
        f"{RAISF}, Table 2",
        {
            **{name: _BASELINES[name] for name in ("direct", "rag", "least-to-most")},
            "RA-ISF": FULL,
            "no self-knowledge": Setting("weights", {"use_know": False}),
            "no relevance": Setting("weights", {"use_relevance": False}),
            "no decomposition": Setting("weights", {"use_decomposition": False}),
        },
        tables.ablations,
        one_variant=True,
        of_rows=[LEARNT],
    ),
    "fig2": Experiment(
        TITLES["fig2"],
        f"{RAISF}, Figure 2",
        {
            **_over("weights", "ra-isf, weights", "max_depth", DEPTHS),
            **{name: _BASELINES[name] for name in ("rag", "direct")},
        },
        tables.depths,
        one_variant=True,
        of_rows=[LEVEL],
    ),
    "table3": Experiment(
        TITLES["table3"],
        f"{RAISF}, Table 3",
        _bases,
        tables.table(published.TABLE_3, whose="GPT-3.5", besides=True),
        departs="The paper's judges have 7 billion and 780 million weights; ours are named by their base.",
    ),
    "table4": Experiment(TITLES["table4"], f"{RAISF}, Table 4", _VARIANTS, tables.effort),
    "table5": Experiment(
        TITLES["table5"],
        f"{RAISF}, Table 5",
        {**_VARIANTS, **_LISTWISE},
        reliability_and_people,
        judged=True,
        departs="The paper's figures are agreement with people and GPT-4, the first tables' with gold.",
    ),
    "fig3": Experiment(
        TITLES["fig3"],
        f"{RAISF}, Figure 3",
        {**_over("weights", "ra-isf, weights", "k", RAISF_K), **_over("rag", "rag", "k", RAISF_K)},
        tables.sweep("k"),
        one_variant=True,
        departs="The paper draws this figure without telling its values.",
    ),
    "fig4": Experiment(
        TITLES["fig4"],
        f"{RAISF}, Figure 4",
        _over("weights", "ra-isf, weights", "k", RAISF_K),
        tables.sweep("k", by_kind=True),
        check=tables.check_kinds,
        one_variant=True,
        departs="The paper's is over k on TriviaQA; by kind of question is ours.",
    ),
    "table7": Experiment(
        TITLES["table7"],
        f"{RAISF}, Table 7",
        {**_VARIANTS, **_LISTWISE},
        tables.routes,
        of_rows=[SETS],
    ),
    "blendfilter-main": Experiment(
        TITLES["blendfilter-main"],
        f"{BLEND}, Tables 2 to 4",
        {**_blendfilter(*_BLENDFILTER), **_few_shot(_blendfilter(*_BLENDFILTER))},
        blendfilter_tables.main,
        of_rows=[FEW_SHOT],
    ),
    "blendfilter-bm25": Experiment(
        TITLES["blendfilter-bm25"],
        f"{BLEND}, Table 5",
        _blendfilter(*_BLENDFILTER, engine="bm25"),
        blendfilter_tables.BM25,
        departs=_PLAIN,
    ),
    "blendfilter-queries": Experiment(
        TITLES["blendfilter-queries"],
        f"{BLEND}, Table 6",
        {**_queries("", None), **_queries(", BM25", "bm25")},
        blendfilter_tables.QUERIES,
        departs=_PLAIN,
    ),
    "blendfilter-retrieval": Experiment(
        TITLES["blendfilter-retrieval"],
        f"{BLEND}, its retrieval accuracy",
        {
            **_retrieved("", None),
            **_retrieved(", BM25", "bm25"),
            "kept by ra-isf, zero-shot": Setting("ra-isf"),
            "kept by ra-isf, weights": FULL,
        },
        blendfilter_tables.kept,
        check=blendfilter_tables.check_gold,
        departs=_PLAIN,
    ),
    "blendfilter-k": Experiment(
        TITLES["blendfilter-k"],
        f"{BLEND}, its figure over K",
        {
            **_over("blendfilter", "blendfilter", "k", BLENDFILTER_K),
            **_over("iter-retgen", "iter-retgen", "k", BLENDFILTER_K),
        },
        tables.sweep("k"),
        departs=_PLAIN,
    ),
    "blendfilter-sampling": Experiment(
        TITLES["blendfilter-sampling"],
        f"{BLEND}, its sampling figure",
        _samples("blendfilter", "iter-retgen", "cot-rag"),
        blendfilter_tables.best_of,
        departs=_PLAIN,
    ),
    "blendfilter-cases": Experiment(
        TITLES["blendfilter-cases"],
        f"{BLEND}, its case study",
        _blendfilter("cot-rag", "blendfilter"),
        cases,
        departs=_PLAIN,
    ),
    "judges": Experiment(
        TITLES["judges"],
        OURS,
        every_judge.ROWS,
        every_judge.sections,
        departs="docs/judges.md says what each is.",
    ),
    "data-efficiency": Experiment(TITLES["data-efficiency"], OURS, data_efficiency.settings, data_efficiency.sections),
}
