"""What settings of an experiment have learnt from the training questions, each kept as an artifact."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.experiments.opening import open_fitting
from raisf.experiments.settings import COMPILED, JUDGE_OPTIONS, LEARNT, PREDICTORS, Setting
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace


def lend(program: Any, lender: Any, names: Collection[str]) -> None:
    """Give a program some predictors of another, with the form in which its reader is asked, and their thresholds.

    A judge of another kind has probabilities of another scale, and keeps its own.
    """
    from raisf.utils.learnt import learnt_by

    for name, predictor in lender.named_predictors():
        if name in names and hasattr(program, name):
            setattr(program, name, predictor)
    kinds = [one.options() for one in (program, lender)]
    alike = [judge for judge in PREDICTORS if kinds[0].get(judge) == kinds[1].get(judge)]
    decides = {f"{judge}_threshold": PREDICTORS[judge] for judge in alike}
    # A reader that has learnt to answer at once has no sentence to quote first, and the other way round.
    for option, name in {**decides, "evidence": "answer_from"}.items():
        if name in names and hasattr(lender, option) and hasattr(program, option):
            setattr(program, option, getattr(lender, option))
    program.learnt_from = sorted(learnt_by(program) | learnt_by(lender))


def check_bases(told: Mapping[str, Sequence[str | None]]) -> None:
    """Refuses a base that cannot be trained here at once; else that would be told only when its rows' turn comes.

    Args:
        told: By option, the LMs that it names; None: not given.

    Raises:
        InputError: One cannot be opened, or is at an endpoint.
    """
    from raisf.lm.connect import connect
    from raisf.lm.local.model import LocalLM

    for one, spec in ((one, spec) for one, named in told.items() for spec in named if spec is not None):
        try:
            local = isinstance(connect(spec), LocalLM)
        except InputError as error:
            raise InputError(f"{one}: {error}") from error
        if not local:
            raise InputError(
                f"{one}: {spec} is at an endpoint, and weights are trained in this process: give a local LM such as "
                "local/meta-llama/Llama-2-7b-hf"
            )


class Learning:
    """Compiles, fits and trains what settings ask for, once.

    Args:
        workspace: The data, the LM, and the folder.
        given: Artifacts by what would be compiled, each taken as it is.

    Attributes:
        formed: By what would be compiled, options that an artifact which was given has here in place of its own.
    """

    def __init__(self, workspace: "Workspace", given: Mapping[str, Path]) -> None:
        self.workspace, self.given = workspace, given
        self.formed: dict[str, Any] = {}

    def artifact(self, setting: Setting) -> Path | None:
        """The folder of what a setting has learnt, if it learns: the one that was given, else made if there is none."""
        if self.takes_given(setting):
            return self.given[setting.program]
        if setting.program not in LEARNT and not setting.few_shot and not setting.then:
            return None
        from raisf.optimize.artifact import save
        from raisf.utils.journal import ending_together

        path = self.path_of(setting)
        if not path.exists():
            with ending_together():  # a step that is stopped leaves what those before it have found
                save(self._further(self._begin(setting), setting), path)
        return path

    def takes_given(self, setting: Setting) -> bool:
        """Whether a setting is an artifact that was given; one that says how it is trained, or its judges, is not."""
        told_how = setting.few_shot or setting.then or setting.rows or setting.base or setting.training
        return setting.program in self.given and not told_how and self._has_judges_of(setting)

    def _has_judges_of(self, setting: Setting) -> bool:
        """Whether the artifact that was given for a setting's program has the judges that the setting names."""
        from raisf.optimize.manifest import read
        from raisf.programs.registry import PROGRAMS, defaults

        named = setting.options.keys() & JUDGE_OPTIONS
        if not named:
            return True
        has = defaults(PROGRAMS["ra-isf"]) | read(self.given[setting.program]).options
        return all(has[option] == setting.options[option] for option in named)

    def give_form(self, program: Any, setting: Setting) -> None:
        """Has an artifact that was given ask its reader as all rows do theirs, where that has learnt nothing."""
        from raisf.optimize.manifest import read

        form = self.workspace.faithful(setting.system)
        reader = getattr(program, "answer_from", None)
        if form and reader is not None and self.takes_given(setting):
            learnt = bool(reader.demos) or "answer_from" in read(self.given[setting.program]).weights
            if not learnt and not form.keys() & setting.options:
                lm = reader.lm  # the predictor stays, and is made anew
                program.become(form)
                program.answer_from.lm = lm
                self.formed[setting.program] = form

    def check_given(self, settings: Collection[Setting]) -> None:
        """Refuses an artifact that none of the settings is.

        Raises:
            InputError: There is one.
        """
        for program in self.given:
            if not any(one.program == program and self.takes_given(one) for one in settings):
                raise InputError(
                    f"--program {program}=...: none of the rows that are asked for is RA-ISF compiled to {program}; "
                    f"leave it out, or ask for such rows (--variant {program}, --only)"
                )

    def _begin(self, setting: Setting) -> Any:
        """The program of a setting, as it is before the steps of `Setting.then`."""
        workspace = self.workspace
        if setting.few_shot and setting.program in LEARNT:  # what is learnt already is not learnt again
            return self._learnt(workspace.open(replace(setting, few_shot=False, then=(), sampling={})), setting)
        options = self._compiled_with(setting)
        index = workspace.index() if workspace.searches(setting) else None
        program = open_fitting(setting.system, index=index, lm=workspace.lm, **options)
        return self._learnt(program, setting) if setting.program in LEARNT or setting.few_shot else program

    def path_of(self, setting: Setting) -> Path:
        """Where the artifact of a setting is kept, by all that decides on it."""
        from raisf.evaluation.identity import digest

        workspace = self.workspace
        prompts = COMPILED.get(setting.program, ("prompts", None))[0] == "prompts"
        probed = any(how == "probe" for how, _ in setting.then)
        base = setting.base or workspace.base if probed or not prompts else None
        asked: list[Any] = [setting.program, base, sorted(setting.training.items()), workspace.rows, workspace.seed]
        asked += [self._searched if workspace.searches(setting) else None, *workspace.lm_identity]
        judges = setting.program in COMPILED or self._shows_judges(setting)
        teacher = workspace.teacher.model if workspace.teacher and judges else None
        if any(more := [setting.few_shot, sorted(self._compiled_with(setting).items()), teacher]):
            asked += more
        asked += self._learns_from(setting)
        return workspace.out / "made" / f"{setting.program}{'-few-shot' * setting.few_shot}-{digest(asked)[:8]}"

    def _learns_from(self, setting: Setting) -> list[Any]:
        """What else decides on what a setting learns."""
        rows = [["rows", setting.rows]] if setting.rows else []
        shown = ["shown whatever they score"] if setting.few_shot else []
        sampled = setting.program == "skr-knn" and len(self.skr_questions) < len(self.workspace.train)
        asked = [["questions", len(self.skr_questions)]] if sampled else []
        # What learns from gold alone, or counts so anyway, is the same by either metric.
        by_gold = setting.program in ("weights", "probe", "skr-knn") and not setting.few_shot and not setting.then
        asked += ["accuracy"] if self._metric and not by_gold else []
        # Steps were compiled with seed 0, whatever the experiment's was.
        asked += ["steps of this seed"] if setting.then and self.workspace.seed else []
        taught = any(self._asks_teacher(how, options) for how, options in setting.then)
        asked += [["teacher of steps", self.workspace.teacher.model]] if taught else []
        return [*([how, sorted(options.items())] for how, options in setting.then), *rows, *shown, *asked]

    @property
    def _metric(self) -> dict[str, Any]:
        """What makes an answer right where that is not exact match: learning counts what the tables count."""
        if self.workspace.measure != "accuracy":
            return {}
        from raisf.optimize.optimizers.selection import answer_accuracy

        return {"metric": answer_accuracy}

    def _compiled_with(self, setting: Setting) -> dict[str, Any]:
        """The options that a program is compiled with; those that only the running program has are not among them.

        Demonstrations are steps of the program's runs, which all of its options decide on.
        """
        fields = {name: value for name, value in setting.options.items() if setting.few_shot or name in JUDGE_OPTIONS}
        return self.workspace.faithful(setting.system) | fields

    def _learnt(self, program: Any, setting: Setting) -> Any:
        from raisf.experiments.few_rows import pool, questions_for
        from raisf.optimize.compile import optimizer_named
        from raisf.optimize.teaching import teach_for

        workspace = self.workspace
        work = tried = workspace.out / "made" / "work"
        if setting.rows:  # in a folder of its own, since what another has trained would make its seconds fewer
            work = work / self.path_of(setting).name
        common: dict[str, Any] = {"threads": workspace.threads, "work": work}
        if setting.few_shot:
            optimizer: Any = optimizer_named("prompts", "bootstrap", **common, **self._metric, seed=workspace.seed)
            if workspace.teacher is not None and self._shows_judges(setting):
                optimizer.judge_rows = teach_for(optimizer, program, workspace.teacher, workspace.train, [])
            # Not validated: zero-shot would be taken where it ties.
            return optimizer.compile(program, trainset=workspace.train)
        if setting.program == "skr-knn":
            optimizer = optimizer_named("skr", **common)
            return optimizer.compile(program, trainset=self.skr_questions)
        options: dict[str, Any] = {"seed": workspace.seed, **self._metric}
        how, strategy = COMPILED[setting.program]
        rows = setting.rows or workspace.rows
        if how != "prompts":
            options |= {"base": setting.base or workspace.base} | ({"rows": rows} if rows else {})
        if how in ("weights", "outcome", "both"):
            from raisf.lm.finetune.training import Training

            options["training"] = Training(seed=workspace.seed, **setting.training)
        if setting.program == "weights-all":
            options["predictors"] = "all"
        trainset = questions_for(setting.rows, workspace.train, workspace.seed) if setting.rows else workspace.train
        if setting.rows and how == "outcome":
            options["tries"] = tried  # those of the smaller sizes
        optimizer = optimizer_named(how, strategy, **common, **options)
        if setting.rows and how == "prompts":
            optimizer.judge_rows = pool(program, trainset, setting.rows, workspace.seed, workspace.threads)
        elif workspace.teacher is not None and hasattr(optimizer, "judge_rows"):
            optimizer.judge_rows = teach_for(optimizer, program, workspace.teacher, trainset, workspace.dev)
        return optimizer.compile(program, trainset=trainset, valset=workspace.dev)

    def _shows_judges(self, setting: Setting) -> bool:
        """Whether it is RA-ISF with demonstrations, of whose judges a teacher's labels can be some."""
        return setting.few_shot and setting.system == "ra-isf"

    def _asks_teacher(self, how: str, options: Mapping[str, Any]) -> bool:
        """Whether a step of `Setting.then` learns from a teacher's labels; of what is known a teacher gives none."""
        taught = how in ("prompts", "weights", "probe") and options.get("predictors") != ("know",)
        return self.workspace.teacher is not None and taught

    def _further(self, program: Any, setting: Setting) -> Any:
        """The program after the steps of `Setting.then`."""
        from raisf.optimize.compile import optimizer_named
        from raisf.optimize.teaching import teach_for

        workspace = self.workspace
        for how, options in setting.then:
            more = dict(self._metric)
            if how != "thresholds":
                more |= {"work": workspace.out / "made" / "work", "seed": workspace.seed}
            more |= {"rows": workspace.rows} if how in ("probe", "outcome") and workspace.rows else {}
            if how == "probe":  # it reads the base, whatever was trained beside it
                more["base"] = setting.base or workspace.base or workspace.lm.spec
            optimizer: Any = optimizer_named(how, None, threads=workspace.threads, **more, **options)
            if self._asks_teacher(how, options):
                optimizer.judge_rows = teach_for(optimizer, program, workspace.teacher, workspace.train, workspace.dev)
            program = optimizer.compile(program, trainset=workspace.train, valset=workspace.dev)
        return program

    @cached_property
    def skr_questions(self) -> Sequence[Any]:
        """The training questions that SKR asks: no more than the judges' rows come from."""
        from raisf.experiments.few_rows import questions_of_skr

        workspace = self.workspace
        return questions_of_skr(workspace.rows, workspace.train, workspace.seed)

    @cached_property
    def _searched(self) -> str:
        """Which index is learnt over."""
        from raisf.retrieval.index import open_index
        from raisf.retrieval.passage import found_by

        return found_by(open_index(self.workspace.index()))
