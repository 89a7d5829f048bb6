"""What is compared on real text: the rows, and which of them the command line asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.experiments.settings import LEARNT, PREDICTORS, THRESHOLDS, Setting, labels_in
from raisf.utils.errors import InputError

SETS = ("hotpotqa", "2wiki", "musique")
SMOLLM2 = "smollm2"
# Of an answer: a small model that was not trained to end goes on to the last token it may write.
MOST_TOKENS = 96
# RA-ISF's, in every row: a judge that says no to all would else ask some hundred sub-questions of a question.
BUDGET: Mapping[str, Any] = {"max_depth": 2, "max_calls": 60}
# The judges are asked alone about this many of the test questions: one gives some ten judgements.
JUDGED_QUESTIONS = 100
JUDGING = tuple(PREDICTORS.values())
ANSWERERS = ("answer_directly", "answer_from", "compose")


@dataclass(frozen=True)
class Row(Setting):
    """A program of the comparison.

    Attributes:
        lent: The predictors that a compiled program lends to one that has none of its own, by name.
        lender: Which one.
        judged: Whether its judges are asked alone, too.
    """

    lent: tuple[str, ...] = ()
    lender: str = ""
    judged: bool = False

    @property
    def learnt(self) -> str:
        """What must have been compiled for it, if it is of `raisf.experiments.settings.LEARNT`."""
        return self.lender or self.program

    @property
    def learns(self) -> bool:
        """As `Setting`'s; what it borrows has learnt from the training questions."""
        return super().learns or bool(self.lent)


def _judged_by(*then: tuple[str, Mapping[str, Any]], without: tuple[str, ...] = (), **options: Any) -> Row:
    """weights-all with another judge, its thresholds fitted on the dev split; `without`: what is not lent to it."""
    lent = tuple(name for name in (*JUDGING, *ANSWERERS) if name not in without)
    return Row("ra-isf", {**BUDGET, **options}, then=(*then, THRESHOLDS), lent=lent, lender="weights-all", judged=True)


# By label. What can be trained, or given as an artifact, is in `GIVEN`.
ROWS: dict[str, Row] = {
    "direct": Row("direct"),
    "rag": Row("rag"),
    "rag-reader": Row("rag", lent=("answer_from",), lender="weights-all"),
    "iter-retgen": Row("iter-retgen"),
    "blendfilter": Row("blendfilter"),
    "zero-shot": Row("ra-isf", BUDGET, judged=True),
    "prompts-labeled": Row("prompts", BUDGET, judged=True),
    "prompts-random": Row("prompts-random", BUDGET, judged=True),
    # As in the paper: the judges are trained, and the LM itself answers.
    "weights-judges": Row("ra-isf", BUDGET, lent=JUDGING, lender="weights", judged=True),
    "weights-all": Row("weights-all", BUDGET, judged=True),
    "no-know": Row("weights-all", {**BUDGET, "use_know": False}),
    "no-relevance": Row("weights-all", {**BUDGET, "use_relevance": False}),
    "no-decomposition": Row("weights-all", {**BUDGET, "use_decomposition": False}),
    "know-confidence": _judged_by(know="confidence"),
    "know-consistency": _judged_by(know="consistency"),
    "know-truth": _judged_by(know="truth", without=("know",)),
    "prompts-judges": _judged_by(("prompts", {}), without=JUDGING),
    "probes": _judged_by(("probe", {"predictors": ("know", "relevant")})),
    "outcome": _judged_by(("outcome", {})),
    "sufficiency": _judged_by(sufficiency=True),
    "stepwise": _judged_by(decomposition="stepwise", without=("decompose",)),
    "chains": _judged_by(decomposition="chains"),
}
OF_PAPERS = ("weights", "prompts")
GIVEN = ("prompts-labeled", "prompts-random", "weights-judges", "weights-all")
# What every other row is tested against, the first that is there.
AGAINST = ("weights-all", "weights-judges", "prompts-random", "prompts-labeled", "zero-shot")
# What rows are, for the tables' text; one that is not among them says it by its label.
_ABOUT = {
    "direct": "from memory",
    "rag": "reads five passages",
    "rag-reader": "rag with the reader of weights-all",
    "zero-shot": "RA-ISF as it is",
    "prompts-labeled": "RA-ISF with labeled demonstrations",
    "prompts-random": "RA-ISF with searched demonstrations",
    "weights-judges": "RA-ISF with trained judges",
    "weights-all": "RA-ISF with trained judges and answerers",
    "no-...": "weights-all without one of its judges",
}


