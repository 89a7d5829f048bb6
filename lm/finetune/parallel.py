"""A training that several processes share, each with a GPU of its own: torchrun starts them, accelerate joins them.

They read a job from a file, learn together, and leave the checkpoint of a finished run, which the process that asked
for it then opens like one of its own. So a kill at any point costs two minutes, and nothing else needs to know of them.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from raisf.lm.finetune.loop import finish
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.tokenization import TokenizedRow
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json, write_json


def share_out(
    lm: LocalLM,
    train: Sequence[TokenizedRow],
    validation: Sequence[TokenizedRow],
    training: Training,
    checkpoint: Path,
    identity: str,
    name: str,
    progress: bool,
) -> None:
    """Lets `training.processes` processes learn until the run is over; the checkpoint is then that of a finished run.

    Each takes its share of every batch, and all take the same step: the result is that of one process, up to rounding.

    Raises:
        InputError: There are GPUs, but fewer than processes.
        RaisfError: A process failed; what it said stands on standard error.
    """
    import torch

    gpus = torch.cuda.device_count()
    if 0 < gpus < training.processes:
        raise InputError(
            f"{training.processes} processes need a GPU each, and there are {gpus}: give --processes {gpus}"
        )
    job = checkpoint.with_suffix(".json")
    job.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        job,
        {
            "base": lm.base,
            "lora": str(lm.lora) if training.go_on else None,
            "training": asdict(training),
            "checkpoint": str(checkpoint.resolve()),
            "identity": identity,
            "name": name,
            "progress": progress,
            "train": [asdict(row) for row in train],
            "validation": [asdict(row) for row in validation],
        },
    )
    threads = max(1, torch.get_num_threads() // training.processes)
    watched, held = os.pipe()  # `held` is this process's alone, and closes when it ends, however it ends
    try:
        done = subprocess.run(
            command(training.processes, job),
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdin=watched,
            stdout=subprocess.DEVNULL,
        )
    finally:
        os.close(held)
        os.close(watched)
        job.unlink(missing_ok=True)
    if done.returncode:
        raise RaisfError(
            f"the training of {name} in {training.processes} processes failed (exit code {done.returncode}), see "
            "above: mend that, or train in one process (--processes 1)"
        )


def command(processes: int, job: Path) -> list[str]:
    """How the processes are started: on this machine, and on a port that is free."""
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)),
        *("-m", "raisf.lm.finetune.parallel", str(job)),
    ]


def work(job: Path) -> None:
    """What each of the processes does."""
    import torch
    from accelerate import Accelerator

    threading.Thread(target=_end_with_asker, daemon=True).start()
    given = read_json(job)
    # Before the model: it goes to the GPU that this chooses.
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    train, validation = ([TokenizedRow(**row) for row in given[part]] for part in ("train", "validation"))
    lm = LocalLM(given["base"])
    lm = lm.with_weights(Path(given["lora"])) if given["lora"] else lm
    run = FinetuneRun(lm, train, validation, Training(**given["training"]), accelerator)
    shown = given["progress"] and accelerator.is_main_process
    finish(run, Path(given["checkpoint"]), given["identity"], given["name"], shown)
    accelerator.end_training()


def _end_with_asker() -> None:
    """Ends this process when the one that asked for the training has ended, with which standard input does."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
    # All is written. At the interpreter's own end torch's threads now and then abort a process whose work is done.
    sys.stderr.flush()
    os._exit(0)
