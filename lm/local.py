"""A Llama in the process as a `dspy.LM`."""

import functools
import hashlib
from pathlib import Path
from typing import Any

import dspy

from data.errors import InputError
from lm import pocket
from lm.adapter import adapter_named
from lm.engine import AsyncEngine, engine_for

PREFIX = "local/"
# What a hub repository holds beside the weights in the one format that carries no code.
HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "tokenizer.model"]


class LocalLM(dspy.LM):
    """A `dspy.LM` over the process's own engine: batched over threads, deterministic, cached, labels scored.

    The model string becomes `local/<path>#<hash of the weights>`: it is part of DSPy's cache key, so that weights that
    changed never meet answers of the old ones, and of a saved program's state, so that it is not run on others.

    Args:
        model: `local/pocket`, `local/<folder>` or `local/<hub id>`, with or without `#<hash>`.
        temperature: 0 takes the likeliest token.
        max_tokens: the most tokens of a generated answer.
        adapter: `compact` (the default), `chat` or `pocket` (the pocket Llama's default); see `lm.adapter`.
        **kwargs: `dspy.LM`'s further options (`cache`, `callbacks`).

    Raises:
        InputError: there are no usable weights, or the hash is another.
    """

    completes_text = True  # the compact adapter may give it bare text and have labels scored

    def __init__(
        self, model: str, temperature: float = 0.0, max_tokens: int = 256, adapter: str | None = None, **kwargs: Any
    ):
        name, _, expected = model.removeprefix(PREFIX).partition("#")
        folder = weights_folder(name)
        found = weights_hash(folder)
        if expected not in ("", found):
            raise InputError(
                f"the weights of {PREFIX}{name} have changed: expected #{expected}, found #{found} in {folder}. "
                f"Take {PREFIX}{name} without the hash to use them as they are"
            )
        engine = engine_for(folder, found)
        super().__init__(
            f"{PREFIX}{name}#{found}",
            temperature=temperature,
            max_tokens=max_tokens,
            engine=engine,
            async_engine=AsyncEngine(engine),
            **{"num_retries": 0, **kwargs},
        )
        self.adapter_name = adapter or ("pocket" if name == "pocket" else "compact")
        self.adapter = adapter_named(self.adapter_name)

    def dump_state(self) -> dict[str, Any]:
        """What `load_state` needs; the engine is found again by the model string."""
        return {**dspy.BaseLM.dump_state(self), "adapter": self.adapter_name}

    @classmethod
    def load_state(cls, state: dict[str, Any], *, allow_custom_lm_class: bool = False) -> "LocalLM":
        """The LM of a saved state.

        Raises:
            InputError: the weights are gone or others.
        """
        return cls(**{name: value for name, value in state.items() if name not in ("_dspy_lm_class", "model_type")})


def weights_folder(name: str) -> Path:
    """The folder of a local model: the pocket Llama's, a folder of that name, or the hub's copy of that id.

    Raises:
        InputError: there is none, or it is not a model in safetensors.
    """
    folder = pocket.path() if name == "pocket" else Path(name).expanduser()
    if not folder.is_dir():
        if name == "pocket":
            raise InputError(f"the pocket Llama's weights are not in {folder}: make them with `raisf pocket train`")
        folder = _from_hub(name)
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no model: there is no config.json in it, as Hugging Face models have")
    if not list(folder.glob("*.safetensors")):
        found = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights"
        raise InputError(
            f"{folder} holds no *.safetensors ({found}). Other formats can run code when loaded and are not read: "
            "load the model where you trust it and save it with save_pretrained()"
        )
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except HFValidationError:
        raise InputError(f"{PREFIX}{name}: there is no folder {Path(name).absolute()}, and it is no hub id") from None
    except Exception as error:  # no network, no such repository, no access: the hub's client has a class for each
        raise InputError(
            f"{PREFIX}{name}: there is no folder {Path(name).absolute()}, and the Hugging Face hub gave no such model "
            f"({type(error).__name__}). Check the name; for a gated model log in with `hf auth login`"
        ) from error


def weights_hash(folder: Path) -> str:
    """Twelve hex digits that change with the weights, the tokenizer or the configuration."""
    whole = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json"), *folder.glob("tokenizer.model")]):
        stat = path.stat()
        whole.update(f"{path.name} {_file_hash(path.resolve(), stat.st_mtime_ns, stat.st_size)}\n".encode())
    return whole.hexdigest()[:12]


@functools.cache
def _file_hash(path: Path, modified: int, size: int) -> str:
    """The file's hash, computed once: a Llama of 7 billion weights takes some ten seconds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
