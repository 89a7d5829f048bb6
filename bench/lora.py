"""Training a LoRA adapter beside the plain `transformers` Trainer and TRL's SFTTrainer, where `trl` can be imported.

    python -m bench.lora [--model local/FOLDER] [--adapter pocket] [--rows 96] [--repeats 3] [--json]

Tokens a second of one epoch without its set-up, medians of runs in turn. All three learn the same tokens, completions
only, of the same base, with the same rank, batch size, learning rate and precision. The Trainers pad on the right and
shuffle without sorting by length; the plain one multiplies the vocabulary for every token. SFTTrainer saves memory by
recomputing activations and casts to bfloat16 unless told otherwise: here it does neither. Losses are the epoch's means;
schedules and orders of rows differ.
"""

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

from raisf.data.world.generator import region
from raisf.lm.connect import connect
from raisf.lm.finetune.lora import TrainingRow, tokenized
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.inference import load_model
from raisf.lm.local.tokenization import TokenizedRow
from raisf.signatures.judges import PassageRelevance


def judged(lm: Any, count: int) -> list[TrainingRow]:
    """Rows of the relevance judge over passages of the closed world."""
    rows, number = [], 0
    while len(rows) < count:
        for passage in region(seed=7, number=number).corpus():
            fields = {"question": f"What is said of {passage['title']}?", "passage": passage["text"]}
            verdict = {"verdict": ("relevant", "irrelevant")[len(rows) % 2]}
            rows.append(TrainingRow(lm.adapter.format_finetune_data(PassageRelevance, [], fields, verdict)["messages"]))
        number += 1
    return rows[:count]


def lora_config(training: Training, **options: Any) -> Any:
    """Peft's configuration of the adapter that `raisf.lm.finetune.lora` trains."""
    from peft import LoraConfig

    options = {"target_modules": "all-linear", "task_type": "CAUSAL_LM", **options}
    return LoraConfig(r=training.rank, lora_alpha=2 * training.rank, **options)


def ours(lm: Any, rows: list[TokenizedRow], training: Training) -> tuple[float, float]:
    """Seconds of our loop, and its loss."""
    run = FinetuneRun(lm, rows, rows[:1], training)
    run.epoch(lambda: None)  # the first only measures
    start = time.perf_counter()
    run.epoch(lambda: None)
    return time.perf_counter() - start, run.curve[-1]["train_loss"]


def trainer(lm: Any, rows: list[TokenizedRow], training: Training) -> tuple[float, float]:
    """Seconds of the Trainer, and its loss."""
    from peft import get_peft_model
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    model, tokenizer = load_model(lm.base_engine.folder)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, **_options(training))
        collator = DataCollatorForSeq2Seq(tokenizer, padding=True)
        model = get_peft_model(model, lora_config(training))
        return _timed(Trainer(model, arguments, train_dataset=_dataset(rows), data_collator=collator))


def sft_trainer(lm: Any, rows: list[TokenizedRow], training: Training) -> tuple[float, float]:
    """Seconds of TRL's SFTTrainer, and its loss."""
    from trl import SFTConfig, SFTTrainer  # pyright: ignore[reportMissingImports] an optional comparison

    model, tokenizer = load_model(lm.base_engine.folder)
    with tempfile.TemporaryDirectory() as folder:
        own = {"max_length": None, "gradient_checkpointing": False, "bf16": False}
        arguments = SFTConfig(folder, **_options(training), **own)
        learn, lora = _dataset(rows), lora_config(training)
        return _timed(SFTTrainer(model, arguments, train_dataset=learn, processing_class=tokenizer, peft_config=lora))


def _options(training: Training) -> dict[str, Any]:
    import torch

    return {
        "per_device_train_batch_size": training.batch_size,
        "num_train_epochs": 1,
        "learning_rate": training.learning_rate,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": torch.cuda.is_available(),
    }


def _dataset(rows: list[TokenizedRow]) -> Any:
    from datasets import Dataset

    labels = [[-100] * row.start + row.tokens[row.start :] for row in rows]
    return Dataset.from_dict({"input_ids": [row.tokens for row in rows], "labels": labels})


def _timed(made: Any) -> tuple[float, float]:
    from transformers import PrinterCallback

    made.remove_callback(PrinterCallback)
    metrics = made.train().metrics
    return metrics["train_runtime"], metrics["train_loss"]


def measure(model: str, adapter: str, rows: int, repeats: int) -> dict[str, Any]:
    lm: Any = connect(model, adapter=adapter)
    learn = tokenized(lm.base_engine.text, judged(lm, rows), True, 2**31, "bench")
    ways: dict[str, Callable[..., tuple[float, float]]] = {"ours": ours, "Trainer": trainer}
    if importlib.util.find_spec("trl"):
        ways["SFTTrainer"] = sft_trainer
    runs: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):  # the first warms up
        for way, run in ways.items():
            found = run(lm, learn, Training(epochs=1))
            if repeat:
                runs[way].append(found)
    tokens = sum(len(row.tokens) for row in learn)
    speed = {way: tokens / statistics.median(seconds for seconds, _ in found) for way, found in runs.items()}
    return {
        "model": model,
        "device": str(lm.base_engine.model.device),
        "rows": rows,
        "tokens": tokens,
        "repeats": repeats,
        "tokens_per_second": speed,
        "loss": {way: found[-1][1] for way, found in runs.items()},
        "ratio": {way: speed["ours"] / speed[way] for way in ways},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--adapter", default="pocket")
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    warnings.simplefilter("ignore", FutureWarning)  # peft calls a name that transformers will give up
    result = measure(**arguments)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print("{model} on {device}, {rows} rows of {tokens} tokens, {repeats} repeats".format(**result))
    for way, speed in result["tokens_per_second"].items():
        print(f"{way:>12} {speed:9,.0f} tokens/s, loss {result['loss'][way]:.3f}, ours {result['ratio'][way]:.2f} x")
    if "SFTTrainer" not in result["ratio"]:
        print("  SFTTrainer not installed (pip install trl)")


if __name__ == "__main__":
    main()
