"""If these failed, the paper's small judges (T5) could not be trained, kept or mixed with an LM that answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.lm import pocket
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError

ROOT = Path(__file__).parents[2]
QUICK = Training(epochs=2, rank=4, batch_size=8, learning_rate=1e-2)


@pytest.fixture(scope="module")
def models(makers: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A T5 for the judges and a Llama that answers."""
    llama = tmp_path_factory.mktemp("llama") / "pocket"
    shutil.copytree(pocket.path(), llama)
    return makers.make_t5(tmp_path_factory.mktemp("t5")), llama


@pytest.fixture(scope="module")
def saved(world: Any, models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact: know and relevant as LoRA adapters of the T5, all else with the Llama."""
    t5, llama = models
    program = RAISF(BM25.load(world.index), k=2, max_depth=1, max_calls=12)
    program.set_lm(LocalLM(f"local/{llama}", max_tokens=40, adapter="pocket"))
    folder = tmp_path_factory.mktemp("artifact")
    compiled: Any = raisf.compile(
        program,
        trainset=world.train[:24],
        valset=world.dev[:4],
        how="weights",
        base=f"local/{t5}",
        predictors=["know", "relevant"],
        labels="gold",
        rows=16,
        training=QUICK,
        work=folder / "work",
        progress=False,
    )
    report = compiled.compile_report["predictors"]["know"]
    assert report["curve"][report["best_epoch"]]["loss"] < report["curve"][0]["loss"]
    raisf.save(compiled, folder / "a")
    shutil.rmtree(folder / "work")
    return folder / "a"


def test_the_judges_run_on_the_t5_and_the_answers_on_the_llama(saved: Path, models: tuple[Path, Path], world: Any):
    t5, llama = models
    program: Any = raisf.load(saved)
    assert {name: program_lm(program, name) for name in ("know", "relevant", "decompose", "answer_directly")} == {
        "know": str(t5),
        "relevant": str(t5),
        "decompose": str(llama),
        "answer_directly": str(llama),
    }
    assert program.know.lm.base_engine is program.relevant.lm.base_engine
    trace = program(question=world.test[0].question).trace
    assert trace.cost.lm_calls > 1 and trace.root.know is not None and trace.root.know.probability is not None


def program_lm(program: Any, name: str) -> str:
    """The folder of the base that a predictor asks."""
    return getattr(program, name).lm.base.removeprefix("local/").rpartition("#")[0]


def test_a_fresh_process_gives_the_same_verdicts(saved: Path, world: Any) -> None:
    question = world.test[0].question
    here: Any = raisf.load(saved)
    with dspy.context(lm=here.know.lm, adapter=here.know.lm.adapter):
        expected = here.know(question=question).probabilities["know"]
    command = [sys.executable, "-m", "raisf.cli", "ask", question, "--program", str(saved), "--json"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)["trace"]["root"]["know"]["probability"]
    assert found == pytest.approx(expected, abs=1e-4)


def test_another_t5_is_refused(saved: Path, models: tuple[Path, Path]) -> None:
    t5, _ = models
    kept = (t5 / "generation_config.json").read_bytes()
    (t5 / "generation_config.json").write_text("{}")
    try:
        with pytest.raises(InputError, match=r"needs the base that 'know' was trained on.*have changed"):
            raisf.load(saved)
    finally:
        (t5 / "generation_config.json").write_bytes(kept)


def test_nobody_is_told_to_serve_a_t5s_adapters_where_they_cannot_be(saved: Path) -> None:
    text = (saved / "README.md").read_text()
    assert "| know | lora |" in text and "vllm" not in text and "sglang" not in text


def test_a_whole_t5_a_judge_travels_with_the_artifact(world: Any, models: tuple[Path, Path], tmp_path: Path) -> None:
    t5, llama = models
    program = RAISF(BM25.load(world.index), k=2)
    program.set_lm(LocalLM(f"local/{llama}", max_tokens=6))
    compiled: Any = raisf.compile(
        program,
        trainset=world.train[:24],
        valset=world.dev[:4],
        how="weights",
        base=f"local/{t5}",
        predictors=["know"],
        labels="gold",
        rows=16,
        training=Training(method="full", epochs=1, batch_size=8, learning_rate=1e-3),
        work=tmp_path / "work",
        progress=False,
    )
    raisf.save(compiled, tmp_path / "a")
    shutil.rmtree(tmp_path / "work")
    loaded: Any = raisf.load((tmp_path / "a").rename(tmp_path / "moved"))
    assert Path(program_lm(loaded, "know")) == tmp_path / "moved" / "adapters" / "know"
    with dspy.context(adapter=loaded.know.lm.adapter):
        assert loaded.know(question="Who?").probabilities.keys() == {"know", "unknown"}
