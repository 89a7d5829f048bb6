"""Label scoring against generation: how long the relevance of k passages takes, on the same weights.

    python -m bench.scoring [--model local/FOLDER] [--k 5] [--words 0] [--demos 0] [--repeats 20] [--json]

Four ways, each run in turn on `repeats` questions that share nothing but their demonstrations, medians shown:
- scored: the engine's way, all requests in its queue at once, the labels' log-probabilities in shared forward passes,
  after demonstrations that it has kept;
- one by one: `transformers` generate, one prompt after the other, until the verdict's line ends;
- batched: `transformers` generate, all prompts padded into one batch;
- own loop: this project's decoding loop on that batch.
Generation makes as many tokens as the longer label and the end of its block take.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dspy.lm15 import Config, Message, Request, choice, judgments

from raisf.data.world.generator import region
from raisf.lm.adapter import COMPLETION, POCKET_END, adapter_named
from raisf.lm.local.decoding import Draft, decode
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.inference import Rows
from raisf.lm.local.weights import weights_folder
from raisf.signatures.judges import PassageRelevance

LABELS = ("relevant", "irrelevant")
# Questions before the measured ones: after them the engine has kept the demonstrations' keys and values.
WARM_UP = 4


def verdict_requests(texts: Sequence[str], labels: Sequence[str], model: str) -> list[Request]:
    """Requests for one of some labels behind each text, which is read as it is, with the labels' probabilities."""
    named: dict[str, Any] = {"verdict": choice("", labels)}
    config = Config(response_format=judgments(**named), probabilities="required", extensions=COMPLETION)
    return [Request(model=model, messages=(Message.user(text),), config=config) for text in texts]


def prompts(adapter: str, k: int, words: int, demos: int) -> Iterator[list[str]]:
    """One question after the other with k passages of the closed world, as the judge reads them.

    Args:
        adapter: How prompts are written.
        k: Passages a question.
        words: Of each passage, at least.
        demos: Demonstrations, the same before each prompt.
    """
    corpus = (row for number in itertools.count() for row in region(seed=7, number=number).corpus())

    def judged() -> dict[str, str]:
        row = next(corpus)
        text = f"{row['title']} | {row['text']}"
        while len(text.split()) < words:
            text += f" {next(corpus)['text']}"
        return {"question": f"Who is the mayor of the town where {row['title']} was born?", "passage": text}

    form: Any = adapter_named(adapter)
    shown = [{**judged(), "verdict": LABELS[i % 2]} for i in range(demos)]
    while True:
        question = judged()["question"]
        yield [form.prompt(PassageRelevance, {**judged(), "question": question}, shown) for _ in range(k)]


def measure(model: str, k: int, words: int, demos: int, repeats: int, threads: int) -> dict[str, Any]:
    """Milliseconds for k verdicts, the median of the repeats, by each way."""
    import torch

    torch.set_num_threads(threads)
    name = model.removeprefix("local/")
    engine = InferenceEngine(weights_folder(name))
    llama: Any = engine.model
    tokenizer = engine.text.tokenizer
    adapter, end = ("pocket", POCKET_END.strip()) if name == "pocket" else ("compact", "\n\n")
    tokens = max(len(tokenizer(f" {label}{end}", add_special_tokens=False)["input_ids"]) for label in LABELS)
    padding = tokenizer.pad_token_id or 0
    # No end token: every way decodes the same number of tokens.
    options = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": padding, "eos_token_id": None}

    def scored(texts: list[str]) -> None:
        for answer in [engine.submit(request) for request in verdict_requests(texts, LABELS, model)]:
            answer.result()

    def one_by_one(texts: list[str]) -> None:
        for text in texts:
            row = tokenizer(text, return_tensors="pt").to(llama.device)
            llama.generate(row["input_ids"], attention_mask=row["attention_mask"], **options)

    def batched(texts: list[str]) -> None:
        rows = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left").to(llama.device)
        llama.generate(rows["input_ids"], attention_mask=rows["attention_mask"], **options)

    def own_loop(texts: list[str]) -> None:
        encoded = [tokenizer(text)["input_ids"] for text in texts]
        list(decode(Rows(llama), [Draft(prompt, tokens) for prompt in encoded]))

    ways: dict[str, Callable[[list[str]], None]] = {
        "scored": scored,
        "one by one": one_by_one,
        "batched": batched,
        "own loop": own_loop,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    questions = prompts(adapter, k, words, demos)
    for repeat in range(WARM_UP + repeats):
        texts = next(questions)
        for way, run in ways.items():
            start = time.perf_counter()
            run(texts)
            if repeat >= WARM_UP:
                times[way].append(1000 * (time.perf_counter() - start))
    medians = {way: statistics.median(values) for way, values in times.items()}
    return {
        "model": model,
        "parameters": sum(weights.numel() for weights in llama.parameters()),
        "device": str(llama.device),
        "threads": threads,
        "k": k,
        "demos": demos,
        "prompt_tokens": [len(tokenizer(text)["input_ids"]) for text in next(questions)],
        "generated_tokens": tokens,
        "repeats": repeats,
        "milliseconds": medians,
        "ratio": {way: medians[way] / medians["scored"] for way in ways},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="local/pocket")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--words", type=int, default=0, help="words of a passage, at least")
    parser.add_argument("--demos", type=int, default=0, help="demonstrations before each prompt")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    result = measure(**arguments)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    line = (
        "k={k}, prompts of {prompt_tokens} tokens, verdicts of {generated_tokens}, {parameters:,} parameters, {device}"
    )
    print((line + ", {threads} threads, {repeats} repeats").format(**result))
    for way, milliseconds in result["milliseconds"].items():
        print(f"{way:>12} {milliseconds:8.1f} ms {result['ratio'][way]:6.1f} x")


if __name__ == "__main__":
    main()
