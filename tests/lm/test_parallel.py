"""If these failed, a judge trained on several GPUs would be another than the one trained on one."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from raisf.lm.finetune import parallel
from raisf.lm.finetune.loop import finish
from raisf.lm.finetune.lora import TrainingRow, tokenized, train
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import TRAINING, WEIGHTS
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json

QUICK = Training(epochs=2, batch_size=4, rank=4, learning_rate=2e-2)
LONG = replace(QUICK, processes=2, epochs=4000, patience=4000, learning_rate=1e-6)
LONG_RUN = """
import sys
from pathlib import Path
from raisf.lm.finetune.lora import train
from raisf.lm.local.model import LocalLM
from tests.lm.test_parallel import LONG, rows

lm = LocalLM(sys.argv[1], cache=False)
train(lm, rows(lm), rows(lm), Path(sys.argv[2]), LONG, progress=False)
"""


@pytest.fixture(scope="module")
def lm(llama: Path) -> LocalLM:
    return LocalLM(f"local/{llama}", cache=False)


def rows(lm: LocalLM, names: tuple[str, ...] = ("Velmora", "Oran", "Nedes")) -> list[TrainingRow]:
    """Six rows, so that the last batch of four has fewer; of unlike weight."""
    form: Any = lm.adapter
    return [
        TrainingRow(
            form.format_finetune_data(SelfKnowledge, [], {"question": f"Who {deed} {name}?"}, {"verdict": right})[
                "messages"
            ],
            weight,
        )
        for name in names
        for deed, right, weight in (("founded", "know", 1.5), ("sold", "unknown", 0.5))
    ]


@pytest.fixture(scope="module")
def alone(lm: LocalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(lm, rows(lm), rows(lm, ("Ulm",)), tmp_path_factory.mktemp("alone"), QUICK, progress=False)


def test_under_accelerate_one_process_learns_the_very_same(lm: LocalLM, alone: Path, tmp_path: Path) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    learn, measure = (tokenized(lm.base_engine.text, part, True, 512, "n") for part in (rows(lm), rows(lm, ("Ulm",))))
    try:
        run = FinetuneRun(lm, learn, measure, QUICK, Accelerator(cpu=True))
        finish(run, tmp_path / "c.safetensors", "id", "n", False)
    finally:
        AcceleratorState._reset_state(True)
    run.publish(tmp_path)
    assert (tmp_path / WEIGHTS).read_bytes() == (alone / WEIGHTS).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 5])
def test_several_processes_learn_what_one_learns(lm: LocalLM, alone: Path, tmp_path: Path, processes: int) -> None:
    """Five: of a batch of four, one has no row of its own."""
    shared = replace(QUICK, processes=processes)
    folder = train(lm, rows(lm), rows(lm, ("Ulm",)), tmp_path, shared, progress=False)
    ours, theirs = load_file(folder / WEIGHTS), load_file(alone / WEIGHTS)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
    assert any(not torch.equal(ours[name], torch.zeros_like(ours[name])) for name in ours if "lora_B" in name)
    report, single = read_json(folder / TRAINING), read_json(alone / TRAINING)
    for one, other in zip(report["curve"], single["curve"], strict=True):
        assert one["exact"] == other["exact"]
        assert [one["loss"], one["train_loss"]] == pytest.approx([other["loss"], other["train_loss"]], abs=2e-3)
    assert report["tokens"] == single["tokens"] and report["settings"]["processes"] == processes
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.slow
def test_no_process_trains_on_where_the_one_that_asked_for_it_was_killed(lm: LocalLM, tmp_path: Path) -> None:
    """They wrote into the checkpoint of the next start, and kept its GPUs."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-c", LONG_RUN, lm.base, str(tmp_path)]
    asking = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    while not list(tmp_path.glob(".*.safetensors")):
        assert asking.poll() is None, "it never got going"
        time.sleep(0.1)
    asking.kill()
    asking.communicate(timeout=60)  # all of them hold its standard error: it ends with the last


def test_the_processes_are_started_as_torchrun_wants_it(tmp_path: Path) -> None:
    from torch.distributed.run import get_args_parser

    python, _, module, *given = parallel.command(3, tmp_path / "job.json")
    parsed = get_args_parser().parse_args(given)
    assert (python, module) == (sys.executable, "torch.distributed.run")
    assert parsed.standalone and parsed.nproc_per_node == "3"
    assert parsed.module and parsed.training_script == "raisf.lm.finetune.parallel"
    assert parsed.training_script_args == [str(tmp_path / "job.json")]


def test_a_process_that_fails_is_told_and_costs_nothing_learnt(
    lm: LocalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def failing(processes: int, job: Path) -> list[str]:
        seen.append(read_json(job))
        return [sys.executable, "-c", "raise SystemExit(3)"]

    monkeypatch.setattr(parallel, "command", failing)
    with pytest.raises(RaisfError, match=r"training of know in 2 processes failed \(exit code 3\)"):
        train(lm, rows(lm), rows(lm), tmp_path, replace(QUICK, processes=2), name="know", progress=False)
    (job,) = seen
    assert job["base"] == lm.base and len(job["train"]) == 6 and job["train"][0]["weight"] == 1.5
    assert list(tmp_path.iterdir()) == []


def test_more_processes_than_gpus_are_refused(lm: LocalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started"))
    with pytest.raises(InputError, match="3 processes need a GPU each, and there are 2"):
        train(lm, rows(lm), rows(lm), tmp_path, replace(QUICK, processes=3), progress=False)
