"""What an artifact's manifest.json says, checked as it is read: one that was edited or torn is told as such."""

from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raisf.utils.errors import InputError
from raisf.utils.files import read_json, sha256_file

FORMAT, FORMAT_WITH_PROBES = 2, 3
"""Raised when an older version could not read what this one writes; 1 had no trained weights, 2 no probes."""
READABLE = (1, 2, 3)

MANIFEST, STATE = "manifest.json", "program.json"


class Connection(BaseModel):
    """The arguments of `raisf.lm.connect.connect`, and no others; `api_base` is told, and never opened."""

    model_config = ConfigDict(extra="forbid")

    spec: str
    adapter: Literal["chat", "compact", "pocket"] | None = None
    api_base: str | None = None
    temperature: float | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=1)
    completions: bool | None = None
    num_retries: int | None = Field(None, ge=0)
    timeout: float | None = Field(None, gt=0)
    probabilities: bool | None = None


class Sampling(BaseModel):
    """An LM's options beyond those that `connect` sets, as far as they are given; None takes one away."""

    model_config = ConfigDict(extra="forbid")

    temperature: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    reasoning_effort: str | None = None
    rollout_id: int | None = None
    cache: bool = True

    def told(self, lm: dspy.LM) -> dspy.LM:
        """The LM with these options."""
        settings = self.model_dump(exclude_unset=True)
        return lm.copy(**settings) if settings else lm


class KeptLM(BaseModel):
    """An LM, and who asks it; `relative` is where its folder lies from the artifact's, if it has one."""

    connect: Connection
    settings: Sampling = Sampling()
    predictors: list[str]
    relative: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What `raisf.lm.connect.connect` is told, but for the model and its address."""
        return self.connect.model_dump(exclude_none=True, exclude={"api_base", "spec"})


class KeptWeights(BaseModel):
    """A predictor's own weights: their hash, and the base with its hash; `relative` as of an LM."""

    kind: Literal["lora", "full", "probe"]
    sha256: str
    base: str
    relative: str | None = None


class KeptIndex(BaseModel):
    """An index: its folder, absolute and from the artifact's, or its server; neither where it was in memory."""

    path: str | None = None
    relative: str | None = None
    url: str | None = None
    corpus_sha256: str
    checkpoint_sha256: str | None = None


class Manifest(BaseModel):
    """A manifest.json, as far as it is read."""

    program: str
    options: dict[str, Any]
    parts: dict[str, dict[str, Any]] = {}
    modules: dict[str, dict[str, Any]] = {}
    lms: list[KeptLM]
    weights: dict[str, KeptWeights] = {}
    index: KeptIndex | None = None
    indexes: dict[str, KeptIndex] = {}
    """By the part of a user's own module, where that is another one."""
    compile: dict[str, Any] | None = None
    learnt_from: list[str] = []
    """A print of each question that it was compiled on (`raisf.utils.text.print_of`)."""


def read(folder: Path) -> Manifest:
    """The manifest of an artifact.

    Raises:
        InputError: No artifact there, one of another format, or it is damaged or changed.
    """
    if not folder.is_dir():
        raise InputError(f"no artifact at {folder}: give a folder made by `raisf compile`")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} is no artifact, it has no {MANIFEST}: give a folder made by `raisf compile`")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not {"format", "program", "state_sha256"} <= manifest.keys():
        raise InputError(f"{folder} is no artifact, its {MANIFEST} says other things: give one made by `raisf compile`")
    if manifest["format"] not in READABLE:
        raise InputError(
            f"the artifact {folder} has format {manifest['format']}, this version reads "
            f"{', '.join(map(str, READABLE))}: compile it again"
        )
    if not (folder / STATE).is_file():
        raise damaged(folder, f"{STATE} is missing")
    if sha256_file(folder / STATE) != manifest["state_sha256"]:
        raise damaged(folder, f"{STATE} has changed since it was saved")
    try:
        return Manifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise damaged(folder, f"{place} in {MANIFEST}: {first['msg']}") from error


def damaged(folder: Path, what: str) -> InputError:
    """The error that an artifact is damaged, and in what."""
    return InputError(f"the artifact {folder} is damaged ({what}): compile it again")


def format_of(weights: dict[str, Any]) -> int:
    """The format of an artifact with such weights: the oldest that has them, so that older versions read it too."""
    return FORMAT_WITH_PROBES if any(kept["kind"] == "probe" for kept in weights.values()) else FORMAT
