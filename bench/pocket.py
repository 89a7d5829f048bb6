"""The pocket Llama's speed: pretraining, and generation against `transformers` generate on the same weights.

    python -m bench.pocket [--steps 20] [--tokens 32] [--repeats 5] [--json]

Pretraining: tokens a second of whole steps on real lessons, by one thread and by two, with this project's step (its
attention, memory kept) and with the stock one (PyTorch's attention). Generation: tokens a second at batch 1, 8 and 32,
both loops decoding the same number of tokens from the same prompts. Each pair is run in turn; medians are shown.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from raisf.lm import pocket
from raisf.lm.local.decoding import Draft, decode
from raisf.lm.local.inference import Rows, load_model
from raisf.lm.pocket.batches import collate, cut, encode
from raisf.lm.pocket.build import build_model
from raisf.lm.pocket.lessons import lessons
from raisf.lm.pocket.sampler import LessonSampler
from raisf.lm.pocket.trainer import Trainer, keep_memory

BATCHES = (1, 8, 32)


def pretraining(tokenizer: Any, steps: int) -> dict[str, dict[str, float]]:
    """Tokens a second, padding included, by threads and kind of step."""
    import torch

    rows = [encode(tokenizer.backend_tokenizer, lesson) for lesson in lessons(LessonSampler("bench"), 2500)]
    batches = [collate(batch) for batch in cut(rows)]
    LessonSampler("bench").rng.shuffle(batches)
    results: dict[str, dict[str, float]] = {}
    # The stock one comes first: memory, once kept, cannot be un-kept.
    for kind in ("stock", "own"):
        if kind == "own":
            keep_memory()
        for threads in (1, 2):
            torch.set_num_threads(threads)
            trainer = Trainer(build_model("pocket", 0))
            if kind == "stock":
                trainer.model.config._attn_implementation = "sdpa"
            speeds = []
            for ids, weights in batches[: steps + 2]:
                start = time.perf_counter()
                trainer.step(ids, weights, 0.0)
                speeds.append(ids.numel() / (time.perf_counter() - start))
            results.setdefault(f"{threads} threads", {})[kind] = statistics.median(speeds[2:])
    return results


def generation(model: Any, tokenizer: Any, tokens: int, repeats: int) -> dict[str, dict[str, float]]:
    """Tokens a second by batch size and loop."""
    import torch

    sampler = LessonSampler("bench")
    prompts = [
        tokenizer(f"question: {sampler.simple(sampler.world, sampler.fact()).question}\nanswer:") for _ in range(32)
    ]
    padding = tokenizer.pad_token_id
    options = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": padding, "eos_token_id": None}
    results: dict[str, dict[str, float]] = {}
    for size in BATCHES:
        rows = [prompt["input_ids"] for prompt in prompts[:size]]
        width = max(map(len, rows))
        ids = torch.tensor([[padding] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])

        def own(rows: list[list[int]] = rows, size: int = size) -> None:
            list(decode(Rows(model), [Draft(row, tokens) for row in rows]))

        def stock(ids: Any = ids, mask: Any = mask) -> None:
            model.generate(ids, attention_mask=mask, **options)

        ways: dict[str, Callable[[], None]] = {"own": own, "stock": stock}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(repeats + 1):
            for way, run in ways.items():
                start = time.perf_counter()
                run()
                seconds[way].append(time.perf_counter() - start)
        results[f"batch {size}"] = {way: size * tokens / statistics.median(took[1:]) for way, took in seconds.items()}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32, help="generated a prompt")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    model, tokenizer = load_model(pocket.path())
    results = {
        "generation": generation(model, tokenizer, arguments.tokens, arguments.repeats),
        "pretraining": pretraining(tokenizer, arguments.steps),
    }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"tokens a second on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    for what, of in results.items():
        for setting, speed in of.items():
            ratio = speed["own"] / speed["stock"]
            print(f"{what:>12}, {setting:>9}: own {speed['own']:8,.0f}  stock {speed['stock']:8,.0f}  {ratio:.2f} x")


if __name__ == "__main__":
    main()
