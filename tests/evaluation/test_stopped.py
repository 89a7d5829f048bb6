"""A run that is stopped must end at once and lose nothing: if these failed, Ctrl-C would cost answers or minutes."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import dspy
import pytest

from raisf.evaluation.outcome import Outcome
from raisf.evaluation.runner import ask_here
from raisf.utils.files import read_jsonl

SCRIPT = """
    import sys, time, dspy
    from pathlib import Path
    from raisf.evaluation.runner import evaluate

    class Slow(dspy.Module):
        def forward(self, question):
            time.sleep(float(sys.argv[2]))
            return dspy.Prediction(answer=question.split()[-1])

    examples = [dspy.Example(id=f"q{i}", question=f"What is {i}?", answer=str(i)) for i in range(60)]
    try:
        print(evaluate(Slow(), examples, Path(sys.argv[1]), threads=4, progress=False).em.n)
    except KeyboardInterrupt as interrupt:
        print(interrupt)
        sys.exit(130)
"""


def start(script: Path, out: Path, seconds: float) -> subprocess.Popen[str]:
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, str(script), str(out), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def wait_for_records(out: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    while not (out.exists() and out.read_bytes().count(b"\n") >= n):
        assert time.monotonic() < deadline, "the run never got going"
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_keeps_every_finished_record_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    script, out = tmp_path / "run.py", tmp_path / "r.jsonl"
    process = start(script, out, 0.3)
    wait_for_records(out, 6)
    process.send_signal(how)
    said, _ = process.communicate(timeout=60)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "of 60 questions" in said and "goes on from there" in said
    kept = {row["id"] for row in read_jsonl(out)}
    assert 6 <= len(kept) < 60
    said, _ = start(script, out, 0.0).communicate(timeout=60)
    assert said.strip() == "60"
    rows = [row["id"] for row in read_jsonl(out)]
    assert len(rows) == len(set(rows)) == 60 and kept < set(rows)


def test_ctrl_c_does_not_wait_for_a_question_that_hangs(tmp_path: Path) -> None:
    script, out = tmp_path / "run.py", tmp_path / "r.jsonl"
    process = start(script, out, 600)
    wait_for_records(out, 0)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_nor_for_a_metric_whose_lm_hangs() -> None:
    """The metric of a compilation may ask an LM: Ctrl-C was not heard before that had answered, or been given up."""
    hangs, over = threading.Event(), threading.Event()

    def keep(outcome: Outcome) -> None:
        hangs.set()
        over.wait(60)

    def stop() -> None:
        hangs.wait(60)
        time.sleep(0.5)  # until all is under way
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask_here(lambda question: dspy.Prediction(answer="a"), [dspy.Example(question="q")] * 4, keep, threads=2)
    assert time.monotonic() - start < 30
    over.set()
