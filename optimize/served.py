"""An artifact whose weights a server holds: each predictor asks its own LoRA module there, all at one URL."""

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dspy

from raisf.lm.connect import check_url, connect
from raisf.lm.failures import without_keys
from raisf.optimize.manifest import KeptLM, Manifest
from raisf.utils.errors import InputError, LMError

SECONDS = 30
"""How long the server may take to say what it serves."""


def served_lms(folder: Path, manifest: Manifest, api_base: str) -> dict[str, dspy.LM]:
    """By predictor, the LM of an artifact that was made with a model in the process, asked at an endpoint instead.

    A predictor with a LoRA adapter asks the module that the server has under the predictor's name (vLLM) or under
    `BASE:NAME` (SGLang); any other one asks the base. They are asked in the formats that they had in the process. The
    server's URL goes up to and with `/v1`.

    Raises:
        InputError: The server has no such module, the artifact has weights that are no LoRA adapters, or the address or
            the key cannot be sent.
        LMError: It does not say what it serves.
    """
    if probes := [name for name, kept in manifest.weights.items() if kept.kind == "probe"]:
        raise InputError(
            f"the artifact {folder} has a probe for {probes[0]!r}, which reads hidden states, and servers of models "
            "give none: leave out --api-base (api_base=), or compile with --how weights, whose adapters they serve"
        )
    if whole := [name for name, kept in manifest.weights.items() if kept.kind != "lora"]:
        raise InputError(
            f"the artifact {folder} has a whole model of its own for {whole[0]!r}, no LoRA adapter: leave out "
            "--api-base (api_base=), or serve each model and set program.PREDICTOR.lm"
        )
    check_url("openai", api_base)
    models = _models(api_base)
    modules = {name: _module(name, models, api_base, folder) for name in manifest.weights}
    bases = _bases(models, set(modules.values()))
    lms: dict[str, dspy.LM] = {}
    for entry in manifest.lms:
        for name in entry.predictors:
            model = modules.get(name) or next(iter(bases), None)
            if name not in modules and len(bases) > 1:
                raise InputError(
                    f"{api_base} serves several models beside the modules ({_listed(bases[:5])}) and does not say "
                    "which is their base: serve it alone, or set program.PREDICTOR.lm"
                )
            if model is None:
                raise InputError(f"{api_base} serves no base model beside the modules {_listed(modules.values())}")
            lms[name] = _open(entry, model, api_base, name in modules)
    return lms


def _bases(models: list[dict[str, Any]], modules: set[str]) -> list[str]:
    """What may be the modules' base: what they name as their parent, else each model that is no module."""
    told = {str(one["parent"]) for one in models if one["id"] in modules and one.get("parent") is not None}
    others = [one["id"] for one in models if one.get("parent") is None and one["id"] not in modules]
    return [one for one in others if one in told] or others


def _open(entry: KeptLM, model: str, api_base: str, trained: bool) -> dspy.LM:
    bare = entry.options.get("adapter") in ("compact", "pocket")
    # What was trained in the chat format has learnt to write its verdicts between markers, not a label alone.
    options = {**entry.options, "completions": bare, "probabilities": bare or not trained}
    return entry.settings.told(connect(f"openai/{model}", api_base, **options))


def _module(name: str, models: list[dict[str, Any]], api_base: str, folder: Path) -> str:
    for model in models:
        if model["id"] == name or model["id"].endswith(f":{name}"):
            return model["id"]
    raise InputError(
        f"{api_base} serves {_listed(one['id'] for one in models) or 'nothing'}, and no LoRA module {name!r}: "
        f"{folder / 'README.md'} has the command that serves the artifact's"
    )


def _listed(served: Iterable[str]) -> str:
    """The names of models, as a server tells them: it may repeat the key that it was sent."""
    return without_keys(", ".join(served))


def _models(api_base: str) -> list[dict[str, Any]]:
    key = os.environ.get("OPENAI_API_KEY", "").strip() or "none"
    if not (key.isascii() and key.isprintable()):  # whoever refuses it in a header repeats it
        raise InputError("OPENAI_API_KEY in the environment has signs that no key has: copy it anew")
    url = f"{api_base.rstrip('/')}/models"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return [one for one in json.load(response)["data"] if isinstance(one["id"], str)]
    except urllib.error.HTTPError as error:
        refused = error.code in (401, 403)
        remedy = "check OPENAI_API_KEY in the environment" if refused else "is --api-base right, up to /v1?"
        raise LMError(f"{url} answers HTTP {error.code}: {remedy}") from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError, KeyError, TypeError) as error:
        said = without_keys(repr(error))
        raise LMError(
            f"{url} does not say what is served ({said}): is the server running, and --api-base right?"
        ) from error
