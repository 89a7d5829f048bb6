"""What a failed call is told as: what happened, and what to do, without any secret."""

from typing import Any

import dspy
import pytest
from dspy.utils.exceptions import ContextWindowExceededError, LMTransportError, LMUnexpectedError

from raisf.lm.connect import connect
from raisf.lm.failures import explain
from raisf.lm.local.model import LocalLM
from raisf.utils.errors import InputError, LMError


def test_errors_that_are_no_lms_stay_what_they_are():
    lm = connect("openai/tiny")
    for error in (InputError("bad"), TypeError("a bug")):
        assert explain(error, lm) is error
    wrapped = dspy.utils.exceptions.LMUnexpectedError("x")
    wrapped.__cause__ = InputError("bad")
    assert explain(wrapped, lm) is wrapped.__cause__


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (dspy.LMInvalidRequestError("404 page not found", status=404), "it often ends in /v1"),
        (dspy.LMUnsupportedModelError("there is no tiny", status=404), "is the model's name right"),
        (dspy.LMBillingError("you exceeded your quota", status=429), "look at your account's plan"),
        (dspy.LMTimeoutError("no answer"), r"fewer calls at a time \(--calls 4\) or --timeout 600"),
        (LMTransportError("the read timed out"), r"did not answer in .* --timeout 600"),
        (dspy.LMProviderError("moved", status=308), r"another address \(HTTP 308: moved\): give that address, up to"),
    ],
)
def test_what_an_endpoint_says_has_the_remedy_that_helps(error, remedy):
    with pytest.raises(LMError, match=remedy):
        raise explain(error, connect("openai/tiny", api_base="http://127.0.0.1:8000"))


def test_a_short_key_is_never_repeated_and_garbles_no_word(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    lm = dspy.LM("openai/tiny", api_base="http://me:pw@127.0.0.1:1/v1")
    said = explain(LMTransportError("the key sk-1 at me:pw@127.0.0.1, task sk-12", model="tiny"), lm)
    assert "the key *** at ***@127.0.0.1, task sk-12" in str(said)


def test_the_keys_that_a_message_repeats_are_left_out_wherever_they_come_from(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    said = "hf_0123456789 and sk-of-its-own, none of them EMPTY"
    for key, told in (
        ("sk-of-its-own", "*** and ***, none of them EMPTY"),
        ("none", "*** and sk-of-its-own, none of them EMPTY"),
        ("EMPTY", "*** and sk-of-its-own, none of them EMPTY"),
    ):
        assert told in str(explain(dspy.LMServerError(said), dspy.LM("openai/tiny", api_key=key)))


def test_a_page_for_an_error_is_cut_and_its_short_form_repeats_none_of_it():
    """A log that leaves out questions takes the short form; servers repeat what they were asked."""
    page = "Who is\nAda? " + "very long " * 99 + "\n\nTraceback"
    explained: Any = explain(dspy.LMServerError(page, status=500), connect("openai/tiny"))
    assert "(HTTP 500: Who is Ada? very long" in str(explained) and len(str(explained)) < 400
    assert "Traceback" not in str(explain(dspy.LMServerError("Down.\n\nTraceback"), connect("openai/tiny")))
    assert explained.brief == "openai/tiny failed (HTTP 500: ...): look at the server's log"


@pytest.mark.parametrize(
    ("error", "transient", "too_long"),
    [
        (dspy.LMProviderError("no JSON"), True, False),
        (dspy.LMServerError("down", status=500), True, False),
        (dspy.LMProviderError("moved", status=308), False, False),
        (dspy.LMAuthError("no", status=401), False, False),
        (ContextWindowExceededError(), False, True),
    ],
)
def test_what_may_pass_and_what_was_too_long_is_told(error, transient, too_long):
    explained: Any = explain(error, connect("openai/tiny"))
    assert (explained.transient, explained.too_long) == (transient, too_long)
    assert explained.exit_code == (2 if too_long else 1)


def test_an_lm_in_the_process_is_called_by_its_name_and_its_adapters(tmp_path):
    lm = LocalLM("local/pocket-tiny")
    told: Any = explain(LMUnexpectedError("boom"), lm)
    assert str(told) == "local/pocket-tiny failed (boom): this is not an error of your input" and told.brief == ""
    assert "--adapter compact" in str(explain(dspy.LMInvalidRequestError("no schema"), lm))
    lm.lora = tmp_path / "know"
    assert str(explain(LMUnexpectedError("boom"), lm)).startswith("local/pocket-tiny, with know, failed")
    lm.lora, lm.probe = None, tmp_path / "relevant"
    assert str(explain(LMUnexpectedError("boom"), lm)).startswith("local/pocket-tiny, with relevant, failed")
