"""What a saved program may set, and nothing else: a file from a stranger is data, whatever its hash says.

A predictor's state is what it shows and tells the LM. Where a request goes, and with which key, is the caller's alone.
"""

from typing import Any

import dspy

from raisf.utils.errors import InputError
from raisf.utils.predictors import all_predictors

OPTIONS = "options"
"""Where a program's own options stand beside the states of its predictors."""

OF_PREDICTOR = {"demos", "signature", "traces", "train", "fields", "lm", "config"}
OF_LM = {"_dspy_lm_class", "model", "model_type", "adapter", "cache", "num_retries", "finetuning_model"}
OF_GENERATION = {
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "n", "seed", "stop", "rollout_id",
    "presence_penalty", "frequency_penalty", "reasoning_effort",
}  # fmt: skip
PROVIDERS = {"local", "openai", "anthropic", "gemini", "mistral", "deepseek", "groq", "xai", "cohere"}
"""Who may be named: what runs in the process, and companies that serve their own models at one address, known to DSPy.

Not those that run anybody's model or take the address from the model's name or a setting (azure, huggingface,
replicate, ollama, hosted_vllm, custom_openai, ...)."""
CLIENTS = {"dspy.clients.typesafe.TypeSafe"}
"""Clients of a service that DSPy would open at a saved state's word; any other class it refuses by itself."""
EMPTY = {"launch_kwargs", "train_kwargs", "prompt_cache"}
"""What DSPy writes of every LM, mostly with nothing in it."""


def harmless(state: Any) -> tuple[dict[str, Any], list[str]]:
    """A saved state without what it may not set, and the names of that: an endpoint, a key, a header, whatever is new.

    Args:
        state: What `dump_state` gave, by predictor.

    Raises:
        InputError: It is no such state.
    """
    if not isinstance(state, dict):
        raise InputError(f"this is no program's state: found {type(state).__name__}")
    kept, dropped = dict(state), []
    for name, predictor in state.items():
        if name in (OPTIONS, "metadata") or not isinstance(predictor, dict):
            continue
        kept[name] = _only(predictor, OF_PREDICTOR, name, dropped)
        _check_what_is_shown(predictor, name)
        if predictor.get("config"):
            kept[name]["config"] = _only(predictor["config"], OF_GENERATION, f"{name}.config", dropped)
        if predictor.get("lm"):
            filled = {key: value for key, value in predictor["lm"].items() if value or key not in EMPTY}
            kept[name]["lm"] = _only(filled, OF_LM | OF_GENERATION, f"{name}.lm", dropped)
            model = str(kept[name]["lm"].get("model"))
            if not may_name(model) or kept[name]["lm"].get("_dspy_lm_class") in CLIENTS:
                kept[name]["lm"] = None
                dropped.append(f"{name}.lm.model {model}")
    return kept, dropped


def check_fields(program: dspy.Module, state: dict[str, Any]) -> None:
    """Makes sure that a state is of predictors with as many fields: DSPy would give each the next one's description.

    Raises:
        InputError: A predictor has others than when it was saved, such as one that reasons first.
    """
    for name, predictor in all_predictors(program):
        signature: Any = state[name].get("signature") if isinstance(state.get(name), dict) else None
        kept = signature.get("fields") if isinstance(signature, dict) else None
        shape: Any = predictor.signature
        has = list(shape.fields)
        if isinstance(kept, list) and len(kept) != len(has):
            said = ", ".join(str(field.get("prefix", "?")).rstrip(": ") for field in kept if isinstance(field, dict))
            raise InputError(
                f"{name} was saved with the fields {said}, and this program's has {', '.join(has)}: give it the "
                "predictor that it had, such as a dspy.ChainOfThought, before you load"
            )


def may_name(model: str) -> bool:
    """Whether a file from a stranger may name this LM: a local one, or a model of a provider whose address is known."""
    provider, _, rest = model.partition("/")
    return provider in PROVIDERS and "://" not in rest


def _check_what_is_shown(predictor: dict[str, Any], name: str) -> None:
    """Raise InputError unless demonstrations, instructions and fields are such: DSPy would fail at the first call."""
    demos, signature = predictor.get("demos", []), predictor.get("signature", {})
    if not isinstance(demos, list) or not all(isinstance(demo, dict | dspy.Example) for demo in demos):
        raise InputError(f"{name}.demos in the saved program is {demos!r:.80}: the file is damaged")
    told = signature if isinstance(signature, dict) else {"instructions": None}
    fields = told.get("fields", [])
    texts = [told.get("instructions", "")]
    for field in fields if isinstance(fields, list) else [fields]:
        texts += field.values() if isinstance(field, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name}.signature in the saved program is {signature!r:.80}: the file is damaged")


def _only(given: Any, names: set[str], where: str, dropped: list[str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InputError(f"{where} in the saved program is {given!r:.80}: the file is damaged")
    dropped += [f"{where}.{name}" for name in sorted(given.keys() - names)]
    return {name: value for name, value in given.items() if name in names}
