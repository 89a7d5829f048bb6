"""Finetuning a base Llama on rows of prompt and completion: a LoRA adapter beside it, or all of its weights.

One flat loop, deterministic from a seed on one device. It needs no trainer around it: the rows are few, the base is
shared with the engine that answers, and on a small model a framework's own steps would cost more than the model's.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.lm15 import InvalidRequestError

from raisf.lm.adapter import CompactAdapter
from raisf.lm.finetune.loop import finish
from raisf.lm.finetune.parallel import share_out
from raisf.lm.finetune.training import FinetuneRun, Training, total_weight
from raisf.lm.local.inference import context_of
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, TRAINING, lora_hash
from raisf.lm.local.tokenization import Text, TokenizedRow
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, read_json, write_json
from raisf.utils.usage import tell_resumed

if TYPE_CHECKING:
    import dspy


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A conversation to learn from; the last message is what the LM should say.

    Attributes:
        messages: In DSPy's finetuning form, as `adapter.format_finetune_data` gives them.
        weight: In the loss; 1 is an average row's.
    """

    messages: list[dict[str, str]]
    weight: float = 1.0


def train(
    lm: LocalLM,
    rows: Sequence[TrainingRow],
    valrows: Sequence[TrainingRow],
    work: Path | str,
    training: Training | None = None,
    *,
    name: str = "adapter",
    adapter: "dspy.Adapter | None" = None,
    progress: bool = True,
) -> Path:
    """Finetunes the LM's base, or its LoRA adapter further: cross-entropy on the completions only.

    After each epoch the validation rows are read. A checkpoint is written then and every two minutes: the same call
    goes on there after a kill, to the very same weights. What is finished is not trained again.

    Args:
        lm: Its base is what is trained on; it stays as it is.
        rows: To learn from.
        valrows: To measure on.
        work: Where checkpoints and results go, each under the name and a hash of all that decides it.
        training: How; the defaults if None.
        name: What is trained.
        adapter: What wrote the rows; the LM's own if None. Text that it continues is not put into a chat template.
        progress: Show a bar on stderr.

    Returns:
        The folder: a LoRA adapter in peft's layout, or a whole model, with a report in `training.json`: the base and
        its hash, settings, the hash of the adapter that was trained further, rows (and those left out, longer than the
        context), their hash, the curve (see `FinetuneRun`), the best epoch (0: what it began with was never beaten),
        whether training stopped early, tokens, seconds, tokens_per_second.

    Raises:
        InputError: No row fits into the context, or the rows of one of the two sets together weigh nothing.
    """
    training = training or Training()
    completion = isinstance(adapter or lm.adapter, CompactAdapter)
    data = _digest([[[asdict(row) for row in part] for part in (rows, valrows)], completion])
    begun = [lora_hash(lm.lora)] if training.go_on and lm.lora else []
    evened = ["a weight counts against all rows"] if len({row.weight for row in rows}) > 1 else []
    text = lm.base_engine.text
    mended = ["an answer has its beginning and its end"] if text.ends_or_begins_anew(completion) else []
    identity = _digest([lm.base, training.told(), data, *begun, *evened, *mended])
    out = Path(work) / f"{name}-{identity[:8]}"
    marker = CONFIG if training.method == "lora" else "config.json"
    checkpoint = out.with_name(f".{out.name}.safetensors")
    whole = _lies_whole(out, marker, identity)
    if whole or checkpoint.is_file():
        tell_resumed()
    if whole:
        return out
    context = context_of(lm.base_engine.model)
    learn, measure = (tokenized(text, part, completion, context, name) for part in (rows, valrows))
    if training.processes > 1:
        share_out(lm, learn, measure, training, checkpoint, identity, name, progress)
    run = FinetuneRun(lm, learn, measure, training)
    finish(run, checkpoint, identity, name, progress and training.processes == 1)
    report = {
        "base": lm.base,
        "identity": identity,
        "data_sha256": data,
        "settings": training.told(),
        **({"began_with": begun[0]} if begun else {}),
        "rows": {"train": len(learn), "validation": len(measure)},
        "too_long": len(rows) + len(valrows) - len(learn) - len(measure),
        "curve": run.curve,
        "best_epoch": run.best_epoch,
        "stopped_early": len(run.curve) - 1 < training.epochs,
        "tokens": run.tokens,
        "seconds": round(run.seconds, 2),
        "tokens_per_second": round(run.tokens / run.seconds),
    }
    # Whatever is left of an earlier result: the folder's name has the hash of what is made here.
    left = next((file.name for file in out.glob("*") if file.is_file()), marker)
    with atomic_folder(out, left, "*") as folder:
        run.publish(folder)
        write_json(folder / TRAINING, report)
    checkpoint.unlink()
    return out


def _lies_whole(folder: Path, marker: str, identity: str) -> bool:
    """Whether a training's result is there. One that is torn, or of which something was deleted, is made again."""
    from safetensors import SafetensorError, safe_open

    weights = [*folder.glob("*.safetensors")]
    try:
        for file in weights:
            with safe_open(file, "pt"):
                pass
        return bool(weights) and (folder / marker).is_file() and read_json(folder / TRAINING)["identity"] == identity
    except (InputError, SafetensorError, LookupError, TypeError):
        return False


def fitting(lm: LocalLM, rows: Sequence[TrainingRow], adapter: "dspy.Adapter", name: str) -> list[bool]:
    """Of each row, whether the base reads it whole; `train` leaves out the others.

    Raises:
        InputError: See `tokenized`.
    """
    read = _tokenized(lm.base_engine.text, rows, isinstance(adapter, CompactAdapter), name)
    return [len(row.tokens) <= context_of(lm.base_engine.model) for row in read]


def tokenized(text: Text, rows: Sequence[TrainingRow], completion: bool, context: int, name: str) -> list[TokenizedRow]:
    """The rows as tokens, those left out that are longer than the context.

    Raises:
        InputError: None is left, or what is left weighs nothing together; or a weight is no number, or the model's
            chat template or its tokenizer takes no such rows.
    """
    all_rows = _tokenized(text, rows, completion, name)
    whole = [row for row in all_rows if len(row.tokens) <= context]
    if not whole:
        raise InputError(f"{name}: none of {len(all_rows)} rows fits into the base's context of {context} tokens")
    if total_weight(whole) == 0:
        raise InputError(
            f"{name}: {len(whole)} rows together weigh nothing, as all have the weight 0 or an empty completion: "
            "give rows with completions, and weights above 0"
        )
    return whole


def _tokenized(text: Text, rows: Sequence[TrainingRow], completion: bool, name: str) -> list[TokenizedRow]:
    if wrong := [row.weight for row in rows if not 0 <= row.weight < math.inf]:
        raise InputError(f"{name}: a row's weight is {wrong[0]}: give 0 or more")
    if completion and not text.breaks_lines and any("\n" in row.messages[-1]["content"].strip() for row in rows):
        raise InputError(
            f"{name} writes several outputs, each on its line, and the base's tokenizer has no line breaks: train "
            "predictors with a single output (--train-predictors), or take another base"
        )
    try:
        return [text.training_row(row.messages, completion, row.weight) for row in rows]
    except InvalidRequestError as error:
        raise InputError(f"{name}: {error}: take the format that does without it (--adapter compact)") from error


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
