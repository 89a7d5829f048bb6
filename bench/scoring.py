"""Label scoring against generation: how long the relevance of k passages takes, on the same weights.

    python -m bench.scoring [--model local/FOLDER] [--k 5] [--repeats 20] [--json]

Four ways, each run in turn `repeats` times, medians shown:
- scored: the engine's way, the labels' log-probabilities of all passages in one forward pass;
- one by one: `transformers` generate, one prompt after the other, until the verdict's line ends;
- batched: `transformers` generate, all prompts padded into one batch;
- engine: this project's own decoding loop on that batch.
Generation is given `--tokens` tokens a verdict: what the longer label and the end of its block take.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

from lm.adapter import adapter_named
from lm.inference import generate, load_model, score
from lm.local import weights_folder
from signatures.judges import PassageRelevance

WORDS = "the town of river was founded by in near its mayor who lived and wrote a book about 1204 1871".split()


def prompts(adapter: str, k: int, words: int, seed: int) -> list[str]:
    """One question with k passages of some `words` words, as the relevance judge reads them."""
    draw = random.Random(seed)
    question = "Who is the mayor of the town that " + " ".join(draw.choices(WORDS, k=6)) + "?"
    passages = [" ".join(draw.choices(WORDS, k=draw.randint(words * 3 // 4, words * 5 // 4))) for _ in range(k)]
    form = adapter_named(adapter)
    return [form.prompt(PassageRelevance, {"question": question, "passage": passage}) for passage in passages]


def measure(model: str, k: int, words: int, tokens: int, repeats: int, threads: int) -> dict[str, object]:
    """Milliseconds for k verdicts, the median of the repeats, by each way."""
    import torch

    torch.set_num_threads(threads)
    name = model.removeprefix("local/")
    llama, tokenizer = load_model(weights_folder(name))
    texts = prompts("pocket" if name == "pocket" else "compact", k, words, seed=0)
    encoded = [tokenizer(text)["input_ids"] for text in texts]
    padding = tokenizer.pad_token_id or 0
    width = max(map(len, encoded))
    ids = torch.tensor([[padding] * (width - len(row)) + row for row in encoded], device=llama.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in encoded], device=llama.device)
    # No end token: every way decodes the same number of tokens.
    options = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": padding, "eos_token_id": None}

    def scored() -> None:
        labelled = [tokenizer(f"{text} {label}")["input_ids"] for text in texts for label in ("relevant", "irrelevant")]
        score(llama, labelled, [len(row) for row in encoded for _ in range(2)])

    def one_by_one() -> None:
        for text in texts:
            row = tokenizer(text, return_tensors="pt").to(llama.device)
            llama.generate(row["input_ids"], attention_mask=row["attention_mask"], **options)

    def batched() -> None:
        llama.generate(ids, attention_mask=mask, **options)

    def engine() -> None:
        list(generate(llama, encoded, [tokens] * k, None, lambda row, new: False))

    ways: dict[str, Callable[[], None]] = {
        "scored": scored,
        "one by one": one_by_one,
        "batched": batched,
        "engine": engine,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 2):  # the first two warm up
        for way, run in ways.items():
            start = time.perf_counter()
            run()
            if repeat >= 2:
                times[way].append(1000 * (time.perf_counter() - start))
    medians = {way: statistics.median(values) for way, values in times.items()}
    return {
        "model": model,
        "parameters": sum(weights.numel() for weights in llama.parameters()),
        "device": str(llama.device),
        "threads": threads,
        "k": k,
        "prompt_tokens": [len(row) for row in encoded],
        "generated_tokens": tokens,
        "repeats": repeats,
        "milliseconds": medians,
        "ratio": {way: medians[way] / medians["scored"] for way in ways},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="local/pocket")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--words", type=int, default=60, help="words of a passage")
    parser.add_argument("--tokens", type=int, default=4, help="tokens that a generated verdict takes")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    result = measure(**arguments)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print("k={k}, {parameters:,} parameters, {device}, {threads} threads, {repeats} repeats".format(**result))
    for way, milliseconds in result["milliseconds"].items():
        print(f"{way:>12} {milliseconds:8.1f} ms {result['ratio'][way]:6.1f} x")


if __name__ == "__main__":
    main()
