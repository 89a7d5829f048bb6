"""A Llama or a T5 in the process as a `dspy.LM`."""

import functools
import hashlib
import re
from pathlib import Path
from typing import Any

import dspy

from raisf.lm import pocket
from raisf.lm.adapter import adapter_named
from raisf.lm.local.engine import AsyncEngine, LoraEngine, engine_for
from raisf.lm.local.multi_lora import CONFIG, TRAINING, lora_hash
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

PREFIX = "local/"
# What a hub repository holds beside the weights in the one format that carries no code.
HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "tokenizer.model", "spiece.model"]


class LocalLM(dspy.LM):
    """A `dspy.LM` over the process's own engine: batched over threads, deterministic, cached, labels scored.

    The model string becomes `local/<path>#<hash of the weights>`: it is part of DSPy's cache key, so that weights that
    changed never meet answers of the old ones, and of a saved program's state, so that it is not run on others. With a
    LoRA adapter it is `local/<path>@<adapter's folder>#<hash of both>`; all adapters of a base share its engine.

    Args:
        model: `local/pocket` (or another of `pocket.WEIGHTS`), `local/<folder>` or `local/<hub id>`, with or without
            `@<adapter>` and `#<hash>`.
        temperature: 0 takes the likeliest token.
        max_tokens: the most tokens of a generated answer.
        adapter: `compact` (the default), `chat` or `pocket` (the pocket models' default); see `raisf.lm.adapter`.
        **kwargs: `dspy.LM`'s further options (`cache`, `callbacks`).

    Attributes:
        base: the base's model string, `local/<path>#<hash>`.
        lora: the folder of the LoRA adapter; None for the base itself.

    Raises:
        InputError: there are no usable weights, the hash is another, or the LoRA adapter was trained on another base.
    """

    completes_text = True  # the compact adapter may give it bare text and have labels scored

    def __init__(
        self, model: str, temperature: float = 0.0, max_tokens: int = 256, adapter: str | None = None, **kwargs: Any
    ):
        name, self.lora, expected = _parts(model.removeprefix(PREFIX))
        folder = weights_folder(name)
        found = weights_hash(folder)
        self.base = f"{PREFIX}{name}#{found}"
        shared = engine = engine_for(folder, found)
        if self.lora is not None:
            sha = lora_hash(self.lora)
            _check_base(self.lora, found, name)
            engine = LoraEngine(shared, self.lora, sha)
            found = hashlib.sha256(f"{found} {sha}".encode()).hexdigest()[:12]
        full = PREFIX + name + (f"@{self.lora}" if self.lora else "")
        if expected not in (None, found):
            raise InputError(
                f"the weights of {full} have changed: expected #{expected}, found #{found} in {self.lora or folder}. "
                f"Take {full} without the hash to use them as they are"
            )
        super().__init__(
            f"{full}#{found}",
            temperature=temperature,
            max_tokens=max_tokens,
            engine=engine,
            async_engine=AsyncEngine(engine),
            **{"num_retries": 0, **kwargs},
        )
        self.base_engine = shared
        self.adapter_name = adapter or ("pocket" if name in pocket.WEIGHTS else "compact")
        self.adapter = adapter_named(self.adapter_name)

    def with_weights(self, folder: Path) -> "LocalLM":
        """The same LM with what was trained on its base: a LoRA adapter, or a whole model."""
        base, _, _ = self.base.rpartition("#")
        model = f"{base}@{folder.resolve()}" if (folder / CONFIG).is_file() else f"{PREFIX}{folder.resolve()}"
        options = {name: self.kwargs[name] for name in ("temperature", "max_tokens")}
        return LocalLM(model, adapter=self.adapter_name, cache=self.cache, **options)

    def logprob(self, prompt: str, completion: str) -> tuple[float, int]:
        """How likely the model finds a completion of a text.

        It does not wait in the engine's queue: call it while no other thread asks a LoRA adapter of this base.

        Returns:
            The sum of the completion's log-probabilities (natural logarithm) and how many tokens it has.

        Raises:
            InputError: this LM answers with a LoRA adapter.
        """
        if self.lora is not None:
            raise InputError(f"{self.model} gives no log-probability of an answer, because of its LoRA adapter")
        engine = self.base_engine
        tokens, start = engine.text.completed(prompt, completion, True)
        return engine.compute.score(engine.model, [tokens], [start])[0], len(tokens) - start

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


def _parts(model: str) -> tuple[str, Path | None, str | None]:
    """The base, the adapter's folder and the hash of a model string; the paths in it may hold @ and # too."""
    found = re.fullmatch(r"(.*?)(?:#([0-9a-f]{12}))?", model, re.DOTALL)
    assert found is not None
    name, sha = found[1], found[2]
    ats = [place.start() for place in re.finditer("@", name)]
    for at in ats:
        if (Path(name[at + 1 :]).expanduser() / CONFIG).is_file():
            return name[:at], Path(name[at + 1 :]).expanduser().resolve(), sha
    if ats and not Path(name).expanduser().is_dir():
        lora_hash(Path(name[ats[0] + 1 :]))  # says what is missing there
    return name, None, sha


def _check_base(lora: Path, found: str, name: str) -> None:
    """Raise InputError if the adapter says that it was trained on another base."""
    trained = read_json(lora / TRAINING).get("base", "") if (lora / TRAINING).is_file() else ""
    base, _, expected = trained.rpartition("#")
    if expected not in ("", found):
        raise InputError(
            f"the LoRA adapter {lora} was trained on {base} with the weights #{expected}, and {PREFIX}{name} has "
            f"#{found}: give the base it was trained on, or train it again"
        )


def weights_folder(name: str) -> Path:
    """The folder of a local model: a pocket model's, a folder of that name, or the hub's copy of that id.

    Raises:
        InputError: there is none, or it is not a model in safetensors.
    """
    folder = pocket.path(name) if name in pocket.WEIGHTS else Path(name).expanduser().absolute()
    if not folder.is_dir():
        if name in pocket.WEIGHTS:
            raise InputError(f"the weights of {name} are not in {folder}: make them with `raisf pocket train`")
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
    patterns = ("*.safetensors", "*.json", "tokenizer.model", "spiece.model")
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        stat = path.stat()
        whole.update(f"{path.name} {_file_hash(path.resolve(), stat.st_mtime_ns, stat.st_size)}\n".encode())
    return whole.hexdigest()[:12]


@functools.cache
def _file_hash(path: Path, modified: int, size: int) -> str:
    """The file's hash, computed once: a Llama of 7 billion weights takes some ten seconds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
