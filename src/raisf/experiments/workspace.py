"""What experiments share: one data set with its indexes, the programs on it, and answers that are given once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.experiments.comparing import RecordsById, answer_all, judge_all
from raisf.experiments.opening import LMChoice, open_fitting, open_program, without_cache
from raisf.utils.errors import InputError
from raisf.utils.progress import ProgressBars

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# RA-ISF compiled: how, and with which strategy; and the program that learns from the training questions besides.
COMPILED: dict[str, tuple[str, str | None]] = {
    "prompts": ("prompts", None),
    "prompts-random": ("prompts", "random"),
    "weights": ("weights", None),
    "weights-all": ("weights", None),  # the answerers' too, where "weights" are the judges'
}
LEARNT = (*COMPILED, "skr-knn")


@dataclass(frozen=True)
class Setting:
    """A program as an experiment runs it.

    Attributes:
        program: A name of the registry, or one of `COMPILED`.
        options: Its constructor's.
        engine: The index's: "colbert" or "bm25"; the workspace's if not given.
        base: Whose weights the judges are, for "weights": the answering LM's if not given.
        training: What else `compile` is told, for "weights".
        sampling: Options of the LM that answers; greedy if empty.
    """

    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str | None = None
    base: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)


class Workspace:
    """A data set, an LM, and all that was made of them, in one folder.

    Args:
        out: The folder. What it holds from earlier runs is not made again.
        data: A folder with train.jsonl, dev.jsonl, test.jsonl and corpus.jsonl, as `raisf world` makes it.
        lm: The LM that answers.
        engine: Of the index that is made of the corpus.
        index: An index of the corpus to search instead of making one, for what asks for no engine of its own.
        n: How many test questions are asked.
        rows: Examples a judge for "weights".
        seed: Of all training.
        threads: Questions at a time.

    Raises:
        InputError: The data's files are missing or broken, or the folder holds what was made of other data.
    """

    def __init__(
        self,
        out: Path,
        data: Path,
        *,
        lm: LMChoice | None = None,
        engine: str = "colbert",
        index: str | None = None,
        n: int | None = None,
        rows: int | None = None,
        seed: int = 0,
        threads: int = 8,
    ) -> None:
        from raisf.data.questions import load_questions
        from raisf.utils.files import read_json

        self.out, self.data, self.lm = out, data, lm or LMChoice()
        self.engine, self._given_index = engine, index
        self.rows, self.seed, self.threads = rows, seed, threads
        self.test = load_questions(data / "test.jsonl")[:n]
        about = data / "dataset.json"
        self.name = read_json(about).get("dataset") if about.is_file() else None
        self._answered: dict[str, RecordsById] = {}
        self._check_folder()

    @cached_property
    def train(self) -> list[Any]:
        """The questions to learn from."""
        from raisf.data.questions import load_questions

        return load_questions(self.data / "train.jsonl")

    @cached_property
    def dev(self) -> list[Any]:
        """The questions to select on."""
        from raisf.data.questions import load_questions

        return load_questions(self.data / "dev.jsonl")

    def index(self, engine: str | None = None) -> Path | str:
        """The corpus's index, made if there is none yet."""
        from raisf.retrieval.index import build_index

        if engine is None and self._given_index:
            return self._given_index
        name: Any = engine or self.engine
        path = self.out / "made" / f"index-{name}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # The closed world's published figures are the untrained checkpoint's.
            checkpoint = "minilm" if (self.data / "world.json").is_file() else None
            build_index(self.data / "corpus.jsonl", path, engine=name, checkpoint=checkpoint)
        return path

    def open(self, setting: Setting) -> Any:
        """The program of a setting, compiled or fitted if it has to be."""
        index, options = self.index(setting.engine), dict(setting.options)
        artifact = self._artifact(setting)
        if artifact is None:
            program = open_fitting(setting.program, index=index, lm=self.lm, **options)
        else:
            program = open_program(str(artifact), index=index, **options)
        if setting.sampling:
            for _, predictor in program.named_predictors():
                predictor.lm = predictor.lm.copy(**setting.sampling)
        return program

    def answer(self, settings: Mapping[str, Setting], bars: "Progress") -> dict[str, RecordsById]:
        """By label, the records of every setting; a setting that was answered before is not asked again."""
        for label, setting in settings.items():
            if repr(setting) not in self._answered:
                program = {label: without_cache(self.open(setting))}
                folder = self.out / "records"
                self._answered |= {
                    repr(setting): records
                    for records in answer_all(program, self.test, folder, threads=self.threads, progress=bars).values()
                }
        return {label: self._answered[repr(setting)] for label, setting in settings.items()}

    def judge(self, settings: Mapping[str, Setting]) -> dict[str, dict[str, Any]]:
        """By label and judge, each judge's report alone against gold."""
        programs = {label: self.open(setting) for label, setting in settings.items()}
        return judge_all(programs, self.test, self.out / "judges", threads=self.threads)

    @cached_property
    def _searched(self) -> str:
        """Which index is learnt over."""
        from raisf.retrieval.index import open_index
        from raisf.retrieval.passage import found_by

        return found_by(open_index(self.index()))

    def _artifact(self, setting: Setting) -> Path | None:
        """The folder of what a setting has learnt from the training questions, if it learns; made if there is none."""
        if setting.program not in LEARNT:
            return None
        path = self._learnt_path(setting)
        if not path.exists():
            system = "ra-isf" if setting.program in COMPILED else setting.program
            program = open_fitting(system, index=self.index(), lm=self.lm)
            self._learnt(program, setting).save(path)
        return path

    def _learnt_path(self, setting: Setting) -> Path:
        from raisf.evaluation.identity import digest

        asked = [setting.program, setting.base, sorted(setting.training.items()), self.rows, self.seed, self._searched]
        name = f"{setting.program}-{digest([*asked, self.lm.spec, sorted(self.lm.options.items())])[:8]}"
        return self.out / "made" / name

    def _learnt(self, program: Any, setting: Setting) -> Any:
        from raisf.optimize.compile import optimizer_named

        work = self.out / "made" / "work"
        common: dict[str, Any] = {"threads": self.threads, "work": work}
        if setting.program == "skr-knn":
            return optimizer_named("skr", **common).compile(program, trainset=self.train)
        options: dict[str, Any] = {"seed": self.seed}
        how, strategy = COMPILED[setting.program]
        if how == "weights":
            from raisf.lm.finetune.training import Training

            options |= {"base": setting.base, "training": Training(seed=self.seed, **setting.training)}
            options |= {"rows": self.rows} if self.rows else {}
        if setting.program == "weights-all":
            options["predictors"] = "all"
        optimizer = optimizer_named(how, strategy, **common, **options)
        return optimizer.compile(program, trainset=self.train, valset=self.dev)

    def _check_folder(self) -> None:
        """What the folder has learnt, it has learnt from this data."""
        from raisf.utils.files import read_json, sha256_file, write_json

        files = [self.data / name for name in ("train.jsonl", "dev.jsonl", "corpus.jsonl")]
        found = {file.name: sha256_file(file) for file in files if file.is_file()}
        stamp = self.out / "made" / "data.json"
        if stamp.is_file() and read_json(stamp) != found:
            raise InputError(f"{self.out} holds experiments on other data than {self.data}: give another --out")
        stamp.parent.mkdir(parents=True, exist_ok=True)
        write_json(stamp, found)


class WorkspaceBars(ProgressBars):
    """Bars for `Workspace.answer`, the first of which counts the questions of all settings: it tells how long is left.

    Args:
        settings: Those of all experiments that will be run.
        n: Questions a setting.
    """

    def __init__(self, settings: Iterable[Mapping[str, Setting]], n: int):
        super().__init__(speed_seconds=600)
        different = {repr(setting) for one in settings for setting in one.values()}
        self._all = super().add_task("all questions", total=n * len(different))

    def add_task(self, description: str, *args: Any, completed: int = 0, **kwargs: Any) -> "TaskID":
        """As rich's; what is completed counts among all questions."""
        self.advance(self._all, completed)
        return super().add_task(description, *args, completed=completed, **kwargs)

    def update(self, task_id: "TaskID", *, advance: float | None = None, **kwargs: Any) -> None:
        """As rich's; what advances counts among all questions."""
        super().update(task_id, advance=advance, **kwargs)
        if advance and task_id != self._all:
            self.advance(self._all, advance)
