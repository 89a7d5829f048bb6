"""LoRA: training beside the plain `transformers` Trainer, memory of three judges over one model, cost of mixing them.

    python -m bench.lora [--model local/FOLDER] [--adapter pocket] [--rows 96] [--repeats 10] [--json]

- training: tokens a second of one epoch over the same rows, base, rank and batch size, in turn with the Trainer's; the
  Trainer pads on the right, shuffles without sorting by length, and multiplies the vocabulary for every token;
- memory: parameters of the base, and of three adapters beside it;
- answering: milliseconds for a batch of 12 verdicts of the base, of one adapter, and of the base and three adapters
  mixed; and for 12 verdicts that change the adapter each time, one after the other.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dspy.lm15 import Config, Message, Request, choice, judgments

from data.world import region
from lm.adapter import COMPLETION
from lm.connect import connect
from lm.engine import LoraEngine
from lm.lora import Row, lessons, train
from lm.multi_lora import lora_hash
from lm.training import Run, Training
from signatures.judges import PassageRelevance


def judged(lm: Any, count: int) -> tuple[list[Row], list[str]]:
    """Rows of the relevance judge over passages of the closed world, and their prompts."""
    rows, prompts, number = [], [], 0
    while len(rows) < count:
        for passage in region(seed=7, number=number).corpus():
            fields = {"question": f"What is said of {passage['title']}?", "passage": passage["text"]}
            verdict = {"verdict": ("relevant", "irrelevant")[len(rows) % 2]}
            rows.append(Row(lm.adapter.format_finetune_data(PassageRelevance, [], fields, verdict)["messages"]))
            prompts.append(lm.adapter.prompt(PassageRelevance, fields))
        number += 1
    return rows[:count], prompts[:count]


def ours(lm: Any, rows: list[Row], training: Training) -> float:
    """Tokens a second of our loop."""
    learn = lessons(lm.base_engine.text, rows, True, 2**31, "bench")
    run = Run(lm, learn, learn[:1], training)
    run.epoch(lambda: None)  # the first only measures
    start = time.perf_counter()
    run.epoch(lambda: None)
    return sum(len(row.tokens) for row in learn) / (time.perf_counter() - start)


def theirs(lm: Any, rows: list[Row], training: Training) -> float:
    """Tokens a second of the Trainer, on the same rows with the same adapter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from torch.utils.data import Dataset
    from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer, TrainingArguments

    learn = lessons(lm.base_engine.text, rows, True, 2**31, "bench")

    class Rows(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(learn)

        def __getitem__(self, place: int) -> dict[str, list[int]]:
            row = learn[place]
            labels = [-100] * row.start + row.tokens[row.start :]
            return {"input_ids": row.tokens, "attention_mask": [1] * len(row.tokens), "labels": labels}

    base = AutoModelForCausalLM.from_pretrained(lm.base_engine.folder, dtype=torch.float32)
    config = LoraConfig(r=training.rank, lora_alpha=2 * training.rank, target_modules="all-linear")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=training.batch_size,
            num_train_epochs=1,
            learning_rate=training.learning_rate,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        collator = DataCollatorForSeq2Seq(lm.base_engine.text.tokenizer, padding=True)
        trainer = Trainer(get_peft_model(base, config), arguments, train_dataset=Rows(), data_collator=collator)
        start = time.perf_counter()
        trainer.train()
        return sum(len(row.tokens) for row in learn) / (time.perf_counter() - start)


def answering(lm: Any, prompts: list[str], folders: list[Path], repeats: int) -> dict[str, float]:
    """Median milliseconds for 12 verdicts, by who gives them."""
    base = lm.base_engine
    engines = [base, *(LoraEngine(base, folder, lora_hash(folder)) for folder in folders)]
    labels: dict[str, Any] = {"verdict": choice("", ("relevant", "irrelevant"))}
    config = Config(response_format=judgments(**labels), probabilities="required", extensions=COMPLETION)
    requests = [Request(model="bench", messages=(Message.user(text),), config=config) for text in prompts[:12]]

    def together(chosen: list[Any]) -> Callable[[], None]:
        def run() -> None:
            for answer in [chosen[i % len(chosen)].submit(request) for i, request in enumerate(requests)]:
                answer.result()

        return run

    def in_turn(chosen: list[Any]) -> Callable[[], None]:
        def run() -> None:
            for i, request in enumerate(requests):
                chosen[i % len(chosen)].complete(request)

        return run

    ways = {
        "base": together(engines[:1]),
        "one adapter": together(engines[1:2]),
        "base and three, mixed": together(engines),
        "base, one by one": in_turn(engines[:1]),
        "another adapter each time": in_turn(engines[1:]),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 2):  # the first two warm up
        for way, run in ways.items():
            start = time.perf_counter()
            run()
            if repeat >= 2:
                times[way].append(1000 * (time.perf_counter() - start))
    return {way: statistics.median(values) for way, values in times.items()}


def measure(model: str, adapter: str, rows: int, repeats: int) -> dict[str, Any]:
    lm: Any = connect(model, adapter=adapter)
    training = Training(epochs=1)
    learn, prompts = judged(lm, rows)
    speeds: dict[str, list[float]] = {"ours": [], "trainer": []}
    for _ in range(3):
        speeds["ours"].append(ours(lm, learn, training))
        speeds["trainer"].append(theirs(lm, learn, training))
    speed = {way: statistics.median(values) for way, values in speeds.items()}
    with tempfile.TemporaryDirectory() as work:
        few = Training(epochs=1, seed=0)
        made = [
            train(lm, learn[:16], learn[:2], work, few, name=name, progress=False)
            for name in ("know", "relevant", "decompose")
        ]
        for place, folder in enumerate(made):  # else equal adapters would share their place in memory
            with (folder / "adapter_config.json").open("a") as config:
                config.write("\n" * place)
        milliseconds = answering(lm, prompts, made, repeats)
        engine = lm.base_engine
        base = sum(p.numel() * p.element_size() for p in engine.model.parameters())
        added = engine.loras.nbytes
    return {
        "model": model,
        "rows": rows,
        "tokens_per_second": speed,
        "ratio": speed["ours"] / speed["trainer"],
        "bytes": {"base": base, "three adapters": added, "ratio": (base + added) / base},
        "milliseconds": milliseconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--adapter", default="pocket")
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    result = measure(**arguments)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['model']}, {result['rows']} rows")
    for way, speed in result["tokens_per_second"].items():
        print(f"{way:>26} {speed:9,.0f} tokens/s")
    print(f"{'ratio':>26} {result['ratio']:9.2f}")
    print(f"{'memory with three':>26} {result['bytes']['ratio']:9.2f} x the base")
    for way, milliseconds in result["milliseconds"].items():
        print(f"{way:>26} {milliseconds:9.1f} ms")


if __name__ == "__main__":
    main()
