"""What follows from where the LM is, when the user does not say."""

from threading import Event, Thread
from typing import Any

import dspy
import pytest

from raisf.commands.options import threads_option
from raisf.experiments.comparing import _asked_anew
from raisf.experiments.opening import LMChoice, open_fitting, open_program, without_cache
from raisf.lm.connect import connect
from raisf.optimize.artifact import save
from raisf.programs.baselines.direct import Direct
from raisf.programs.concurrency import semaphore, set_concurrency
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError


@pytest.mark.parametrize(
    ("spec", "api_base", "remote"),
    [
        (None, None, False),
        ("pocket", None, False),
        ("local/models/a", None, False),
        ("smollm2@loras/a", None, False),
        ("openai/gpt-4o-mini", None, True),
        (None, "http://127.0.0.1:8000/v1", True),  # an artifact whose weights are served
    ],
)
def test_many_questions_at_a_time_in_the_process_and_fewer_at_an_endpoint(spec, api_base, remote):
    assert LMChoice(spec, api_base).remote is remote
    settled = threads_option(lambda **values: values["threads"])
    assert settled(threads=None, spec=spec, api_base=api_base) == (8 if remote else 32)
    assert settled(threads=3, spec=spec, api_base=api_base) == 3


def test_an_artifact_compiled_on_an_endpoint_is_asked_as_one(tmp_path):
    (tmp_path / "manifest.json").write_text('{"lms": [{"connect": {"spec": "openai/gpt-4o-mini"}}]}')
    settled = threads_option(lambda **values: values["threads"])
    assert settled(threads=None, program=str(tmp_path)) == 8 == settled(threads=None, programs={"a": str(tmp_path)})
    assert settled(threads=None, program=str(tmp_path), spec="pocket") == 32 == settled(threads=None, program="rag")


def test_an_endpoint_that_the_environment_names_is_one(monkeypatch):
    monkeypatch.setenv("RAISF_LM", "openai/gpt-4o-mini")
    assert LMChoice().remote and not LMChoice("pocket").remote


def test_the_limit_of_calls_is_the_users():
    before = set_concurrency(32)
    try:
        LMChoice(calls=5).limit()
        assert semaphore()._initial_value == 5  # type: ignore[attr-defined]
        LMChoice().limit()
        assert semaphore()._initial_value == 5  # type: ignore[attr-defined]
    finally:
        set_concurrency(before)


def test_what_was_fitted_to_one_judge_does_not_decide_for_another(tmp_path, caplog):
    """A threshold on the answer's own probability stayed, in silence, where the verdict was asked for instead."""
    fitted: dict[str, Any] = {
        "know_threshold": 0.9,
        "relevance_threshold": 0.2,
        "confidence_slope": 0.1,
        "confidence_offset": 2.0,
    }
    save(RAISF(None, know="confidence", **fitted), tmp_path / "a")

    def opened(**changes):
        program = open_program(str(tmp_path / "a"), **changes)
        return {name: getattr(program, name) for name in fitted}

    assert opened(k=3, know="confidence") == opened(max_depth=1) == fitted and "says nothing of" not in caplog.text
    unscaled = {**fitted, "confidence_slope": 1.0, "confidence_offset": 0.0}
    assert opened(know="verbal") == {**unscaled, "know_threshold": 0.5}
    assert "a has know_threshold 0.9 for know confidence, which says nothing of verbal: 0.5 holds" in caplog.text
    assert opened(relevance="score") == {**unscaled, "relevance_threshold": 0.5}
    assert opened(confidence="path") == unscaled
    assert opened(know="verbal", know_threshold=0.3) == {**unscaled, "know_threshold": 0.3}


def test_a_judge_more_than_was_compiled_is_asked_of_the_base_and_the_report_goes_along(tmp_path, monkeypatch):
    compiled: Any = RAISF(None, max_depth=1)
    compiled.set_lm(connect("pocket"))
    compiled.know.lm = connect("pocket-tiny")
    compiled.compile_report = {"chosen": "zero-shot"}
    save(compiled, tmp_path / "a")
    # Stands for weights that were trained for that judge alone.
    monkeypatch.setattr("raisf.optimize.adapters.trained_folder", lambda lm: tmp_path if "tiny" in lm.model else None)
    program = open_program(str(tmp_path / "a"), sufficiency=True)
    assert "tiny" in program.know.lm.model and "tiny" not in program.sufficient.lm.model
    assert program.compile_report == compiled.compile_report


def test_no_limit_takes_the_place_of_an_artifacts(tmp_path):
    """`--set max_calls=null` was taken for nothing said, and the question ended where the artifact's calls did."""
    save(RAISF(None, max_calls=2, max_depth=1), tmp_path / "a")
    assert open_program(str(tmp_path / "a")).max_calls == 2
    assert open_program(str(tmp_path / "a"), max_calls=None).max_calls is None
    with pytest.raises(InputError, match="max_depth is None"):
        open_program(str(tmp_path / "a"), max_depth=None)


def test_an_artifact_among_others_takes_the_options_that_its_program_has(tmp_path):
    """`raisf compare --k 2` refused the artifact of a program that does not search."""
    for name, program in {"direct": Direct(), "ra-isf": RAISF(None)}.items():
        save(program, tmp_path / name)
    assert open_fitting(str(tmp_path / "direct"), index=tmp_path / "none", k=2, max_calls=3).max_calls == 3
    assert open_fitting(str(tmp_path / "ra-isf"), k=2).k == 2


def test_a_program_that_ships_is_opened_where_a_folder_has_its_name(tmp_path, monkeypatch):
    """`raisf compare --programs smollm2,rag` read that folder, in which somebody kept the model's files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    with pytest.raises(InputError, match="smollm2 retrieves passages"):
        open_fitting("smollm2")


def test_parts_that_dspy_keeps_frozen_are_asked_anew_too() -> None:
    """Their cost was that of the cache."""

    class Asks(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ask: Any = dspy.Predict("question -> answer")
            self.ask.lm = dspy.LM("openai/x", api_key="k")

    class Two(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own, self.frozen = Asks(), Asks()
            self.frozen._compiled = True

    program = Two()
    entered, leave = Event(), Event()

    def compare() -> None:
        with _asked_anew([program]):
            entered.set()
            leave.wait(60)

    other = Thread(target=compare)
    with _asked_anew([program]):
        other.start()
        assert entered.wait(60)
    assert not program.own.ask.lm.cache and not program.frozen.ask.lm.cache, "another comparison goes on"
    leave.set()
    other.join(60)
    assert program.own.ask.lm.cache and program.frozen.ask.lm.cache
    assert not without_cache(program).frozen.ask.lm.cache
