"""What a failed call of a language model came to, in plain words: what happened, and what to do."""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import dspy
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMAuthError,
    LMBillingError,
    LMInvalidRequestError,
    LMNotConfiguredError,
    LMProviderError,
    LMRateLimitError,
    LMServerError,
    LMTimeoutError,
    LMTransportError,
    LMUnexpectedError,
    is_retryable_lm_error,
)
from dspy.utils.exceptions import LMError as DspyLMError

from raisf.lm.endpoint import EndpointLM
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import PREFIX
from raisf.utils.errors import InputError, LMError, RaisfError
from raisf.utils.gpu import gpu_trouble
from raisf.utils.urls import without_secrets

_BASE = "--api-base must be OpenAI-compatible; it often ends in /v1"


def explain(error: Exception, lm: dspy.BaseLM) -> Exception:
    """The project's error for a failed call: an LMError that says what happened and what to do, without any secret.

    Its `transient` says whether the same call may succeed later, its `too_long` whether it was the prompt's fault.

    Errors that are no LM's failure (the project's own, and programming errors) come back as they are; a text that is
    none, a passage's or the question's, is an InputError.
    """
    if isinstance(error, RaisfError):
        return error
    if isinstance(error, LMUnexpectedError) and isinstance(error.__cause__, RaisfError):
        return error.__cause__
    if isinstance(error, ValueError) and "not valid Unicode" in str(error):  # DSPy looks before anything is sent
        return InputError(str(error))
    if not isinstance(error, DspyLMError):
        return error
    base = base_of(lm)
    place = f"{lm.model} at {without_secrets(base)}" if base else _named(lm)
    message = _redact(error.message or type(error).__name__, lm)
    said = " ".join(message.split("\n\n")[0].split())[:300]
    late = isinstance(error, LMTimeoutError) or "timed out" in said

    def told(words: str) -> str:
        found, remedy = _diagnose(error, lm, words, late)
        return f"{place} {found}: {remedy}"

    explained = LMError(told(said))
    explained.brief = "" if isinstance(lm, LocalLM) else told("...")
    garbage = type(error) is LMProviderError and (error.status or 200) < 300
    explained.transient = garbage or is_retryable_lm_error(error)
    explained.too_long = too_long(error)
    if isinstance(error, LMNotConfiguredError | ContextWindowExceededError):
        explained.exit_code = InputError.exit_code  # nothing outside has failed: the same command never works
    return explained


def too_long(error: Exception) -> bool:
    """Whether a call failed because its prompt was more than the LM can read; see `LMError.too_long`."""
    return isinstance(error, ContextWindowExceededError) or getattr(error, "too_long", False)


def _named(lm: dspy.BaseLM) -> str:
    """An LM as a person knows it: one in the process by its name and its adapter's, without hashes and folders."""
    if not isinstance(lm, LocalLM):
        return lm.model
    own = lm.lora or lm.probe
    name = Path(lm.base.rpartition("#")[0].removeprefix(PREFIX)).name
    return f"{PREFIX}{name}" + (f", with {own.name}," if own else "")


def _diagnose(error: DspyLMError, lm: dspy.BaseLM, said: str, late: bool) -> tuple[str, str]:
    """What happened, in whose words, and what to do."""
    status = f"HTTP {error.status}" if error.status else "no HTTP status"
    key = f"{lm.model.partition('/')[0].upper()}_API_KEY"
    if isinstance(error, ContextWindowExceededError):
        shorter = "ask a shorter question, or give fewer or shorter passages or demonstrations"
        return f"cannot read so much ({said})", shorter
    if late:
        seconds = lm.endpoint.timeout if isinstance(lm, EndpointLM) else lm.kwargs.get("timeout")
        if error.status:  # a gateway before it has lost its own patience
            seconds, said = None, f"{status}: {said}"
        return (
            f"did not answer in {seconds:g} s" if seconds else f"did not answer ({said})",
            "it may be loading or overloaded: try again, with fewer calls at a time (--calls 4) or --timeout 600",
        )
    if isinstance(error, LMTransportError):
        return f"cannot be reached ({said})", "is the server running, and --api-base right?"
    if isinstance(error, LMNotConfiguredError):
        return "has no credentials", f"set {key} in the environment, or give --api-base for an endpoint of your own"
    if isinstance(error, LMAuthError):
        return f"refuses the credentials ({status}: {said})", f"check {key} in the environment"
    if isinstance(error, LMRateLimitError):
        return f"is busy ({status}: {said})", "wait, or ask with fewer threads"
    if isinstance(error, LMServerError):
        return f"failed ({status}: {said})", "look at the server's log"
    if isinstance(error, LMInvalidRequestError) and isinstance(lm, LocalLM):
        return f"refuses the request ({said})", "take the format that does without it (--adapter compact)"
    if isinstance(error, LMInvalidRequestError):
        bare = not (base_of(lm) or "/v1").rstrip("/").endswith("/v1")
        if error.status == 404 and bare and lm.model.partition("/")[2] not in (error.message or ""):
            return f"refuses the request ({status}: {said})", _BASE
        return f"refuses the request ({status}: {said})", "is the model's name right, and does the server know it?"
    if isinstance(error, LMBillingError):
        return f"refuses for want of credit ({status}: {said})", "look at your account's plan and its limits"
    if error.status and 300 <= error.status < 400:
        remedy = "give that address, up to and with /v1, as --api-base, if it is the server's own"
        return f"sends on to another address ({status}: {said})", remedy
    if isinstance(error, LMProviderError | LMUnexpectedError) and base_of(lm):
        return f"sent no chat completion ({said})", _BASE
    if trouble := gpu_trouble(error.__cause__):
        return f"failed: {trouble[0]}", trouble[1]
    return f"failed ({said})", "this is not an error of your input"


def base_of(lm: dspy.BaseLM) -> str | None:
    """The URL of the LM's own endpoint, of one from `connect` or of DSPy's; None where it has none."""
    return lm.api_base if isinstance(lm, EndpointLM) else lm.kwargs.get("api_base")


def _redact(text: str, lm: dspy.BaseLM) -> str:
    """Servers repeat keys in their complaints, and clients addresses."""
    address = urlsplit(base_of(lm) or "")
    for secret in filter(None, (address.netloc.rpartition("@")[0], address.query)):
        text = text.replace(secret, "***")
    return without_keys(text, lm.kwargs.get("api_key"))


def without_keys(text: str, *keys: str | None) -> str:
    """What a server said, without the keys of the environment and those that are given."""
    known = {value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN"))}
    for key in {*known, *filter(None, keys)} - {"", "none", "EMPTY"}:  # a short one may be a part of words
        # Clients cut off what a server said, in the middle of a key, too.
        begun = (re.escape(key[:end]) for end in range(len(key), min(len(key), 8) - 1, -1))
        text = re.sub(rf"(?<!\w)(?:{'|'.join(begun)})(?!\w)", "***", text)
    return text
