"""The trained weights of an artifact: LoRA adapters, probes or whole models in folders of their own, with hashes."""

import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dspy

from raisf.lm.local.gguf import SHIPPED, converted_folder
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, TRAINING, lora_hash
from raisf.lm.local.probes import PROBE, probe_hash, read_probe
from raisf.lm.local.weights import PREFIX, same_weights, weights_folder, weights_hash
from raisf.lm.pocket import WEIGHTS
from raisf.optimize.manifest import KeptWeights, damaged
from raisf.utils.errors import InputError
from raisf.utils.files import expanded, link_or_copy, read_json, relative_path, write_text
from raisf.utils.predictors import all_predictors

ADAPTERS, README = "adapters", "README.md"
LONGEST_NAME = 200
"""Bytes of a predictor's name, which its folder has."""
# What a trainer leaves beside them, such as its checkpoints and pickles, stays where it is.
_WEIGHTS_AND_WORDS = {".safetensors", ".json", ".jinja", ".model", ".txt"}


def trained_folder(lm: Any) -> Path | None:
    """The folder of the weights trained for this LM: its adapter's, its probe's, or a model's that was trained here."""
    if not isinstance(lm, LocalLM):
        return None
    beside = lm.lora or lm.probe
    folder = beside or lm.base_engine.folder
    return folder if beside or _was_trained_here(folder) else None


def _was_trained_here(folder: Path) -> bool:
    """Whether a model's folder tells of a training here; other programs write files of that name, too."""
    try:
        told = read_json(folder / TRAINING)
    except (InputError, OSError):
        return False
    return isinstance(told, dict) and all(isinstance(told.get(name), str) for name in ("base", "identity"))


def check_folder_name(name: str) -> None:
    """Raise InputError for a predictor's name that its weights cannot be kept under."""
    if "/" in name or len(name.encode()) > LONGEST_NAME:
        raise InputError(f"{name!r:.80} cannot name a folder, as its weights need: call the predictor otherwise")


def base_kept(base: str, artifact: Path) -> tuple[str, dict[str, str]]:
    """A base's model string with its folder absolute, and under `relative` where that lies from the artifact's.

    A base without a folder of its own (shipped, of the hub, elsewhere) stays as it is.
    """
    name, _, sha = base.removeprefix(PREFIX).rpartition("#")
    folder = expanded(name)
    if not base.startswith(PREFIX) or name in WEIGHTS or name in SHIPPED or not folder.exists():
        return base, {}
    folder = folder.resolve()
    return f"{PREFIX}{folder}#{sha}", {"relative": relative_path(folder, artifact)}


def base_from(base: str, relative: str | None, artifact: Path) -> str:
    """The model string that `base_kept` was given, with the folder where it is now."""
    if relative and (artifact / relative).exists():
        return f"{PREFIX}{(artifact / relative).resolve()}#{base.rpartition('#')[2]}"
    return base


def save_weights(program: dspy.Module, made: Path, artifact: Path) -> dict[str, Any]:
    """Copies the trained weights of a program's predictors into an artifact under construction.

    Args:
        program: With the LMs of its predictors, or DSPy's for those that have none.
        made: The folder under construction.
        artifact: The folder that it becomes.

    Returns:
        By predictor's name, what `raisf.optimize.manifest.KeptWeights` says.

    Raises:
        InputError: As `check_base_apart`, of an adapter's base or a probe's.
    """
    kept, copied = {}, dict[Path, Path]()
    for name, predictor in all_predictors(program):
        lm: Any = predictor.lm or dspy.settings.lm
        source = trained_folder(lm)
        if source is None or (predictor.lm is None and not (lm.lora or lm.probe)):
            continue  # a whole model of DSPy's settings is found where it lies, as any other
        check_folder_name(name)
        target = made / ADAPTERS / name
        target.mkdir(parents=True)
        for file in (file for file in source.iterdir() if file.suffix in _WEIGHTS_AND_WORDS and file.is_file()):
            if file in copied:  # of a whole model, which several predictors share
                link_or_copy(copied[file], target / file.name)
            else:
                copied[file] = target / file.name
                shutil.copyfile(file, copied[file])  # not its permissions: safetensors writes for its user alone
        kind = "lora" if lm.lora else "probe" if lm.probe else "full"
        if kind != "full":
            check_base_apart(lm, name, artifact)
        base, where = base_kept(read_json(source / TRAINING)["base"] if kind == "full" else lm.base, artifact)
        kept[name] = {"kind": kind, "sha256": adapter_hash(target), "base": base, **where}
    if kept:
        system = getattr(program, "system", type(program).__name__)
        write_text(made / README, readme(system, kept, made))
    return kept


