"""Probes: labels read off a base's hidden states by a logistic regression, instead of off the label tokens.

What a model writes about its own knowledge says less than what it computes on the way there. A probe is a kind of
weights of a base, as a LoRA adapter is: some kilobytes in a folder, `probe.json` and `probe.safetensors`. The base's
forward pass stays as it is, so judges with different probes, with adapters and with none share a batch.

Source:
    Azaria and Mitchell 2023, arXiv 2304.13734; for when to retrieve, arXiv 2410.13339.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.lm.local.weights import hash_of_files
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBE, STATES = "probe.json", "probe.safetensors"
FORMAT = 1
# A feature that hardly varies is no evidence: divided by its own spread, rounding would be.
LEAST_SCALE = 1e-6


@dataclass(frozen=True, eq=False)
class Probe:
    """A multinomial logistic regression on the hidden state at a prompt's last token.

    Attributes:
        labels: In the order of the weights' rows.
        layer: Whose output is read: 1 is the first, the model's number of layers the last (behind the final norm).
        weight: (labels, width) on standardised features.
        bias: (labels,).
        mean: (width,) of the features in training.
        scale: (width,) their standard deviations.
    """

    labels: tuple[str, ...]
    layer: int
    weight: np.ndarray
    bias: np.ndarray
    mean: np.ndarray
    scale: np.ndarray

    def logits(self, states: np.ndarray) -> np.ndarray:
        """(n, labels) for states (n, width); float64, so that a row's do not depend on its neighbours."""
        features = (np.asarray(states, np.float64) - self.mean) / self.scale
        return features @ self.weight.T.astype(np.float64) + self.bias

    def probabilities(self, state: np.ndarray) -> dict[str, float]:
        """Of each label, for one state (width,)."""
        from scipy.special import softmax

        found = softmax(self.logits(state[None])[0])
        return dict(zip(self.labels, found.tolist(), strict=True))

    def write(self, folder: Path, report: dict[str, Any]) -> None:
        """Writes it into a folder, with a report that has at least the `base`'s model string."""
        from safetensors.numpy import save_file

        tensors = {name: getattr(self, name).astype(np.float32) for name in TENSORS}
        save_file(tensors, folder / STATES)
        write_json(folder / PROBE, {"format": FORMAT, "labels": list(self.labels), "layer": self.layer, **report})


TENSORS = ("weight", "bias", "mean", "scale")


def read_probe(folder: Path) -> Probe:
    """The probe of a folder, checked.

    Raises:
        InputError: There is none, or it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    told = read_report(folder)
    labels, layer = told["labels"], told["layer"]
    try:
        tensors = load_file(folder / STATES)
    except SafetensorError as error:
        raise _damaged(folder, f"{STATES}: {error}") from error
    if sorted(tensors) != sorted(TENSORS):
        raise _damaged(folder, f"{STATES} holds {', '.join(sorted(tensors)) or 'nothing'}")
    width = tensors["mean"].shape
    shapes = {"weight": (len(labels), *width), "bias": (len(labels),), "mean": width, "scale": width}
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32 or len(width) != 1 or tensor.shape != shapes[name]:
            raise _damaged(folder, f"{name} is {tensor.dtype} {tensor.shape}")
        if not np.isfinite(tensor).all():
            raise _damaged(folder, f"{name} holds what is no number")
    if not (tensors["scale"] > 0).all():
        raise _damaged(folder, "scale holds what is no spread")
    return Probe(tuple(labels), layer, **tensors)


def read_report(folder: Path) -> dict[str, Any]:
    """What a probe's probe.json says: the base, the labels, the layer, and how it was fitted.

    Raises:
        InputError: There is no probe, or it is damaged.
    """
    _check_there(folder)
    told = read_json(folder / PROBE)
    if not isinstance(told, dict):
        raise _damaged(folder, f"{PROBE} says other things")
    if told.get("format") != FORMAT:
        raise InputError(
            f"the probe {folder} has format {told.get('format')}, this version reads {FORMAT}: fit it again"
        )
    labels: Any = told.get("labels")
    layer = told.get("layer")
    named = isinstance(labels, list) and len(labels) > 1 and all(isinstance(label, str) for label in labels)
    if not named or len(set(labels)) < len(labels):
        raise _damaged(folder, f"labels in {PROBE} is {labels!r}")
    if type(layer) is not int or layer < 1:
        raise _damaged(folder, f"layer in {PROBE} is {layer!r}")
    if not isinstance(told.get("base"), str):
        raise _damaged(folder, f"{PROBE} names no base")
    return told


def probe_hash(folder: Path) -> str:
    """Twelve hex digits that change with the probe.

    Raises:
        InputError: There is none.
    """
    _check_there(folder)
    return hash_of_files(folder, PROBE, STATES)


def _check_there(folder: Path) -> None:
    if not (folder / PROBE).is_file() or not (folder / STATES).is_file():
        raise InputError(f"no probe at {folder}: expected {PROBE} and {STATES}, as raisf compile --how probe saves it")


class Probes:
    """The probes of one base model, each read once.

    Args:
        model: The base.
    """

    def __init__(self, model: "PreTrainedModel"):
        self._model = model
        self._found: dict[str, Probe] = {}

    @property
    def layers(self) -> range:
        """The numbers of the base's layers.

        Raises:
            InputError: It is an encoder-decoder.
        """
        if self._model.config.is_encoder_decoder:
            raise InputError(
                f"a probe reads the hidden states of a causal model, and {self._model.config.model_type} is an "
                "encoder-decoder: take another base (--base), or --how weights"
            )
        return range(1, self._model.config.get_text_config().num_hidden_layers + 1)

    def wanted(self, layers: Sequence[int] | None) -> tuple[int, ...]:
        """These layers, or all for None; raises InputError for one that the base has not."""
        known = self.layers
        if strange := [layer for layer in layers or () if layer not in known]:
            raise InputError(f"there is no layer {strange[0]}: the model has the layers 1 to {known[-1]}")
        return tuple(layers or known)

    def open(self, folder: Path, sha: str) -> Probe:
        """A probe of this base.

        Args:
            folder: Where it lies.
            sha: Its hash, as `probe_hash` gives it.

        Raises:
            InputError: It is damaged, of another base, or its hash is another by now.
        """
        if sha not in self._found:
            if (found := probe_hash(folder)) != sha:
                raise InputError(f"the probe {folder} has changed: expected {sha}, found {found}; open it anew")
            layers, probe, width = self.layers, read_probe(folder), self._model.config.get_text_config().hidden_size
            if probe.layer not in layers or len(probe.mean) != width:
                raise InputError(
                    f"the probe {folder} is of another base: it reads layer {probe.layer} of width {len(probe.mean)}, "
                    f"and this one has {len(layers)} layers of width {width}"
                )
            self._found[sha] = probe
        return self._found[sha]


def check_labels(probe: Probe, asked: Sequence[str]) -> None:
    """Raise InputError unless a call asks for the very labels that the probe knows."""
    if set(asked) != set(probe.labels):
        raise InputError(
            f"the probe knows the labels {', '.join(probe.labels)}, and is asked for {', '.join(asked)}: give each "
            "predictor the LM with its own probe, and the others the base"
        )


def _damaged(folder: Path, what: str) -> InputError:
    return InputError(f"the probe {folder} is damaged ({what}): fit or copy it again")
