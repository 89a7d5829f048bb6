"""What experiments share: one data set with its indexes, the programs on it, and answers that are given once."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.experiments.comparing import answer_all, judge_all, records_file
from raisf.experiments.indexes import Indexes
from raisf.experiments.learning import Learning
from raisf.experiments.opening import POCKET, LMChoice, open_fitting, open_program, without_cache
from raisf.experiments.settings import SMALLER, Setting
from raisf.reports.report import output_counts
from raisf.utils.errors import InputError, LMError, RaisfError

if TYPE_CHECKING:
    from rich.progress import Progress


class Workspace:
    """A data set, an LM, and all that was made of them, in one folder.

    Args:
        out: The folder. What it holds from earlier runs is not made again.
        data: A folder with train.jsonl, dev.jsonl, test.jsonl and corpus.jsonl, as `raisf world` makes it. A program
            that needs a file which is missing is left out.
        lm: The LM that answers; without a spec it is decided by the index, or by the test questions.
        engine: Of the index that is made of the corpus.
        index: An index to search, as it is, instead of making one of the corpus; what asks for another engine searches
            one that is made of its passages.
        checkpoint: The encoder of the indexes that are made; None: the default one.
        n: How many test questions are asked.
        rows: Examples a judge for "weights".
        base: Whose weights the judges are; None: the answering LM's.
        sizes: By way of compiling, how many rows a judge it is tried at.
        bases: Other bases, for RA-ISF's Table 3; None: the smaller pocket models where the pocket Llama answers.
        given: Artifacts by what would be compiled, "weights" or "prompts"; None: all is compiled here.
        teacher: Labels what gold does not; None: nobody.
        seed: Of all training.
        threads: Questions at a time.

    Attributes:
        name: The data set's; None for the closed world and for files of one's own.
        left_out: By label, why a setting could not be run.
        outputs: By label, and by judge asked alone, how many LM outputs could not be read, and how many there were, of
            all that was asked for since somebody emptied it.
        seen: By setting, as `repr` writes it, in which way it has learnt from the test questions.
        lm_down: Whether the LM answered none of two settings, one after the other.
        unchanged: The settings, as `repr` writes them, whose compiling found nothing better on the dev split than the
            program as it was.
        taught: By artifact, what its report says of the teacher's labels.

    Raises:
        InputError: The test questions are missing or broken, or the folder holds what was made of other data.
    """

    def __init__(
        self,
        out: Path,
        data: Path,
        *,
        lm: LMChoice | None = None,
        engine: str = "colbert",
        index: str | None = None,
        checkpoint: str | None = None,
        n: int | None = None,
        rows: int | None = None,
        base: str | None = None,
        bases: Sequence[str] | None = None,
        sizes: Mapping[str, Sequence[int]] | None = None,
        given: Mapping[str, Path] | None = None,
        teacher: Any = None,
        seed: int = 0,
        threads: int = 8,
    ) -> None:
        from raisf.data.datasets.files import name_of
        from raisf.data.questions import load_questions

        self.out, self.data = out, data
        self.base, self.teacher = base, teacher
        self.rows, self.seed, self.threads, self.sizes = rows, seed, threads, sizes or {}
        self.test = load_questions(data / "test.jsonl")[:n]
        self.lm = (lm or LMChoice()).decided(index, self.test)
        default = SMALLER if self.lm.spec == POCKET else ()
        self.bases = tuple(default if bases is None else bases)
        self.name: str | None = name_of(data)
        self.indexes = Indexes(out / "made", data / "corpus.jsonl", engine, index, checkpoint, self._prompt_questions)
        self.learning: Learning = Learning(self, given or {})
        self.left_out: dict[str, str] = {}
        self.outputs: dict[str, tuple[int, int]] = {}
        self.unchanged: set[str] = set()
        self.taught: dict[str, Any] = {}
        self.seen: dict[str, list[str]] = {}
        self.lm_down = False
        self._silent = 0  # settings in a row that the LM did not answer
        self._answered: dict[str, RecordsById] = {}
        self._files: dict[str, Path] = {}
        self._unanswered: dict[str, RaisfError] = {}
        self._check_folder()

    @cached_property
    def train(self) -> list[Any]:
        """The questions to learn from."""
        return self._learnt_from("train.jsonl")

    @cached_property
    def dev(self) -> list[Any]:
        """The questions to select on."""
        return self._learnt_from("dev.jsonl")

    def _learnt_from(self, name: str) -> list[Any]:
        from raisf.data.questions import load_questions

        file = self.data / name
        if not file.exists():
            made = f"raisf dataset {self.name or 'NAME'} --from FILE --split train --from FILE --split test"
            raise InputError(f"there is no {file} to learn from: give a training file beside the test file ({made})")
        return load_questions(file)

    @property
    def measure(self) -> str:
        """What tables count: StrategyQA's answers are scored by accuracy, all others by exact match."""
        return "accuracy" if self.name == "strategyqa" else "exact match"

    def index(self, engine: str | None = None) -> Path | str:
        """The corpus's index, made if there is none yet."""
        return self.indexes.path(engine)

    def open(self, setting: Setting) -> Any:
        """The program of a setting, compiled or fitted if it has to be."""
        index = self._index_of(setting)
        artifact = self.learning.artifact(setting)
        if artifact is None:
            options = self.faithful(setting.system) | dict(setting.options)
            program = open_fitting(setting.program, index=index, lm=self.lm, **options)
        else:
            from raisf.optimize.optimizers.selection import GIVEN, ZERO_SHOT

            lm = self.lm if self.remote else None  # where an endpoint is, no artifact says
            program = open_program(str(artifact), lm=lm, index=index, warns=False, **setting.options)
            self.learning.give_form(program, setting)
            report = getattr(program, "compile_report", None) or {}
            taught = report.get("judge_rows")
            if report.get("chosen") in (GIVEN, ZERO_SHOT):
                self.unchanged.add(repr(setting))
            if taught and self.teacher is not None:
                self.taught[artifact.name] = taught
        if setting.few_shot and not any(predictor.demos for _, predictor in program.named_predictors()):
            raise InputError(
                "no demonstrations: on none of the training questions that were tried was the program right"
            )
        if setting.sampling:
            for _, predictor in program.named_predictors():
                predictor.lm = predictor.lm.copy(**self._drawn(setting.sampling))
        if index is not None:
            self.indexes.check_unchanged()  # what it has learnt first may have taken hours
        return program

    def answer(self, settings: Mapping[str, Setting], bars: "Progress") -> dict[str, RecordsById]:
        """By label, the records of every setting that can be run; one that was answered before is not asked again.

        Why others cannot is in `left_out`.

        Raises:
            InputError: One learns from questions that are test questions, too.
            RaisfError: None can be run.
            LMError: The LM failed on two settings one after the other, and not as their prompts were too long: it is
                down.
        """
        from raisf.evaluation.seen import seen_by

        self._check_splits(settings)
        for label, setting in settings.items():
            if (key := repr(setting)) in self._answered or key in self._unanswered:
                continue
            try:
                program = {label: without_cache(self.open(setting))}
            except RaisfError as error:
                self._unanswered[key] = error
                continue
            folder = self.out / "records"
            self.seen[key] = seen_by(program[label], self.test)
            try:
                made = answer_all(program, self.test, folder, threads=self.threads, progress=bars)
                self._answered[key], self._silent = made[label], 0
                self._files[key] = records_file(folder, program[label], self.test)
            except RaisfError as error:
                unanswered = isinstance(error, LMError) and not error.too_long
                self._silent = self._silent + 1 if unanswered else 0
                self.lm_down = self._silent == 2
                if self.lm_down:
                    raise
                self._unanswered[key] = error
        found = self._sorted_out(settings, self._answered, self._unanswered)
        self.outputs |= output_counts(found, {})
        return found

    def files(self, settings: Mapping[str, Setting]) -> dict[str, Path]:
        """By label, the records of the settings that were answered."""
        return _by_label(settings, self._files)

    def searched(self, settings: Mapping[str, Setting]) -> str | None:
        """The indexes that the settings which were run have searched, as a page may name them."""
        run = (one for label, one in settings.items() if label not in self.left_out and self.searches(one))
        return self.indexes.named("dense" if one.tuned else one.engine for one in run)

    def judge(self, settings: Mapping[str, Setting]) -> dict[str, dict[str, Any]]:
        """By label and judge, each judge's report alone against gold; what cannot be run is left out as in `answer`."""
        self._check_splits(settings)
        judged: dict[str, dict[str, Any]] = {}
        failed: dict[str, RaisfError] = {}
        for label, setting in settings.items():
            try:
                made = judge_all({label: self.open(setting)}, self.test, self.out / "judges", threads=self.threads)
                judged[repr(setting)] = made.get(label, {})
            except RaisfError as error:
                failed[repr(setting)] = error
        found = {label: reports for label, reports in self._sorted_out(settings, judged, failed).items() if reports}
        self.outputs |= output_counts({}, found)
        return found

    def _sorted_out(
        self, settings: Mapping[str, Setting], made: Mapping[str, Any], failed: Mapping[str, RaisfError]
    ) -> dict[str, Any]:
        keys = {label: repr(setting) for label, setting in settings.items()}
        kept = f"; {self.out / 'records'}"  # what the answers so far are good for, which is nothing for a table
        told = {key: error.text.partition(kept)[0] for key, error in failed.items()}
        self.left_out = {label: told[key] for label, key in keys.items() if key in told and key not in made}
        if not (found := _by_label(settings, made)):
            label, key = next(iter(keys.items()))
            failure = type(failed[key])(f"nothing can be run: {label}: {told[key]}")
            failure.exit_code = failed[key].exit_code
            raise failure from failed[key]
        return found

    def _index_of(self, setting: Setting) -> Path | str | None:
        """What a setting searches; None where it does not."""
        from raisf.evaluation.identity import digest
        from raisf.optimize.optimizers.lsr import check_likelihoods
        from raisf.retrieval.passage import found_by

        if not self.searches(setting):
            return None
        if not setting.tuned:
            return self.index(setting.engine)
        options, train, dev = self.faithful(setting.system), self.train, self.dev
        # Before a corpus is encoded, which may take hours.
        check_likelihoods(open_program(setting.program, lm=self.lm, searches=False, **options))
        dense = self.index("dense")
        program = open_fitting(setting.program, index=dense, lm=self.lm, **options)
        made_of = found_by(program.retriever) if self.indexes.given else Path(dense).name
        name = digest([self.lm_identity, self.seed, sorted(options.items()), made_of])[:8]
        return self.indexes.tuned(program, train, dev, name, self.seed)

    def searches(self, setting: Setting) -> bool:
        """Whether its system searches an index."""
        from raisf.programs.registry import PROGRAMS, searches

        return setting.system not in PROGRAMS or searches(PROGRAMS[setting.system])

    def faithful(self, system: str) -> dict[str, Any]:
        """The options by which a system is as in its paper, on this data set and with this LM."""
        from raisf.data.datasets.catalog import BENCHMARKS
        from raisf.programs.registry import PROGRAMS, defaults

        options: dict[str, Any] = {}
        known = defaults(PROGRAMS[system]) if system in PROGRAMS else {}
        if "evidence" in known and self._instructed:
            options["evidence"] = False
        if "yes_no" in known and self.name in BENCHMARKS:
            options["yes_no"] = self.name == "strategyqa"
        return options

    def _drawn(self, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """How an LM draws. With a seed many servers draw alike for all questions: rollouts tell their samples apart."""
        return {"rollout_id" if self.remote and name == "seed" else name: value for name, value in sampling.items()}

    @cached_property
    def _instructed(self) -> bool:
        """Whether the LM that answers reads instructions; the pocket models read only the forms they were taught."""
        from raisf.programs.steps import reads_instructions

        return reads_instructions(self.lm.open())

    @cached_property
    def remote(self) -> bool:
        """Whether the LM that answers is at an endpoint."""
        from raisf.lm.local.model import LocalLM

        return not isinstance(self.lm.open(), LocalLM)

    @cached_property
    def lm_identity(self) -> list[Any]:
        """What tells the LM and its options from others."""
        return [self.lm.spec, sorted(self.lm.options.items(), key=str)]

    def _prompt_questions(self) -> list[str]:
        """What demonstrations and training rows are made of."""
        return [example.question for _, examples in self._to_learn_from() for example in examples]

    def _to_learn_from(self) -> Iterator[tuple[Path, list[Any]]]:
        """The files of training and dev questions, as far as there are any, and what is in each."""
        for split in ("train", "dev"):
            if (file := self.data / f"{split}.jsonl").is_file():
                yield file, getattr(self, split)

    def _check_splits(self, settings: Mapping[str, Setting]) -> None:
        """What has learnt from the test questions measures nothing."""
        learn = any(one.learns and not self.learning.takes_given(one) for one in settings.values())
        if learn and self._shared:
            raise InputError(self._shared)

    @cached_property
    def _shared(self) -> str:
        """What to say of questions to learn from that are test questions, those too that are not asked; else empty."""
        from raisf.data.questions import load_questions
        from raisf.optimize.overlap import overlap

        told = []
        test = load_questions(self.data / "test.jsonl")
        for file, examples in self._to_learn_from():
            if shared := overlap(examples, test):
                told.append(f"{len(shared)} of the {len(examples)} questions of {file}, such as {shared[0][0]!r}")
        if not told:
            return ""
        return (
            f"{' and '.join(told)}, are in {self.data / 'test.jsonl'} too, by their id or in nearly the same words: "
            "what learns from them would be tested on them; take them out of one of the two"
        )

    def _check_folder(self) -> None:
        """What the folder has learnt, it has learnt from this data."""
        from raisf.experiments.kept import read_stamp
        from raisf.utils.files import sha256_file, write_json

        files = [self.data / name for name in ("train.jsonl", "dev.jsonl", "corpus.jsonl")]
        found = {file.name: sha256_file(file) for file in files if file.is_file()}
        stamp = self.out / "made" / "data.json"
        # A command that was refused later has stamped the folder, too, and learnt nothing.
        learnt = stamp.is_file() and any(one != stamp for one in stamp.parent.iterdir())
        if learnt and read_stamp(stamp, f"if all in {self.out} was made of {self.data}") != found:
            raise InputError(f"{self.out} holds experiments on other data than {self.data}: give another --out")
        stamp.parent.mkdir(parents=True, exist_ok=True)
        write_json(stamp, found)


def _by_label(settings: Mapping[str, Setting], made: Mapping[str, Any]) -> dict[str, Any]:
    """What was made of settings, by their labels, of that of each as `repr` writes it."""
    return {label: made[repr(one)] for label, one in settings.items() if repr(one) in made}