def check_bases_apart(program: dspy.Module, bases: Mapping[str, LocalLM], artifact: Path) -> None:
    """As `check_base_apart`, before anything is learnt: of what is to be trained, and of the weights that may stay."""
    own: dict[str, Any] = {name: one.lm or dspy.settings.lm for name, one in all_predictors(program)}
    beside = {name: lm for name, lm in own.items() if isinstance(lm, LocalLM) and (lm.lora or lm.probe)}
    for name, lm in {**beside, **bases}.items():
        check_base_apart(lm, name, artifact)


def check_base_apart(lm: LocalLM, name: str, artifact: Path) -> None:
    """Raise InputError where the base of a predictor's weights, a whole model, lies in what an artifact replaces."""
    if lm.base_engine.folder.resolve().is_relative_to(artifact.resolve()):
        raise InputError(
            f"{artifact} holds the model that {name!r} was trained on, which would be replaced: give another folder"
        )


def open_weights(
    artifact: Path,
    name: str,
    weights: Mapping[str, KeptWeights],
    opens: Callable[[str], dspy.LM],
    given: LocalLM | None,
) -> LocalLM:
    """The LM of a predictor that has weights of its own, one of those of which `save_weights` told.

    `opens` opens the LM of a spec as the predictor's was. The LM that is given may serve as the base, if its weights
    are the base's; wherever these lie. Predictors that share a whole model share its engine, that of the first's copy.

    Raises:
        InputError: The weights are missing or damaged, or the base is gone or another.
    """
    folder, entry = artifact / ADAPTERS / name, weights[name]
    if not folder.is_dir():
        raise damaged(artifact, f"{ADAPTERS}/{name} is missing")
    try:
        found = adapter_hash(folder)
        whole = entry.kind == "full" and same_weights(entry.sha256, weights_folder(str(folder)))
        report = read_json(folder / TRAINING) if (folder / TRAINING).is_file() else {}
    except InputError as error:
        raise damaged(artifact, str(error)) from error
    if found != entry.sha256 and not whole:
        changed = f"{found[:12]}, not {entry.sha256[:12]}"
        raise damaged(artifact, f"{ADAPTERS}/{name} has changed since it was saved: {changed}")
    if not isinstance(report, dict) or not isinstance(report.get("base", ""), str):
        raise damaged(artifact, f"{ADAPTERS}/{name}/{TRAINING} says other things")
    if (entry.kind == "probe") != (folder / PROBE).is_file():
        raise damaged(artifact, f"{ADAPTERS}/{name} is not of the kind {entry.kind}")
    if entry.kind == "probe":
        try:
            read_probe(folder)
        except InputError as error:
            raise damaged(artifact, str(error)) from error
    if entry.kind == "full":
        alike = (artifact / ADAPTERS / other for other, one in weights.items() if one.sha256 == entry.sha256)
        return _local(f"{PREFIX}{next(filter(Path.is_dir, alike)).resolve()}", opens)
    # An adapter, or a probe, fits its base in any precision.
    if given is not None and same_weights(entry.base.rpartition("#")[2], given.base_engine.folder):
        return given.with_weights(folder)
    try:
        return _local(base_from(entry.base, entry.relative, artifact), opens).with_weights(folder)
    except InputError as error:
        raise InputError(
            f"the artifact {artifact} needs the base that {name!r} was trained on: {error}. If the same base lies "
            "elsewhere, give it with --lm local/FOLDER (lm=); else compile again"
        ) from error


def _local(spec: str, opens: Callable[[str], dspy.LM]) -> LocalLM:
    if not spec.startswith(PREFIX):
        raise InputError(f"the base of trained weights is {spec!r}, and must be a local model")
    lm = opens(spec)
    assert isinstance(lm, LocalLM)
    return lm


