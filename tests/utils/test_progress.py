"""Progress bars: what stands on the screen when the work is over must say what happened."""

import os
import subprocess
import sys

import pytest
from rich.progress import Progress

from raisf.utils.progress import ProgressBars, progress_bar


@pytest.fixture
def shown(monkeypatch, capsys):
    """What a wide terminal shows at the end; its words, as often as it is asked."""
    monkeypatch.setenv("COLUMNS", "200")
    seen: list[str] = []

    def words() -> str:
        seen.append(capsys.readouterr().err)
        return " ".join("".join(seen).split())

    return words


def test_a_bar_whose_work_is_done_is_full(shown):
    with ProgressBars() as bars:
        task = bars.add_task("encoding", total=3)
        for _ in range(3):
            bars.advance(task)
    assert "3/3" in shown() and "done after" not in shown()


def test_work_that_ends_before_its_total_fills_the_bar_and_says_so(shown):
    with ProgressBars() as bars:
        bars.advance(bars.add_task("calibrating", total=40, score="EM 50.0"), 12)
    assert bars.finished
    assert "12/12" in shown() and "EM 50.0, done after 12 of 40" in shown()


def test_where_nothing_is_to_be_done_no_bar_is_left(shown):
    with ProgressBars() as bars:
        bars.add_task("finding", total=0)
        bars.advance(bars.add_task("encoding", total=1))
    assert "done after" not in shown() and "encoding" in shown() and "1/1" in shown()


def test_early_stopping_fills_the_bar_and_says_why(shown):
    with ProgressBars() as bars:
        task = bars.add_task("training know", total=10)
        bars.update(task, completed=4, score="loss 0.1")
        bars.end(task, "stopped early, after 4 of 10 epochs")
    assert bars.finished and "4/4" in shown() and "loss 0.1, stopped early, after 4 of 10 epochs" in shown()


def test_a_bar_of_unknown_length_does_not_pulse_for_ever(shown):
    with ProgressBars() as bars:
        bars.add_task("labelling", total=None)
    assert bars.finished and "?" not in shown()


@pytest.mark.parametrize(("error", "said"), [(KeyboardInterrupt, "interrupted"), (ValueError, "stopped by an error")])
def test_what_an_exception_ended_stays_as_it_stood_and_says_it(shown, error, said):
    with pytest.raises(error), ProgressBars() as bars:
        bars.advance(bars.add_task("asking", total=8), 5)
        raise error
    assert "5/8" in shown() and said in shown()


def test_bars_of_another_stay_theirs(shown):
    with ProgressBars() as outer:
        with progress_bar(outer) as inner:
            assert inner is outer
            inner.add_task("inner", total=2, completed=1)
        assert not outer.finished, "what encloses it ends it"


def test_nothing_is_shown_where_nothing_is_wanted(shown):
    with progress_bar(False) as bars:
        bars.advance(bars.add_task("quietly", total=2), 1)
    assert isinstance(bars, Progress) and shown() == ""


def test_training_that_stops_early_leaves_a_full_bar(shown):
    """The whole loop of a LoRA training with a stand-in for what it computes."""
    from types import SimpleNamespace

    from raisf.lm.finetune.loop import finish

    class Run:
        training, batches, steps, curve, over = SimpleNamespace(epochs=5), 4, 0, [], False

        def restore(self, *_):
            self.curve = [{"loss": 1.0, "exact": 0.0}]

        def epoch(self, show, _seconds):
            self.steps += self.batches
            self.curve.append({"loss": 0.5, "exact": 0.5})
            self.over = len(self.curve) == 3
            show()

        def save(self, *_): ...

    finish(Run(), None, "", "know", True)  # type: ignore[arg-type]
    assert "8/8" in shown() and "stopped early, after 2 of 5 epochs" in shown()


LIBRARIES = {
    "tqdm": "import tqdm; list(tqdm.tqdm(range(3)))",
    "tqdm.auto": "import tqdm.auto; list(tqdm.auto.tqdm(range(3)))",
    "transformers": "from transformers.utils import logging; list(logging.tqdm(range(3)))",
    "datasets": "import datasets; datasets.Dataset.from_list([{'a': 1}] * 9).map(lambda row: row)",
    "bm25s, as our index calls it": "import pathlib; pathlib.Path('a.txt').write_text('one text');"
    "cli.main(['index', 'a.txt', '--engine', 'bm25', '--out', 'i']);"
    "import raisf; raisf.open_index('i')('text', 1)",
}


@pytest.mark.parametrize("code", LIBRARIES.values(), ids=LIBRARIES.keys())
def test_no_library_shows_a_bar_of_its_own_beside_ours(code, tmp_path):
    run = [sys.executable, "-c", f"from raisf import cli; cli.main([]); {code}"]
    environment = {**os.environ, "HF_HOME": str(tmp_path)}
    done = subprocess.run(run, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it/s" not in done.stderr and "%" not in done.stderr
