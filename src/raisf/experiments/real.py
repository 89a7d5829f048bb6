"""RA-ISF on real text: zero-shot, compiled to prompts and to weights, beside what it must beat, on public data sets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.evaluation.seen import seen_lines
from raisf.experiments.changed_options import fitted_to_others
from raisf.experiments.comparing import counted, judge_all, judged_path, left_out_lines, records_file
from raisf.experiments.learning import Learning, lend
from raisf.experiments.opening import LMChoice, open_program
from raisf.experiments.real_rows import AGAINST, JUDGED_QUESTIONS, ROWS, SETS, Row, RowChoice, about
from raisf.experiments.settings import LEARNT, Setting, labels_in
from raisf.experiments.workspace import Workspace
from raisf.optimize.manifest import MANIFEST, read
from raisf.programs.registry import PROGRAMS, defaults
from raisf.reports.report import output_counts
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import sha256_file

if TYPE_CHECKING:
    from rich.progress import Progress

    from raisf.reports.sections import Section


class Lending(Learning):
    """What rows have learnt, and the trained predictors that they borrow from another's artifact."""

    def _begin(self, setting: Setting) -> Any:
        return self.lend(super()._begin(setting), setting)

    def _learns_from(self, setting: Setting) -> list[Any]:
        """The lender's weights are part of what a program that is compiled further has learnt."""
        more = super()._learns_from(setting)
        if isinstance(setting, Row) and setting.lender:
            lender = self.artifact(Setting(setting.lender))
            more += [setting.lent, sha256_file(lender / MANIFEST) if lender else None]
        return more

    def _compiled_with(self, setting: Setting) -> dict[str, Any]:
        """A row that is another's program with other judges has all else as that one has it."""
        fields = super()._compiled_with(setting)
        lender = self.artifact(Setting(setting.lender)) if isinstance(setting, Row) and setting.then else None
        if lender is None:
            return fields
        kept = defaults(PROGRAMS["ra-isf"]) | read(lender).options
        others = fitted_to_others(kept, setting.options)
        return {name: value for name, value in kept.items() if name not in others} | fields | dict(setting.options)

    def lend(self, program: Any, setting: Setting) -> Any:
        """The program with what its row borrows."""
        if isinstance(setting, Row) and setting.lent:
            lender = open_program(str(self.artifact(Setting(setting.lender))), index=self.workspace.index())
            lend(program, lender, setting.lent)
        return program


class RealWorkspace(Workspace):
    """A workspace whose artifacts may be given, and whose programs may borrow trained predictors.

    Args:
        out: As `Workspace`'s.
        data: Likewise.
        given: Artifacts by label; the judges of "weights-all" are those of "weights-judges", too, where that is not
            given.
        **options: As `Workspace`'s.
    """

    def __init__(self, out: Path, data: Path, *, given: Mapping[str, Path], **options: Any) -> None:
        super().__init__(out, data, **options)
        given = {**({"weights-judges": given["weights-all"]} if "weights-all" in given else {}), **given}
        by_learnt = {ROWS[label].learnt if label in ROWS else label: folder for label, folder in given.items()}
        self.learning = self.lending = Lending(self, by_learnt)
        self.name = self.name or data.name

    def open(self, setting: Setting) -> Any:
        """The program of a row, with the weights that it is to have."""
        program = super().open(setting)
        return program if setting.then else self.lending.lend(program, setting)

    def answered(self, row: Row) -> RecordsById | None:
        """The answers of an earlier run to all questions.

        None where some are missing or all failed, or a row is not made yet, or cannot be opened: nobody has asked for
        it now.
        """
        from raisf.evaluation.examples import question_id
        from raisf.evaluation.records import read_records
        from raisf.evaluation.seen import seen_by

        if not (self.out / "records").is_dir():  # to open a row may take an index that is not made yet
            return None
        try:
            if row.learnt in LEARNT and row.learnt not in self.lending.given and not self._stands(Setting(row.learnt)):
                return None
            if row.then and not self._stands(row):
                return None
            program = self.open(row)
        except RaisfError:
            return None
        path = records_file(self.out / "records", program, self.test)
        # Another run may be writing there, or have been killed at it.
        records = read_records(path, "mend or drop the line") if path.is_file() else ()
        found = {record["id"]: record for record in records}
        asked = {question_id(example) for example in self.test}
        if not asked <= found.keys() or all(found[name]["error"] for name in asked):
            return None
        self._files[repr(row)], self.seen[repr(row)] = path, seen_by(program, self.test)
        return found

    def judged(self, rows: Mapping[str, Row], only_before: bool) -> dict[str, dict[str, Any]]:
        """By label and judge, the reports of the rows' judges; or only of those that were asked before."""
        folder, examples = self.out / "judges", self.test[:JUDGED_QUESTIONS]
        programs = {label: self.open(row) for label, row in rows.items() if row.judged}
        programs = {
            label: program
            for label, program in programs.items()
            if not only_before or judged_path(program, examples, folder).is_file()
        }
        return judge_all(programs, examples, folder, threads=self.threads)

    def _stands(self, setting: Setting) -> bool:
        return self.learning.path_of(setting).exists()