def adapter_hash(folder: Path) -> str:
    """The hash of trained weights: an adapter's, a probe's, or a whole model's."""
    if (folder / PROBE).is_file():
        return probe_hash(folder)
    return lora_hash(folder) if (folder / CONFIG).is_file() else weights_hash(weights_folder(str(folder)))


def readme(system: str, kept: dict[str, Any], made: Path) -> str:
    """How the adapters are served elsewhere, for a person who finds the folder.

    Args:
        system: The program's name.
        kept: By predictor, what `save_weights` gives.
        made: The artifact's folder.
    """
    configs = {name: read_json(made / ADAPTERS / name / CONFIG) for name in kept if kept[name]["kind"] == "lora"}
    # Servers take LoRA modules of causal models alone; a T5's stay in the process.
    adapters = {name: config["r"] for name, config in configs.items() if config.get("task_type") != "SEQ_2_SEQ_LM"}
    probes = [name for name, entry in kept.items() if entry["kind"] == "probe"]
    text = [
        f"# A compiled {system} program",
        "",
        "Made by `raisf compile`; run it with `raisf ask ... --program THIS_FOLDER`, or in Python:",
        "",
        "    import raisf",
        '    program = raisf.load("THIS_FOLDER")',
        "",
        "manifest.json: what it is, hashes, how each training went. program.json: instructions and demonstrations.",
        f"adapters/: the weights of each trained predictor; `{PROBE if probes else TRAINING}` has the validation "
        "curve.",
        "",
        "| predictor | weights | sha256 | base |",
        "| --- | --- | --- | --- |",
        *(f"| {name} | {entry['kind']} | {entry['sha256']} | {entry['base']} |" for name, entry in kept.items()),
    ]
    if probes:
        text += [
            "",
            "## Probes",
            "",
            f"{' and '.join(probes)}: logistic regressions on hidden states of the base. Servers of models give none: "
            "vLLM and SGLang cannot serve a probe, so such a program runs in the process only (`raisf serve` does).",
        ]
    if adapters and not probes:
        modules = [shlex.quote(f"{name}={ADAPTERS}/{name}") for name in adapters]
        base = kept[next(iter(adapters))]["base"].removeprefix(PREFIX).rpartition("#")[0]
        text += [
            "",
            "## Serving the adapters elsewhere",
            "",
            f"BASE is {_served(base)}. From this folder, as LoRA modules under their names:",
            "",
            f"    vllm serve BASE --enable-lora --max-loras {len(adapters)} --max-lora-rank {_rank(adapters)} \\",
            "        --lora-modules " + " ".join(modules),
            "",
            "    python -m sglang.launch_server --model-path BASE --enable-lora \\",
            f"        --max-loras-per-batch {len(adapters) + 1} --lora-paths " + " ".join(modules),
            "",
            "Then each predictor asks its module (SGLang calls it BASE:NAME), the others the base, in the formats they "
            "were trained on:",
            "",
            "    raisf ask ... --program THIS_FOLDER --api-base http://127.0.0.1:8000/v1",
            '    program = raisf.load("THIS_FOLDER", api_base="http://127.0.0.1:8000/v1")',
        ]
    return "\n".join([*text, ""])


def _served(base: str) -> str:
    """What a server of models is to be given for a base: always a folder, as LoRA modules go with no GGUF file."""
    if base in WEIGHTS:
        return f"the folder lm/pocket/{WEIGHTS[base]}"
    if base in SHIPPED:
        return f"the model of the package {SHIPPED[base].package} (raisf keeps it in models/ of its cache)"
    if not base.lower().endswith(".gguf"):
        return base
    why = f"into which raisf has converted {base} (LoRA modules are served on a folder, not on a GGUF file)"
    try:
        return f"{converted_folder(base)}, {why}"
    except OSError:  # the file is gone; what was made of it is not
        return f"the folder in models/ of raisf's cache {why}"


def _rank(adapters: dict[str, int]) -> int:
    """A rank that vLLM can be told: it takes powers of two from 8."""
    return max(8, 1 << (max(adapters.values()) - 1).bit_length())
