"""If these failed, a predictor would learn from another's steps, or from labels that nobody gave."""

import functools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.artifact import load, save
from raisf.optimize.compile import compile
from raisf.optimize.judges.weighed import draw_evenly
from raisf.optimize.traces import traced_rows
from raisf.programs.ra_isf import RAISF
from raisf.reports.compiled import compiled_view
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json
from raisf.utils.journal import Journal
from tests.optimize.halving import Halving, counts, numbers, right
from tests.scripted import ScriptedLM

QUICK = Training(epochs=1, rank=2, batch_size=8)


@pytest.fixture
def halving() -> Halving:
    program = Halving()
    program.set_lm(ScriptedLM(counts))
    return program


def test_each_predictor_gets_exactly_its_own_steps(halving: Halving) -> None:
    traced = traced_rows(halving, numbers(3, 9, 17), right, threads=8, progress=False)
    assert traced.of.keys() == {"judge", "halve"}
    asked = [(row.number, row.verdict) for row in traced.of["judge"]]
    assert asked == [(3, "small"), (9, "large"), (4, "large"), (2, "small"), (17, "large"), (8, "large")]
    assert [(row.whole, row.half) for row in traced.of["halve"]] == [(9, 4), (4, 2), (17, 8), (8, 4)]


def test_wrong_and_failed_runs_teach_nothing_and_are_counted() -> None:
    def sometimes(fields: dict[str, Any]) -> dict[str, Any] | str:
        return "no format at all" if fields.get("number") == "5" else counts(fields)

    program = Halving()
    program.set_lm(ScriptedLM(sometimes))
    with dspy.context(adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
        traced = traced_rows(program, numbers(3, 5, 10, 9, wrong=(9,)), right, threads=1, progress=False)
    assert (traced.runs, traced.failed, traced.wrong) == (4, 2, 1)  # 10 halves to 5
    assert [row.number for row in traced.of["judge"]] == [3]


def tune(program: dspy.Module, tmp_path: Path, **options: Any) -> Any:
    sets = {"trainset": numbers(*range(2, 24)), "valset": numbers(*range(24, 30)), "metric": right}
    given = {**sets, "how": "weights", "training": QUICK, "work": tmp_path / "work", "progress": False, **options}
    return compile(program, **given)


def test_a_recursive_program_of_ones_own_is_trained_on_its_own_right_runs(
    halving: Halving, llama: Path, tmp_path: Path
) -> None:
    trained = tune(halving, tmp_path, base=LocalLM(f"local/{llama}", adapter="chat"), predictors=["judge"])
    report = trained.compile_report["predictors"]["judge"]
    assert trained.judge.lm.lora is not None and trained.halve.lm is halving.halve.lm
    assert halving.judge.lm is halving.halve.lm  # the program given stays as it is
    assert report["source"] == "own right runs"
    assert sum(report["rows"]["train"].values()) + report["dropped"] > 10
    assert set(report["rows"]["train"]) == {"small", "large"}
    assert trained.compile_report["runs"]["train"] == {"made": 22, "failed": 0, "wrong": 0}


def test_the_rows_of_a_judge_are_as_even_as_can_be() -> None:
    rows = [dspy.Example(verdict="a")] * 30 + [dspy.Example(verdict="b")] * 4 + [dspy.Example(verdict="c")] * 20
    drawn = [row.verdict for row in draw_evenly(rows, "verdict", 24, random.Random(0))]
    assert {verdict: drawn.count(verdict) for verdict in "abc"} == {"a": 10, "b": 4, "c": 10}


def test_one_verdict_alone_teaches_nothing(halving: Halving, llama: Path, tmp_path: Path) -> None:
    base = LocalLM(f"local/{llama}", adapter="chat")
    with pytest.raises(InputError, match=r"'judge' needs train rows of more than one verdict, found 2 of 'small'"):
        tune(halving, tmp_path, base=base, predictors=["judge"], trainset=numbers(2, 3))


def test_no_right_run_is_an_error_that_counts(halving: Halving, llama: Path, tmp_path: Path) -> None:
    base = LocalLM(f"local/{llama}", adapter="chat")
    wrong = numbers(2, 3, 9, wrong=(2, 3, 9))
    with pytest.raises(InputError, match=r"no train rows for 'judge': of 3 runs 0 failed and 3 were wrong; give more"):
        tune(halving, tmp_path, base=base, trainset=wrong)


def test_what_cannot_be_trained_is_told(halving: Halving, llama: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scripted/lm is elsewhere: give a base"):
        tune(halving, tmp_path)
    base = LocalLM(f"local/{llama}", adapter="chat")
    with pytest.raises(InputError, match=r"no predictor 'juge' in this program: choose of judge, halve"):
        tune(halving, tmp_path, base=base, predictors=["juge"])
    with pytest.raises(InputError, match=r"no judges in this program, only judge, halve"):
        tune(halving, tmp_path, base=base, predictors="judges")
    with pytest.raises(InputError, match="in the validation split too"):
        tune(halving, tmp_path, base=base, valset=numbers(5))
    with pytest.raises(InputError, match="rows is 1: give a whole number, 2 or more"):
        tune(halving, tmp_path, base=base, rows=1)
    asked = len(halving.judge.lm.calls)
    with pytest.raises(InputError, match="the rank must be at most 32, the width of"):
        tune(halving, tmp_path, base=base, training=Training(rank=33))
    with Journal.alone(tmp_path / "work", "weights", "of other options", lock="training"):
        with pytest.raises(InputError, match=r"another command is training in .*work: wait for it"):
            tune(halving, tmp_path, base=base)
    assert len(halving.judge.lm.calls) == asked


# RA-ISF: the judges' labels are gold, or what the LM itself knows


def trained(program: RAISF, world, work: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"trainset": world.train[:30], "valset": world.dev[:6], "how": "weights", "rows": 12}
    return compile(program, **{**given, "training": QUICK, "work": work, "progress": False, **options})


@pytest.fixture
def judges(program: RAISF, world, llama: Path, tmp_path: Path) -> Any:
    return functools.partial(trained, program, world, tmp_path / "work", base=LocalLM(f"local/{llama}"))


def test_the_judges_learn_from_gold_and_the_others_keep_their_lm(judges: Any, program: RAISF) -> None:
    compiled = judges()
    report = compiled.compile_report
    assert {name: made["source"] for name, made in report["predictors"].items()} == dict.fromkeys(
        ("know", "relevant", "decompose"), "gold"
    )
    assert report["predictors"]["know"]["rows"]["train"].keys() == {"know", "unknown"}
    assert max(sum(made["rows"]["train"].values()) for made in report["predictors"].values()) <= 12
    assert all(made["curve"] and made["data_sha256"] and made["base"] for made in report["predictors"].values())
    assert compiled.compose.lm is program.compose.lm and report["lm_calls"] > 0
    engines = {id(getattr(compiled, name).lm.base_engine) for name in ("know", "relevant", "decompose")}
    assert len(engines) == 1  # one base in memory


def test_judges_that_are_switched_off_are_not_trained(judges: Any, program: RAISF) -> None:
    program.use_know = program.use_decomposition = False
    assert judges().compile_report["predictors"].keys() == {"relevant"}


def test_what_a_judge_lacks_and_what_it_could_not_learn_is_told(judges: Any, world) -> None:
    """A dev split without decompositions was told as a training split without, and long rows as learnt."""
    bare = [dspy.Example(one, sub_questions=[], sub_answers=[]).with_inputs("question") for one in world.dev[:6]]
    report = judges(valset=bare, metric=lambda *_: 0.0).compile_report  # no run is right, of which others learn
    told = report["missing"]["decompose"]
    assert told.startswith("no validation rows for 'decompose': no question has several gold sub_questions")
    assert told.endswith(
        "give more validation questions, or an LM that labels passages and decompositions (--teacher), or, in Python, "
        "judge_rows=, or a program that answers them right (teacher=)"
    )
    assert len(compiled_view(report)) == 1
    report["predictors"]["relevant"]["too_long"] = 3
    assert "relevant: rows for training and validation that are longer than the base's context, and left out: 3" in [
        str(line) for line in compiled_view(report)
    ]


def test_none_but_named_predictors_learn(judges: Any) -> None:
    with pytest.raises(InputError, match="no predictor is to learn: name some of know, relevant"):
        judges(predictors=[])


@pytest.mark.slow
def test_gold_that_is_missing_is_the_teachers_to_give(judges: Any, program: RAISF, world, oracle: Any) -> None:
    bare = [
        dspy.Example(question=e.question, answer=e.answer, answers=e.answers).with_inputs("question")
        for e in world.train[:30]
    ]
    with pytest.raises(InputError, match=r"no train rows for 'relevant': .*gold_pids"):
        judges(trainset=bare)
    taught = RAISF(BM25.load(world.index))
    taught.set_lm(oracle())
    sources = {
        name: made["source"]
        for name, made in judges(trainset=bare, teacher=taught).compile_report["predictors"].items()
    }
    assert (sources["know"], sources["relevant"]) == ("gold", "teacher's right runs")


def test_a_killed_compile_trains_only_what_is_not_finished(judges: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[FinetuneRun] = []  # not their ids alone, which one that is gone leaves to the next
    epoch = FinetuneRun.epoch

    def killed(self: FinetuneRun, *told: Any) -> None:
        runs.append(self)
        if len(set(map(id, runs))) == 3:
            raise KeyboardInterrupt
        epoch(self, *told)

    with monkeypatch.context() as patched:
        patched.setattr(FinetuneRun, "epoch", killed)
        with pytest.raises(KeyboardInterrupt, match="the same command goes on from there"):
            judges()
    left: list[FinetuneRun] = []
    monkeypatch.setattr(FinetuneRun, "epoch", lambda self, *told: (left.append(self), epoch(self, *told)))
    assert judges().compile_report["resumed"] and len(set(map(id, left))) == 1
    assert judges().compile_report["resumed"], "what is taken as it lies there is in no price either"


# Artifacts with weights


@pytest.fixture(scope="module")
def artifact(world, oracle: Any, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, program = tmp_path_factory.mktemp("artifact"), RAISF(BM25.load(world.index), k=5)
    program.set_lm(oracle())
    with pytest.MonkeyPatch.context() as beside:
        beside.chdir(llama.parent)  # the artifact must not depend on where it was made
        asked: Any = {"predictors": ["know", "relevant"], "base": f"local/{llama.name}"}
        compiled = trained(program, world, folder / "work", **asked)
        compiled.know.lm.kwargs["temperature"] = 0.0
        save(compiled, folder / "a")
    shutil.rmtree(folder / "work")  # nothing outside the artifact is needed but the base
    return folder / "a"


@pytest.fixture
def saved(artifact: Path, tmp_path: Path) -> Path:
    """A copy, to be moved or spoilt."""
    return Path(shutil.copytree(artifact, tmp_path / "a"))


def test_an_artifact_carries_its_weights_anywhere(saved: Path, oracle: Any, tmp_path: Path) -> None:
    moved = saved.rename(tmp_path / "moved")
    program: Any = load(moved, lm=oracle())
    assert program.know.lm.lora == moved / "adapters" / "know"
    with dspy.context(adapter=program.know.lm.adapter):
        assert program.know(question="Who?").probabilities.keys() == {"know", "unknown"}
    assert isinstance(program.compose.lm, ScriptedLM)
    readme = (moved / "README.md").read_text()
    assert "--lora-modules know=adapters/know relevant=adapters/relevant" in readme and "sglang" in readme
    save(program, moved)  # over itself
    again: Any = load(moved, lm=oracle())
    assert again.know.lm.model == program.know.lm.model


def test_what_a_trainer_leaves_beside_its_weights_is_not_carried_along(
    saved: Path, oracle: Any, tmp_path: Path
) -> None:
    program: Any = load(saved, lm=oracle())
    left = saved / "adapters" / "know"
    (left / "checkpoint-500").mkdir()
    (left / "training_args.bin").write_bytes(b"\x80\x04.")
    save(program, tmp_path / "b")
    carried = {path.name for path in (tmp_path / "b" / "adapters" / "know").iterdir()}
    assert "adapter_model.safetensors" in carried and not carried & {"checkpoint-500", "training_args.bin"}
    mine: Any = dspy.Module()
    mine.of = {"a/b": program.know}
    with pytest.raises(InputError, match=r"\"of\['a/b'\]\" cannot name a folder"):
        save(mine, tmp_path / "c")


def test_weights_that_changed_are_refused(saved: Path, oracle: Any) -> None:
    report = (saved / "adapters" / "know" / "training.json").read_text()
    (saved / "adapters" / "know" / "training.json").write_text("[]")
    with pytest.raises(InputError, match=r"is damaged \(adapters/know/training.json says other things\)"):
        load(saved, lm=oracle())
    (saved / "adapters" / "know" / "training.json").write_text(report[:20])
    with pytest.raises(InputError, match=r"is damaged \(.*training.json is not JSON"):
        load(saved, lm=oracle())
    (saved / "adapters" / "know" / "training.json").write_text(report)
    weights = saved / "adapters" / "know" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(InputError, match=r"is damaged \(adapters/know has changed"):
        load(saved, lm=oracle())
    weights.unlink()
    with pytest.raises(InputError, match=r"is damaged \(no LoRA adapter"):
        load(saved, lm=oracle())
    shutil.rmtree(saved / "adapters")
    with pytest.raises(InputError, match=r"adapters/know is missing"):
        load(saved, lm=oracle())


def test_another_base_is_refused_and_the_same_one_elsewhere_is_taken(
    saved: Path, oracle: Any, llama: Path, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(llama, tmp_path / "elsewhere")
    program: Any = load(saved, lm=connect(f"local/{elsewhere}"))
    assert program.know.lm.base.startswith(f"local/{elsewhere}#")
    manifest = read_json(saved / "manifest.json")
    assert manifest["weights"]["know"]["base"] == LocalLM(f"local/{llama}").model
    kept = (llama / "generation_config.json").read_bytes()
    (llama / "generation_config.json").write_text("{}")
    try:
        with pytest.raises(InputError, match=r"needs the base that 'know' was trained on.*have changed"):
            load(saved, lm=oracle())
    finally:
        (llama / "generation_config.json").write_bytes(kept)


def test_a_disk_that_is_full_leaves_the_old_artifact(saved: Path, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in sorted(saved.rglob("*")) if path.is_file()}
    program = load(saved, lm=oracle())

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(RaisfError, match="No space"):
        save(program, saved)
    assert {path: path.read_bytes() for path in sorted(saved.rglob("*")) if path.is_file()} == before


def test_a_whole_model_that_predictors_share_is_once_on_the_disk_and_once_in_memory(
    program: RAISF, llama: Path, tmp_path: Path
) -> None:
    trained = shutil.copytree(llama, tmp_path / "trained")
    (trained / "training.json").write_text(json.dumps({"base": LocalLM(f"local/{llama}").model, "identity": "x"}))
    program.set_lm(LocalLM(f"local/{trained}"))
    save(program, tmp_path / "artifact")
    kept = [path.stat() for path in (tmp_path / "artifact").rglob("*.safetensors")]
    assert len(kept) > 1 and len({one.st_ino for one in kept}) == 1 and kept[0].st_nlink == len(kept)
    moved = shutil.copytree(tmp_path / "artifact", tmp_path / "moved")
    shutil.rmtree(tmp_path / "artifact")
    opened: Any = load(moved)
    assert len({path.name for path in moved.glob("*/*")}) == len(kept)
    (engine,) = {one.lm.base_engine for one in opened.predictors()}  # each read the model once more
    assert engine.folder.is_relative_to(moved)


def test_an_artifact_of_the_format_before_still_loads(program: RAISF, oracle: Any, tmp_path: Path) -> None:
    save(program, tmp_path / "old")
    manifest = read_json(tmp_path / "old" / "manifest.json")
    del manifest["weights"]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    assert load(tmp_path / "old", lm=oracle())(question="Who?").answer