@dataclass
class RealComparison:
    """The comparison on several data sets, row by row.

    Args:
        workspaces: By data set.
        choice: What is compared.

    Attributes:
        left_out: By data set and row, why that row could not be run there; or that set's judges not be asked alone.
    """

    workspaces: Mapping[str, RealWorkspace]
    choice: RowChoice
    left_out: dict[str, str] = field(default_factory=dict, init=False)
    _sections: "dict[str, list[Section]]" = field(default_factory=dict, init=False)
    _answers: dict[str, dict[str, RecordsById]] = field(default_factory=dict, init=False)
    _reports: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict, init=False)

    def run(self, bars: "Progress") -> "Iterator[list[Section]]":
        """Answers row by row, and gives the tables of all that is answered after each row and each set's judges.

        Raises:
            RaisfError: No row can be run on any data set.
            LMError: The LM is down.
        """
        failed: list[RaisfError] = []
        rows = self._rows
        wanted = labels_in(self.choice.only, rows) or tuple(rows)
        found = {name: self._before(name, rows, wanted) for name in self.workspaces}
        for name, workspace in self.workspaces.items():
            for label in wanted:
                try:
                    found[name][label] = workspace.answer({label: rows[label]}, bars)[label]
                except RaisfError as error:
                    if workspace.lm_down:
                        raise
                    self.left_out[f"{name}: {label}"] = workspace.left_out.get(label, str(error))
                    failed.append(error)
                    continue
                self._tell(name, found[name], self._reports.get(name, {}))
                yield self.sections
            judged = self._judged(name, {label: rows[label] for label in wanted if label in found[name]})
            self._tell(name, found[name], {**self._reports.get(name, {}), **judged})
            if any(self._answers.values()):
                yield self.sections
        if not any(self._answers.values()):
            raise failed[0]

    def _before(self, name: str, rows: Mapping[str, Row], wanted: Sequence[str]) -> dict[str, RecordsById]:
        """A set's answers of earlier runs to rows that nobody asks for now; they are told before anything is asked."""
        workspace = self.workspaces[name]
        others = {label: row for label, row in rows.items() if label not in wanted}
        found = {label: answers for label, row in others.items() if (answers := workspace.answered(row))}
        if found:
            self._tell(name, found, self._judged(name, {label: rows[label] for label in found}, only_before=True))
        return found

    def _judged(self, name: str, rows: Mapping[str, Row], only_before: bool = False) -> dict[str, dict[str, Any]]:
        """A set's judges alone; none where one cannot be asked, which costs no answers and no other set."""
        try:
            return {} if self.choice.no_judges else self.workspaces[name].judged(rows, only_before)
        except RaisfError as error:
            self.left_out[f"{name}: the judges alone"] = str(error)
            return {}

    @property
    def files(self) -> dict[str, Path]:
        """By data set and row, the records of the answers so far, those of earlier runs that are shown too."""
        return {
            f"{name}: {row}": file
            for name, workspace in self.workspaces.items()
            for row, file in workspace.files(self._rows).items()
        }

    @property
    def outputs(self) -> dict[str, tuple[int, int]]:
        """By data set and row, or judge of one, how many LM outputs could not be read, and how many there were."""
        found = {name: output_counts(self._answers[name], self._reports.get(name, {})) for name in self._answers}
        return {f"{name}: {what}": told for name, of in found.items() for what, told in of.items()}

    @property
    def sections(self) -> "list[Section]":
        """All tables so far: one of all data sets, then each set's own."""
        from raisf.reports.real import overview

        shown = {label for answers in self._answers.values() for label in answers}
        rows = {label: row for label, row in self._rows.items() if label in shown}
        text = " ".join(
            [about(rows, alone=not self.choice.no_judges), *seen_lines(self._seen), *left_out_lines(self.left_out)]
        )
        measures = {name: workspace.measure for name, workspace in self.workspaces.items()}
        told = [name for name in self.workspaces if name in self._answers]
        return [
            overview({name: self._answers[name] for name in told}, text, measures),
            *(section for name in told for section in self._sections[name]),
        ]

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return self.choice.rows()

    @property
    def _seen(self) -> dict[str, list[str]]:
        """By data set and row that is shown, in which way it has learnt from the test questions."""
        return {
            f"{name}: {label}": self.workspaces[name].seen.get(repr(self._rows[label]), [])
            for name, answers in self._answers.items()
            for label in answers
        }

    def _tell(self, name: str, answers: dict[str, RecordsById], judged: dict[str, dict[str, Any]]) -> None:
        from raisf.reports.real import set_sections

        measure = self.workspaces[name].measure
        answers = {label: counted(answers[label], measure) for label in self._rows if label in answers}
        judged = {label: judged[label] for label in self._rows if label in judged}
        against = next((label for label in AGAINST if label in answers), None)
        self._reports[name] = judged
        self._answers[name], self._sections[name] = answers, set_sections(name, answers, judged, against, measure)


