"""Three LoRA adapters beside one base: the memory they take, and answering with them mixed, beside peft's own ways.

    python -m bench.adapters [--model local/FOLDER] [--adapter pocket] [--repeats 10] [--json]

Memory: parameters of three adapters of the default rank, for the base at hand and, counted without weights, for shapes
of Llamas that people use; the engine keeps adapters in the base's precision, so it is also the ratio of bytes.
Answering: milliseconds for 12 verdicts with their probabilities, from text, medians of runs in turn. Ours goes through
the engine. peft's is one padded batch, with `adapter_names` where adapters mix, and `set_adapter` before each verdict
where they change. All adapters are random; probabilities that differ by more than 1e-4 end the measurement.
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dspy.lm15 import DataPart

from bench.lora import judged, lora_config
from bench.scoring import verdict_requests
from raisf.lm.connect import connect
from raisf.lm.finetune.training import Training
from raisf.lm.local.clients import EngineClient
from raisf.lm.local.inference import load_model
from raisf.lm.local.multi_lora import lora_hash
from raisf.lm.local.tokenization import Text

LABELS = ("relevant", "irrelevant")
BASE = "__base__"  # peft's name for no adapter
JUDGES = ["know", "relevant", "decompose"]
VERDICTS = 12
# Who answers, over and over, and whether all verdicts are asked for at once.
WAYS: dict[str, tuple[list[str], bool]] = {
    "base": ([BASE], True),
    "one adapter": (JUDGES[:1], True),
    "base and three, mixed": ([BASE, *JUDGES], True),
    "base, one by one": ([BASE], False),
    "another adapter each time": (JUDGES, False),
}
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "tie_word_embeddings",
)
SHAPES = {
    "Llama of 135M": (576, 30, 9, 3, 1536, 49152, True),
    "Llama 2 7B": (4096, 32, 32, 32, 11008, 32000, False),
    "Llama 3 8B": (4096, 32, 32, 8, 14336, 128256, False),
}


def counted(shape: tuple[Any, ...]) -> dict[str, int]:
    """Parameters of a Llama of some shape, and of three adapters."""
    import torch
    from peft import get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model: Any = LlamaForCausalLM(LlamaConfig(**dict(zip(SIZES, shape, strict=True))))
        base = sum(weights.numel() for weights in model.parameters())
        adapted = get_peft_model(model, lora_config(Training()))
    return {"base": base, "three adapters": 3 * sum(p.numel() for p in adapted.parameters() if p.requires_grad)}


def ours(lm: Any, prompts: list[str], folders: dict[str, Path]) -> Callable[[list[str], bool], list[float]]:
    """What gives the probabilities of the first label, by the engine."""
    base = lm.base_engine
    engines = {name: EngineClient(base, (folder, lora_hash(folder))) for name, folder in folders.items()} | {BASE: base}
    requests = verdict_requests(prompts, LABELS, "bench")

    def probability(response: Any) -> float:
        return response.message.first(DataPart).probabilities["verdict"][LABELS[0]]

    def answer(names: list[str], together: bool) -> list[float]:
        asked = [(engines[names[place % len(names)]], request) for place, request in enumerate(requests)]
        if together:
            return [probability(future.result()) for future in [one.submit(request) for one, request in asked]]
        return [probability(one.complete(request)) for one, request in asked]

    return answer


def theirs(model: Any, text: Text, prompts: list[str]) -> Callable[[list[str], bool], list[float]]:
    """What gives the probabilities of the first label, by peft."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    def score(texts: list[str], owners: list[str] | None = None) -> list[float]:
        """One forward pass over all that stands before a label's last token, once where labels have it in common."""
        read = [(row, *text.completed(texts[row], f" {label}", True)) for row in range(len(texts)) for label in LABELS]
        rows = list(dict.fromkeys((row, *tokens[:-1]) for row, tokens, _ in read))
        parts = [torch.tensor(tokens) for _, *tokens in rows]
        ids, mask = (
            pad_sequence(tensors, batch_first=True, padding_side="left").to(model.device)
            for tensors in (parts, [torch.ones_like(part) for part in parts])
        )
        adapters = {"adapter_names": [owners[row] for row, *_ in rows]} if owners else {}
        with torch.inference_mode():
            logits = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
                logits_to_keep=max(len(tokens) - start for _, tokens, start in read),
                use_cache=False,
                **adapters,
            ).logits
            logprobs = logits.float().log_softmax(-1).cpu()
        sums = []
        for row, tokens, start in read:
            own = logprobs[rows.index((row, *tokens[:-1])), start - len(tokens) :]
            sums.append(own.gather(-1, torch.tensor(tokens[start:])[:, None]).sum())
        return torch.stack(sums).view(-1, len(LABELS)).softmax(-1)[:, 0].tolist()

    def answer(names: list[str], together: bool) -> list[float]:
        owners = [names[place % len(names)] for place in range(len(prompts))]
        if together and len(names) > 1:
            return score(prompts, owners)
        asked = (
            [(owners[0], prompts)]
            if together
            else [(owner, [text]) for owner, text in zip(owners, prompts, strict=True)]
        )
        found = []
        with model.disable_adapter() if names == [BASE] else nullcontext():
            for owner, texts in asked:
                if owner != BASE:
                    model.set_adapter(owner)
                found += score(texts)
        return found

    return answer


