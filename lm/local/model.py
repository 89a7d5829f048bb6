"""A Llama or a T5 in the process as a `dspy.LM`."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.lm15 import Config, Message, Request
from dspy.utils.exceptions import AdapterParseError

from raisf.lm import pocket
from raisf.lm.adapter import COMPLETION, CompactAdapter, adapter_named
from raisf.lm.local.clients import AsyncEngineClient, EngineClient, Recorder
from raisf.lm.local.engine import engine_for
from raisf.lm.local.gguf import SHIPPED
from raisf.lm.local.inference import context_of
from raisf.lm.local.jobs import DEFAULT_MAX_TOKENS, batches
from raisf.lm.local.multi_lora import CONFIG, TRAINING, lora_hash
from raisf.lm.local.probes import PROBE, probe_hash, read_report
from raisf.lm.local.weights import (
    PREFIX,
    choose_precision,
    same_weights,
    weights_folder,
    weights_hash,
    weights_hashes,
)
from raisf.lm.own_format import OwnFormat
from raisf.utils.errors import InputError
from raisf.utils.files import expanded, read_json


class LocalLM(OwnFormat):
    """A `dspy.LM` over the process's own engine: batched over threads, deterministic, cached, labels scored.

    The model string becomes `local/<path>#<hash of the weights>`: it is part of DSPy's cache key, so that weights that
    changed never meet answers of the old ones, and of a saved program's state, so that it is not run on others. With a
    LoRA adapter it is `local/<path>@<adapter's folder>#<hash of both>`; all adapters of a base share its engine. So it
    is with a probe (`raisf.lm.local.probes`), which judges in place of the label tokens; what is written is the base's.
    A precision other than float32 follows the hash: `local/<path>#<hash>-bfloat16`; so does float32 where a GPU would
    take another.

    It is always spoken to in its own format.

    Args:
        model: `local/pocket` (or another of `pocket.WEIGHTS`), `local/<folder>` or `local/<hub id>`, with or without
            `@<adapter or probe>` and `#<hash>`.
        temperature: 0 takes the likeliest token.
        max_tokens: the most tokens of a generated answer.
        adapter: `compact` (the default), `chat` or `pocket` (the pocket models' default); see `raisf.lm.adapter`.
        dtype: `float32`, `bfloat16` or `default`; None takes the model string's, and where that has no hash, what
            `raisf.lm.local.weights.choose_precision` chooses.
        **kwargs: `dspy.LM`'s further options (`cache`, `callbacks`).

    Attributes:
        base: the base's model string, `local/<path>#<hash>`.
        weights: the model string without the folders that files lie in: the same wherever the same weights lie.
        lora: the folder of the LoRA adapter; None for the base itself.
        probe: the folder of the probe that gives the probabilities of labels; None where the label tokens do.
        precision: None for float32.

    Raises:
        InputError: there are no usable weights, the hash is another, or the LoRA adapter or the probe is damaged or
            was made on another base.
    """

    def __init__(
        self,
        model: str,
        temperature: float = 0.0,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        adapter: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        name, own, expected, precision = _parts(model.removeprefix(PREFIX))
        self.probe = own if own and (own / PROBE).is_file() else None
        self.lora = own if own and not self.probe else None
        folder = weights_folder(name)
        found, *formerly = weights_hashes(folder)
        if dtype is None and expected is not None:
            dtype = precision or "default"
        self.precision = choose_precision(folder, dtype)
        suffix = f"-{self.precision}" if self.precision else ""
        self.base = f"{PREFIX}{name}#{found}{suffix}"
        # A pickled engine is found from any folder; the model string stays as it was given.
        place = expanded(name)
        named = name in pocket.WEIGHTS or name in SHIPPED or not place.exists()
        shared = engine_for(folder, found, self.precision, name if named else str(place.absolute()))
        own_weights = _own_weights(self.lora, self.probe, folder, name)
        engine = EngineClient(shared, **own_weights)
        for _, sha in own_weights.values():
            both = [hashlib.sha256(f"{one} {sha}".encode()).hexdigest()[:12] for one in (found, *formerly)]
            found, *formerly = both
        full = PREFIX + name + (f"@{own}" if own else "")
        if expected not in (None, found, *formerly):
            raise InputError(
                f"the weights of {full} have changed: expected #{expected}, found #{found} in {own or folder}. "
                "Compile again what was made with the others (experiments: give another --out), or name "
                f"{full} without the hash to use these as they are"
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
        self.weights = f"{PREFIX}{name if named else ''}{'@' if own else ''}#{found}{suffix}"
        self.adapter_name = adapter or ("pocket" if name in pocket.WEIGHTS else "compact")
        self.adapter: Any = adapter_named(self.adapter_name)
        if self.probe is not None:
            self._judge_by_probe()

    def _judge_by_probe(self) -> None:
        """Lets the adapters ask for the probabilities of labels where label tokens are written otherwise."""
        self.scores_bools = True
        if not isinstance(self.adapter, CompactAdapter):  # which scores labels whoever is asked
            self.scores_labels = True

    def with_weights(self, folder: Path) -> "LocalLM":
        """The same LM with what was trained on its base: a LoRA adapter, a probe, or a whole model."""
        base, _, _ = self.base.rpartition("#")
        beside = any((folder / name).is_file() for name in (CONFIG, PROBE))
        model = f"{base}@{folder.resolve()}" if beside else f"{PREFIX}{folder.resolve()}"
        options = {name: value for name, value in self.kwargs.items() if value is not None}
        options |= {"callbacks": self.callbacks, "cache": self.cache}
        return LocalLM(model, adapter=self.adapter_name, dtype=self.precision or "default", **options)

    def finetune(self, *given: Any, **options: Any) -> Any:
        """No provider trains it, and rows of DSPy's are not in its format.

        Raises:
            InputError: Always.
        """
        raise InputError(
            f"{self.model} is no provider's, as dspy.BootstrapFinetune wants: raisf.FinetuneJudges trains it, within "
            "dspy.BetterTogether too"
        )

    def logprob(self, prompt: str, completion: str) -> tuple[float, int]:
        """How likely the model finds a completion of a text; see `logprobs`."""
        return self.logprobs([(prompt, completion)])[0]

    def logprobs(self, asked: Sequence[tuple[str, str]]) -> list[tuple[float, int]]:
        """How likely the model finds completions of texts, in as few forward passes as batches allow.

        It does not wait in the engine's queue.

        Args:
            asked: A prompt and its completion each.

        Returns:
            Of each the sum of the completion's log-probabilities (natural logarithm) and how many tokens it has.

        Raises:
            InputError: this LM answers with a LoRA adapter, or a text is longer than the model reads.
        """
        if self.lora is not None:
            raise InputError(f"{self.model} gives no log-probability of an answer, because of its LoRA adapter")
        engine = self.base_engine
        plain, completed = engine.text.plain, engine.text.completed
        rows = [completed(plain(prompt, self._marks), plain(end, self._marks), True) for prompt, end in asked]
        if max((len(tokens) for tokens, _ in rows), default=0) > context_of(engine.model):
            raise InputError("the prompt is longer than the model reads: give shorter passages")
        sums: list[float] = []
        for batch in batches([len(tokens) for tokens, _ in rows], engine.model.device.type):
            sequences, starts = zip(*(rows[place] for place in batch), strict=True)
            sums += engine.compute.score(engine.twin, list(sequences), list(starts))
        return [(total, len(tokens) - start) for total, (tokens, start) in zip(sums, rows, strict=True)]

    def hidden(self, prompts: Sequence[str | Request], layers: Sequence[int] | None = None) -> list[np.ndarray | None]:
        """The base's hidden states at the last token of each prompt, in as few forward passes as batches allow.

        Args:
            prompts: Bare texts, which the base reads as they are; or requests, as `recorded` gives them.
            layers: Whose outputs, 1 the first, the number of layers the last (behind the final norm); None for all.

        Returns:
            For each prompt (layers, width) in float32, whatever the base computes in; None where the prompt is longer
            than the context.

        Raises:
            InputError: The base is an encoder-decoder, or has no such layer.
        """
        texts = Config(extensions=COMPLETION, stop=self._marks)
        asked = [
            Request(model=self.model, messages=(Message.user(one),), config=texts) if isinstance(one, str) else one
            for one in prompts
        ]
        return self.base_engine.hidden(asked, layers)

    @property
    def _marks(self) -> tuple[str, ...]:
        """What a bare text may hold that is more than text: the adapter's end mark."""
        return (self.adapter.stop,) if isinstance(self.adapter, CompactAdapter) else ()

    def recorded(self, ask: Callable[["LocalLM"], Any]) -> list[Request]:
        """The requests of calls to this LM, with a probe for each choice of labels; none is answered.

        Args:
            ask: Makes the calls to the LM that it is given. What it gets back are even probabilities and empty texts.
        """
        recorder = Recorder()
        lm: Any = self.copy(engine=recorder)
        lm.cache = False
        lm._judge_by_probe()
        with contextlib.suppress(AdapterParseError):
            ask(lm)
        return recorder.seen

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
    """The base, the folder beside it, hash and precision of a model string; its paths may hold @ and # too."""
    found = re.fullmatch(r"(.*?)(?:#([0-9a-f]{12})(?:-(\w+))?)?", model, re.DOTALL)
    assert found is not None
    name, sha, precision = found[1], found[2], found[3]
    ats = [place.start() for place in re.finditer("@", name)]
    for at in ats:
        beside = expanded(name[at + 1 :])
        if any((beside / file).is_file() for file in (CONFIG, PROBE)):
            return name[:at], beside.resolve(), sha, precision
    if ats and not expanded(name).is_dir():
        lora_hash(Path(name[ats[0] + 1 :]))  # says what is missing there
    return name, None, sha, precision


def _own_weights(lora: Path | None, probe: Path | None, base: Path, name: str) -> dict[str, tuple[Path, str]]:
    """What an engine's client takes beside the base: the adapter or the probe with its hash, made on this very base."""
    if lora is not None:
        sha = lora_hash(lora)
        _check_base(f"the LoRA adapter {lora} was trained", _trained_on(lora), base, name)
        return {"lora": (lora, sha)}
    if probe is not None:
        sha = probe_hash(probe)
        _check_base(f"the probe {probe} was fitted", read_report(probe)["base"], base, name)
        return {"probe": (probe, sha)}
    return {}


def _trained_on(lora: Path) -> str:
    """The base of an adapter that was trained here, "" of others': their programs write files of that name, too."""
    told = read_json(lora / TRAINING) if (lora / TRAINING).is_file() else None
    base = told.get("base") if isinstance(told, dict) else None
    return base if isinstance(base, str) else ""


def _check_base(made: str, trained: str, folder: Path, name: str) -> None:
    """Raise InputError if what lies beside a base, by what it says, was made on another one."""
    base, told, expected = trained.rpartition("#")
    if told and not same_weights(expected, folder):  # it fits its base in any precision
        raise InputError(
            f"{made} on {base} with the weights #{expected.partition('-')[0]}, and "
            f"{PREFIX}{name} has #{weights_hash(folder)}: give the base it was trained on, or train it again"
        )
