"""What decides on what rows have learnt, and on programs that are compiled further: bases, rows, a teacher's labels."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import raisf
from raisf.experiments.every_judge import KNOW_PROBE, RELEVANCE_PROBE
from raisf.experiments.few_rows import questions_for
from raisf.experiments.opening import LMChoice
from raisf.experiments.real import RealWorkspace
from raisf.experiments.real_rows import ROWS
from raisf.experiments.settings import THRESHOLDS, Setting
from raisf.experiments.workspace import Workspace
from raisf.utils.files import read_jsonl, write_jsonl

BORN = [{"question": "Where was Ada born?", "answer": "Ulm"}]


@pytest.fixture(scope="module")
def teacher() -> Any:
    return LMChoice("pocket").open()


def test_of_other_rows_seeds_bases_options_or_labels_another_program_is_learnt(
    data: Callable[..., Path], tmp_path: Path, teacher: Any
) -> None:
    """What is taken for another row's is shown below its label."""
    folder, weights = data("nq", train=BORN, test=BORN), Setting("weights")

    def path(setting: Setting, **options: Any) -> Path:
        told = {"lm": LMChoice("pocket"), "engine": "bm25"} | options
        return Workspace(tmp_path / "out", folder, **told).learning.path_of(setting)

    options = ({"seed": 1}, {"rows": 8}, {"base": "pocket-tiny"}, {"teacher": teacher})
    lms = ({"lm": LMChoice("pocket", max_tokens=9)}, {"lm": LMChoice("pocket-tiny")})
    paths = [path(weights, **one) for one in ({}, *options, *lms)]
    changes: tuple[dict[str, Any], ...] = (
        {"rows": 9},
        {"base": "pocket-t5"},
        {"training": {"method": "full"}},
        {"options": {"relevance": "listwise"}},
        {"then": (THRESHOLDS,)},
        {"then": (("thresholds", {"aim": "cost"}),)},
        {"few_shot": True},
    )
    paths += [path(replace(weights, **one)) for one in changes]
    assert len(set(paths)) == len(paths) == 14
    shown = Setting("rag", few_shot=True)
    assert path(shown) != path(replace(shown, options={"k": 3})), "its demonstrations are steps of its runs"
    assert path(Setting("weights", {"k": 3})) == paths[0], "the running program's alone"
    assert path(Setting("prompts"), base="pocket-tiny") == path(Setting("prompts")), "no base has a part in it"


def test_a_row_learns_from_its_rows_and_base_with_the_experiments_seed_and_selects_on_the_dev_split(
    data: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def named(how: str, strategy: str | None = None, **options: Any) -> Any:
        def learn(program: Any, **sets: Any) -> Any:
            asked.append({"how": how, **options, **sets})
            return program

        return SimpleNamespace(compile=learn)

    monkeypatch.setattr("raisf.optimize.compile.optimizer_named", named)
    train = [{"question": f"Who is number {n}?", "answer": "Ada"} for n in range(6)]
    folder, lm = data("nq", train=train, dev=BORN, test=BORN), LMChoice("pocket")
    options: dict[str, Any] = {"engine": "bm25", "rows": 8, "base": "pocket-tiny", "seed": 3}
    workspace, program = Workspace(tmp_path / "out", folder, lm=lm, **options), raisf.RAISF()
    learning, own = workspace.learning, {"training": {"epochs": 1}, "base": "pocket-t5"}
    for setting in (Setting("weights"), Setting("weights", **own), Setting("probe", rows=2)):
        learning._learnt(program, setting)
    usual, named_here, few = asked
    assert (usual["base"], usual["rows"], usual["seed"], usual["training"].seed) == ("pocket-tiny", 8, 3, 3)
    assert named_here["base"] == "pocket-t5" and named_here["training"].epochs == 1 != usual["training"].epochs
    assert few["rows"] == 2 and few["trainset"] == questions_for(2, workspace.train, 3)
    assert usual["trainset"] == workspace.train and all(one["valset"] == workspace.dev for one in asked)
    steps = (("probe", {}), ("outcome", {}), THRESHOLDS)
    learning._further(program, Setting("ra-isf", base="pocket-t5", then=steps))
    probe, outcome, thresholds = asked[3:]
    assert (probe["base"], probe["rows"], probe["seed"]) == ("pocket-t5", 8, 3) and thresholds["aim"] == "answer"
    assert (outcome["rows"], outcome["seed"]) == (8, 3) and "seed" not in thresholds
    assert all(one["trainset"] == workspace.train and one["valset"] == workspace.dev for one in asked[3:])


def test_probes_beside_given_weights_are_of_the_base_that_was_asked_for(
    data: Callable[..., Path], tmp_path: Path
) -> None:
    """Those of one base were shown as the next one's."""
    folder, artifact = data("hotpotqa", test=BORN), tmp_path / "artifact"
    program = raisf.RAISF()
    program.set_lm(raisf.connect("pocket"))
    raisf.save(program, artifact)

    def path(label: str, base: str | None) -> Path:
        options: dict[str, Any] = {"lm": LMChoice("pocket"), "engine": "bm25", "base": base}
        space = RealWorkspace(tmp_path / "out", folder, given={"weights-all": artifact}, **options)
        return space.learning.path_of(ROWS[label])

    bases = (None, "pocket", "pocket-tiny")
    assert len({path("probes", base) for base in bases}) == 3
    assert len({path("prompts-judges", base) for base in bases}) == 1, "no base has a part in it"


def test_a_teachers_labels_make_another_program_of_what_learns_from_them_further(
    data: Callable[..., Path], tmp_path: Path, teacher: Any
) -> None:
    """What gold had made was taken."""
    folder = data("nq", test=BORN)

    def path(setting: Setting, labeller: Any) -> Path:
        options: dict[str, Any] = {"lm": LMChoice("pocket"), "engine": "bm25", "teacher": labeller}
        return Workspace(tmp_path / "out", folder, **options).learning.path_of(setting)

    for steps in ((RELEVANCE_PROBE,), (("prompts", {}), THRESHOLDS)):
        assert path(Setting("ra-isf", then=steps), None) != path(Setting("ra-isf", then=steps), teacher)
    for steps in ((KNOW_PROBE,), (("outcome", {}),), (THRESHOLDS,)):  # no teacher has a part in these
        assert path(Setting("ra-isf", then=steps), None) == path(Setting("ra-isf", then=steps), teacher)


@pytest.mark.parametrize(
    "step", [("prompts", {}), ("probe", {"predictors": ("know", "relevant")})], ids=lambda of: of[0]
)
def test_a_teachers_labels_are_learnt_from_in_further_steps_too(
    make_home: Any, tmp_path: Path, teacher: Any, step: Any
) -> None:
    """Where gold names no passages the row was left out, for want of the teacher that was given."""
    home, bare = make_home(train=12, dev=6, test=2), tmp_path / "bare"
    bare.mkdir()
    for split in ("train", "dev", "test"):
        rows = read_jsonl(home / f"world/{split}.jsonl")
        write_jsonl(bare / f"{split}.jsonl", ({key: row[key] for key in ("id", "question", "answers")} for row in rows))
    workspace = Workspace(tmp_path / "out", bare, index=str(home / "index"), rows=8, teacher=teacher)
    report = workspace.open(Setting("ra-isf", then=(step,))).compile_report
    assert report["judge_rows"]["lm"] == teacher.model