def about(rows: Mapping[str, Row], *, alone: bool) -> str:
    """What a reader must know of rows, by label; `alone`: their judges are asked alone, too."""
    named = {*rows, *("no-..." for label in rows if label in ROWS and label.startswith("no-"))}
    told = ["; ".join(f"{label}: {what}" for label, what in _ABOUT.items() if label in named)]
    if any("max_calls" in row.options for row in rows.values()):
        depth, calls = BUDGET["max_depth"], BUDGET["max_calls"]
        told.append(f"RA-ISF goes {depth} sub-questions deep and makes {calls} LM calls a question at most")
    if alone and any(row.judged for row in rows.values()):
        told.append(f"Judges alone are asked about the first {JUDGED_QUESTIONS} questions of a set")
    return " ".join(f"{sentence}." for sentence in told if sentence)


@dataclass(frozen=True, slots=True)
class RowChoice:
    """What is compared, as the command line says it.

    Attributes:
        programs: Artifacts by label, each a folder or the name of one that ships: of `GIVEN`, instead of compiling
            them, or of rows of their own; in the papers' tables of `OF_PAPERS` alone.
        only: The labels of the rows to answer; all if empty.
        no_judges: Whether the judges are not asked alone.
        page: A Markdown file to write the tables into; what stands above them there stays.
    """

    programs: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()
    no_judges: bool = False
    page: Path | None = None

    def rows(self) -> dict[str, Row]:
        """All rows, those of artifacts that are no variant of ours at the end.

        Raises:
            InputError: A label of `only` is no row's, or an artifact is given for a row that is none.
        """
        from raisf.optimize.manifest import read
        from raisf.programs.registry import PROGRAMS

        rows = dict(ROWS)
        for label, folder in self.artifacts().items():
            if label in {*ROWS, *PROGRAMS, *LEARNT} - {*GIVEN}:  # what other rows are, or are made of
                raise InputError(
                    f"--program {label}=...: {label} is no artifact; give {', '.join(GIVEN)}, or a new name"
                )
            recursive = read(folder).program == "ra-isf"
            rows.setdefault(label, Row(label, BUDGET if recursive else {}, judged=recursive))
        labels_in(self.only, rows)
        return rows

    def of_papers(self) -> dict[str, Path]:
        """By what would be compiled, the artifacts that are RA-ISF in the papers' tables.

        Raises:
            InputError: One is for no such row, or is no RA-ISF.
        """
        from raisf.optimize.manifest import read

        for label, folder in self.artifacts().items():
            if label not in OF_PAPERS:
                raise InputError(f"--program {label}=...: the papers' tables take {' and '.join(OF_PAPERS)}")
            manifest = read(folder)
            if manifest.program != "ra-isf":
                raise InputError(
                    f"--program {label}=...: {folder} is a compiled {manifest.program}, and that row is RA-ISF's"
                )
            if bool(manifest.weights) != (label == "weights"):
                other = "prompts" if label == "weights" else "weights"
                raise InputError(
                    f"--program {label}=...: {folder} has {'no' if other == 'prompts' else 'trained'} weights: "
                    f"give it as {other}=..."
                )
        return self.artifacts()

    @property
    def facts(self) -> dict[str, str]:
        """By label, what a page says of the artifacts."""
        return {label: f"the artifact {name}" for label, name in self.programs}

    def artifacts(self) -> dict[str, Path]:
        """By label, the folders that were given.

        Raises:
            InputError: One is none, or a label was given twice.
        """
        labels = [label for label, _ in self.programs]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise InputError(f"--program {twice}=... was given twice: give it once")
        return {label: artifact_folder(name) for label, name in self.programs}


def artifact_folder(name: str) -> Path:
    """The folder of an artifact, or of a compiled program that ships under this name.

    Raises:
        InputError: There is neither.
    """
    from raisf.optimize.shipped import PROGRAMS, shipped_folder

    if name not in PROGRAMS and not Path(name).is_dir():
        raise InputError(f"--program: {name} is no folder; give one made by `raisf compile`, or {', '.join(PROGRAMS)}")
    return shipped_folder(name) if name in PROGRAMS else Path(name)