def measure(model: str, adapter: str, repeats: int) -> dict[str, Any]:
    import torch
    from peft import get_peft_model

    lm: Any = connect(model, adapter=adapter)
    engine = lm.base_engine
    prompts = [row.messages[0]["content"] for row in judged(lm, VERDICTS)]
    torch.manual_seed(0)
    config = lora_config(Training(), init_lora_weights=False)  # else an adapter would change nothing
    adapted = get_peft_model(load_model(engine.folder)[0], config, adapter_name=JUDGES[0])
    for name in JUDGES[1:]:
        adapted.add_adapter(name, config)
    times: dict[str, dict[str, list[float]]] = {way: {"ours": [], "peft": []} for way in WAYS}
    difference = 0.0
    with tempfile.TemporaryDirectory() as work:
        adapted.save_pretrained(work)  # a folder for each
        answers = {
            "ours": ours(lm, prompts, {name: Path(work, name) for name in JUDGES}),
            "peft": theirs(adapted.eval(), engine.text, prompts),
        }
        for repeat in range(repeats + 2):  # the first two warm up
            for way, (names, together) in WAYS.items():
                found = {}
                for who, answer in answers.items():
                    start = time.perf_counter()
                    found[who] = answer(names, together)
                    if repeat >= 2:
                        times[way][who].append(1000 * (time.perf_counter() - start))
                difference = max([difference, *(abs(a - b) for a, b in zip(*found.values(), strict=True))])
                if difference > 1e-4 and engine.model.dtype == torch.float32:
                    raise SystemExit(f"{way}: ours and peft's probabilities differ by {difference:.2g}: {found}")
    own = {"base": sum(p.numel() for p in engine.model.parameters())}
    own["three adapters"] = engine.loras.nbytes // engine.model.dtype.itemsize
    return {
        "model": model,
        "device": str(engine.model.device),
        "rank": Training().rank,
        "parameters": {model: own} | {name: counted(shape) for name, shape in SHAPES.items()},
        "repeats": repeats,
        "milliseconds": {
            way: {who: statistics.median(values) for who, values in found.items()} for way, found in times.items()
        },
        "largest_difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--adapter", default="pocket")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    warnings.simplefilter("ignore", FutureWarning)  # peft calls a name that transformers will give up
    result = measure(**arguments)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    print(f"three adapters of rank {result['rank']}")
    for name, found in result["parameters"].items():
        base, added = found["base"], found["three adapters"]
        print(f"{name:>26} {base:14,} parameters + {added:11,}: {1 + added / base:.2f} x the base")
    print("{repeats} repeats on {device}, probabilities differ by {largest_difference:.0e} at most".format(**result))
    for way, found in result["milliseconds"].items():
        ratio = found["peft"] / found["ours"]
        print(f"{way:>26} ours {found['ours']:8.1f} ms, peft {found['peft']:8.1f} ms: {ratio:.2f} x ours")


if __name__ == "__main__":
    main()
