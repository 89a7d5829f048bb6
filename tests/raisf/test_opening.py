"""What follows from where the LM is, when the user does not say."""

import pytest

from raisf.commands.options import threads_option
from raisf.experiments.opening import LMChoice
from raisf.programs.concurrency import semaphore, set_concurrency


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