def open_workspaces(
    out: Path, data: Path | None, choice: RowChoice, *, lm: LMChoice, n: int, **options: Any
) -> dict[str, RealWorkspace]:
    """A workspace a data set, each in a folder of its own.

    Args:
        out: The folder of all.
        data: A data set's folder, or one of several such folders; None: those of `SETS`, from the hub.
        choice: What is compared.
        lm: The LM that answers.
        n: Test questions a set.
        **options: As `Workspace`'s.

    Raises:
        InputError: There is no data set, or no such LM.
    """
    choice.rows()
    lm.open()  # missing weights are told before anything is made
    folders = _from_hub(out, n) if data is None else _folders(data)
    given = choice.artifacts()
    return {
        name: RealWorkspace(out / name, folder, given=given, lm=lm, n=n, **options) for name, folder in folders.items()
    }


def _folders(data: Path) -> dict[str, Path]:
    if (data / "test.jsonl").is_file():
        return {data.resolve().name: data}
    found = sorted(file.parent for file in data.glob("*/test.jsonl"))
    if not found:
        raise InputError(
            f"{data} holds no data set: give a folder made by `raisf dataset NAME --out {data / 'NAME'}`, or that of "
            f"several; NAME is one of {', '.join(SETS)}"
        )
    order = {name: number for number, name in enumerate(SETS)}
    return {folder.name: folder for folder in sorted(found, key=lambda one: order.get(one.name, len(order)))}


def _from_hub(out: Path, n: int) -> dict[str, Path]:
    from raisf.data.datasets.files import write_dataset

    folders = {name: out / name / "made" / f"data-{n}" for name in SETS}
    for name, folder in folders.items():
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            write_dataset(name, folder, n=n)
    return folders
