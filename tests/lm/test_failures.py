"""What a failed call is told as: what happened, and what to do, without any secret."""

import dspy
import pytest
from dspy.utils.exceptions import LMTransportError

from raisf.lm.connect import connect
from raisf.lm.failures import explain
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
