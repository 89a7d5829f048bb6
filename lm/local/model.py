"""A Llama or a T5 in the process as a `dspy.LM`."""

import hashlib
import re
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from raisf.lm import pocket
from raisf.lm.adapter import CompactAdapter, adapter_named
from raisf.lm.chat_format import ChatCall, chat_call
from raisf.lm.local.clients import AsyncEngineClient, EngineClient
from raisf.lm.local.engine import engine_for
from raisf.lm.local.gguf import SHIPPED
from raisf.lm.local.multi_lora import CONFIG, TRAINING, lora_hash
from raisf.lm.local.weights import PREFIX, choose_precision, same_weights, weights_folder, weights_hash
from raisf.utils.errors import InputError
from raisf.utils.files import read_json


class LocalLM(dspy.LM):
    """A `dspy.LM` over the process's own engine: batched over threads, deterministic, cached, labels scored.

    The model string becomes `local/<path>#<hash of the weights>`: it is part of DSPy's cache key, so that weights that
    changed never meet answers of the old ones, and of a saved program's state, so that it is not run on others. With a
    LoRA adapter it is `local/<path>@<adapter's folder>#<hash of both>`; all adapters of a base share its engine. A
    precision other than the default follows the hash: `local/<path>#<hash>-bfloat16`.

    It is always spoken to in its own format. What one of DSPy's adapters asks (`dspy.Predict` anywhere, without
    `raisf`) is put into that format, and the answer given back in the one that was asked for.

    Args:
        model: `local/pocket` (or another of `pocket.WEIGHTS`), `local/<folder>` or `local/<hub id>`, with or without
            `@<adapter>` and `#<hash>`.
        temperature: 0 takes the likeliest token.
        max_tokens: the most tokens of a generated answer.
        adapter: `compact` (the default), `chat` or `pocket` (the pocket models' default); see `raisf.lm.adapter`.
        dtype: `float32`, `bfloat16` or `default`; None takes the model string's, and where that has no hash, what
            `raisf.lm.local.weights.choose_precision` chooses.
        **kwargs: `dspy.LM`'s further options (`cache`, `callbacks`).

    Attributes:
        base: the base's model string, `local/<path>#<hash>`.
        lora: the folder of the LoRA adapter; None for the base itself.
        precision: None for the default one.

    Raises:
        InputError: there are no usable weights, the hash is another, or the LoRA adapter was trained on another base.
    """

    completes_text = True  # the compact adapter may give it bare text and have labels scored

    def __init__(
        self,
        model: str,
        temperature: float = 0.0,
        max_tokens: int = 256,
        adapter: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        name, self.lora, expected, precision = _parts(model.removeprefix(PREFIX))
        folder = weights_folder(name)
        found = weights_hash(folder)
        if dtype is None and expected is not None:
            dtype = precision or "default"
        self.precision = choose_precision(folder, dtype)
        suffix = f"-{self.precision}" if self.precision else ""
        self.base = f"{PREFIX}{name}#{found}{suffix}"
        named = name in pocket.WEIGHTS or name in SHIPPED or not Path(name).expanduser().is_dir()
        shared = engine_for(folder, found, self.precision, name if named else "")
        engine = EngineClient(shared)
        if self.lora is not None:
            sha = lora_hash(self.lora)
            _check_base(self.lora, folder, name)
            engine = EngineClient(shared, (self.lora, sha))
            found = hashlib.sha256(f"{found} {sha}".encode()).hexdigest()[:12]
        full = PREFIX + name + (f"@{self.lora}" if self.lora else "")
        if expected not in (None, found) and (self.lora is not None or not same_weights(expected, folder)):
            raise InputError(
                f"the weights of {full} have changed: expected #{expected}, found #{found} in {self.lora or folder}. "
                f"Take {full} without the hash to use them as they are"
            )
        super().__init__(
            f"{full}#{found}{suffix}",
            temperature=temperature,
            max_tokens=max_tokens,
            engine=engine,
            async_engine=AsyncEngineClient(engine),
            **{"num_retries": 0, **kwargs},
        )
        self.base_engine = shared
        own = SHIPPED[name].adapter if name in SHIPPED else "pocket" if name in pocket.WEIGHTS else "compact"
        self.adapter_name = adapter or own
        self.adapter: Any = adapter_named(self.adapter_name)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer a prompt, messages or a typed request."""
        call = self._chat_call(messages)
        if call is None:
            return super().__call__(prompt, messages=messages, **kwargs)
        return [call.answer(fields) for fields in self._fields(call, kwargs)]

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same, awaited."""
        call = self._chat_call(messages)
        if call is None:
            return await super().acall(prompt, messages=messages, **kwargs)
        return [call.answer(fields) for fields in await self._afields(call, kwargs)]

    def _fields(self, call: ChatCall, options: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            return self.adapter.ask(self, options, call.signature, call.demos, call.inputs, call.markers)
        except AdapterParseError as error:
            found, rest = self._rest(call, error)
            return [found | fields for fields in self._fields(rest, options)]

    async def _afields(self, call: ChatCall, options: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            return await self.adapter.aask(self, options, call.signature, call.demos, call.inputs, call.markers)
        except AdapterParseError as error:
            found, rest = self._rest(call, error)
            return [found | fields for fields in await self._afields(rest, options)]

    def _rest(self, call: ChatCall, error: AdapterParseError) -> tuple[dict[str, Any], ChatCall]:
        """What was found of an answer that is not whole, and the call that asks for what is missing."""
        found = self.adapter.sections(call.signature, error.lm_response)
        if (rest := call.after(found)) is None:
            raise error
        return found, rest

    def _chat_call(self, messages: Any) -> ChatCall | None:
        """What one of DSPy's adapters asks, where this LM is spoken to in another format."""
        return chat_call(messages) if messages and isinstance(self.adapter, CompactAdapter) else None

    def with_weights(self, folder: Path) -> "LocalLM":
        """The same LM with what was trained on its base: a LoRA adapter, or a whole model."""
        base, _, _ = self.base.rpartition("#")
        model = f"{base}@{folder.resolve()}" if (folder / CONFIG).is_file() else f"{PREFIX}{folder.resolve()}"
        options = {name: self.kwargs[name] for name in ("temperature", "max_tokens")}
        precision = self.precision or "default"
        return LocalLM(model, adapter=self.adapter_name, dtype=precision, cache=self.cache, **options)

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


def _parts(model: str) -> tuple[str, Path | None, str | None, str | None]:
    """The base, the adapter's folder, the hash and the precision of a model string; its paths may hold @ and # too."""
    found = re.fullmatch(r"(.*?)(?:#([0-9a-f]{12})(?:-(\w+))?)?", model, re.DOTALL)
    assert found is not None
    name, sha, precision = found[1], found[2], found[3]
    ats = [place.start() for place in re.finditer("@", name)]
    for at in ats:
        if (Path(name[at + 1 :]).expanduser() / CONFIG).is_file():
            return name[:at], Path(name[at + 1 :]).expanduser().resolve(), sha, precision
    if ats and not Path(name).expanduser().is_dir():
        lora_hash(Path(name[ats[0] + 1 :]))  # says what is missing there
    return name, None, sha, precision


def _check_base(lora: Path, folder: Path, name: str) -> None:
    """Raise InputError if the adapter says that it was trained on another base."""
    trained = read_json(lora / TRAINING).get("base", "") if (lora / TRAINING).is_file() else ""
    base, _, expected = trained.rpartition("#")
    if expected and not same_weights(expected, folder):  # it fits its base in any precision
        raise InputError(
            f"the LoRA adapter {lora} was trained on {base} with the weights #{expected.partition('-')[0]}, and "
            f"{PREFIX}{name} has #{weights_hash(folder)}: give the base it was trained on, or train it again"
        )
