"""How the pocket Llama is pretrained: one flat loop, deterministic from a seed, with the reason beside each number."""

import json
import math
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from data.files import atomic_folder, sha256_file, write_json
from data.world import HOME_REGIONS, HOME_SEED
from lm.pocket.build import SIZES, build_model, build_tokenizer
from lm.pocket.lessons import Lesson, School

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

# Tokens a step, padding included. Few sequences a step cost more overhead, many learn less from each token.
BATCH_TOKENS = 6144
# What counts is what the model is to say: answers weigh five times the prompts (one-passage reading 42% -> 61% right).
ANSWER_WEIGHT = 5.0
# Muon on the hidden matrices, AdamW on embeddings, norms and biases; the pair learnt about twice as fast as AdamW alone.
MUON_RATE, ADAM_RATE, WEIGHT_DECAY = 0.008, 3e-3, 0.05
WARM_UP_STEPS, DECAY_FROM = 30, 0.6
CHUNK_LESSONS = 600

Row = tuple[list[int], list[bool]]


def train(
    out: Path | str,
    *,
    tokens: int = 20_000_000,
    size: str = "pocket",
    seed: int = 0,
    threads: int = 2,
    regions: int = HOME_REGIONS,
    progress: bool = True,
) -> dict[str, Any]:
    """Pretrains a pocket Llama and writes it in the Hugging Face layout, with a manifest.

    Args:
        out: The folder, replaced whole when training is done.
        tokens: How many tokens to read, padding included.
        size: One of `SIZES`.
        seed: Decides the initial weights and everything that is read.
        threads: CPU threads for the model; the lessons are made in a process of their own.
        regions: How many regions of the home world are taught by heart.
        progress: Shows a bar on standard error.

    Returns:
        The manifest: seed, tokens, seconds, hash of the weights, versions, report (skill -> share right, with n).

    Raises:
        InputError: An unknown size, or no tokens.
    """
    if size not in SIZES:
        raise InputError(f"unknown size {size!r}: choose one of {', '.join(SIZES)}")
    if tokens < BATCH_TOKENS:
        raise InputError(f"{tokens} tokens are less than one step; give at least {BATCH_TOKENS}")
    import torch
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer(_tokenizer_texts())
    model = build_model(size, seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    trainer = _Trainer(model)
    curve: list[dict[str, float]] = []
    started, read, loss = time.monotonic(), 0, math.nan
    bar = Progress(
        *Progress.get_default_columns()[:-1],
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
        console=Console(stderr=True),
        disable=not progress,
    )
    with bar, _batches(tokenizer, seed, tokens, regions) as stream:
        task = bar.add_task("pretraining", total=tokens, state="")
        for ids, weights in stream:
            loss = trainer.step(ids.to(device), weights.to(device), read / tokens)
            read += ids.numel()
            if not curve or read - curve[-1]["tokens"] > tokens / 200:
                curve.append({"tokens": read, "loss": round(loss, 4), "seconds": round(time.monotonic() - started, 1)})
            bar.update(task, completed=min(read, tokens), state=f"loss {loss:.3f}")
    trainer.finish()
    manifest = {
        "size": size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": seed,
        "tokens": read,
        "seconds": round(time.monotonic() - started),
        "home": {"seed": HOME_SEED, "regions": regions},
        "report": report(model, tokenizer, regions=regions),
        "curve": curve,
    }
    with atomic_folder(out) as folder:
        # Half the bytes of float32, and the loop computes in bfloat16 anyway.
        model.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        manifest["weights_sha256"] = sha256_file(folder / "model.safetensors")
        manifest["versions"] = _versions()
        write_json(folder / "manifest.json", manifest)
    return manifest


def report(
    model: "LlamaForCausalLM", tokenizer: "PreTrainedTokenizerFast", n: int = 200, regions: int = HOME_REGIONS
) -> dict[str, dict[str, float]]:
    """How often each skill is right on questions that training never saw, decoded greedily.

    Returns:
        skill -> {"right": share of lessons whose whole completion is right, "n": how many were tried}.
    """
    import torch

    model.eval()
    results: dict[str, dict[str, float]] = {}
    device = next(model.parameters()).device
    for name, lessons in exam(n, regions).items():
        rows = sorted((encode(tokenizer, lesson, last_only=True) for lesson in lessons), key=lambda row: len(row[0]))
        right = 0
        for start in range(0, len(rows), 32):
            ids, weights = collate(rows[start : start + 32])
            with torch.inference_mode():
                guessed = model(input_ids=ids.to(device), use_cache=False).logits.argmax(-1).cpu()
            # Right under teacher forcing at every position is the same as right when decoding greedily.
            asked = weights[:, 1:] == ANSWER_WEIGHT
            right += int(((guessed[:, :-1] == ids[:, 1:]) | ~asked).all(1).sum())
        results[name] = {"right": round(right / len(rows), 3), "n": len(rows)}
    model.train()
    return results


def exam(n: int, regions: int = HOME_REGIONS) -> dict[str, list[Lesson]]:
    """The questions of the report: recall from the home world, everything else from worlds made for the exam."""
    school = School("exam", regions)

    def ask(lesson: Any, *arguments: Any) -> list[Lesson]:
        made = []
        for _ in range(n):
            school.refresh()
            made.append(lesson(*arguments))
        return made

    def reading(passages: int) -> Lesson:
        while True:
            lesson = school.read()
            if lesson[0][0].count("\npassage: ") == passages:
                return lesson

    def composing(kind: str) -> Lesson:
        while True:
            lesson = school.compose()
            yes_no = lesson[0][1] in (" yes", " no")
            earlier = "earlier" in lesson[0][0]
            found = "yesno" if yes_no else "comparison" if earlier else "bridge"
            if found == kind and lesson[0][1] != " unknown":
                return lesson

    return {
        "recall of taught facts": ask(school.recall),
        "recall of untaught facts": ask(lambda: _untaught(school)),
        "read, one passage": ask(reading, 1),
        "read, five passages": ask(reading, 5),
        "relevance": ask(lambda: [school.verdict_on_passage()]),
        "relevance after four examples": ask(lambda: [school.verdict_on_passage() for _ in range(5)]),
        "decomposition": ask(lambda: [school.decomposition()]),
        "compose, bridge": ask(composing, "bridge"),
        "compose, comparison": ask(composing, "comparison"),
        "compose, yes/no": ask(composing, "yesno"),
    }


def _untaught(school: School) -> Lesson:
    home = school.chance.choice(school.home)
    fact = school.chance.choice([fact for fact in home.facts.values() if not fact.taught])
    from data.world_questions import make_question
    from lm.pocket.lessons import pair

    question = make_question(home, "lookup", school.chance, fact)
    return [pair({"question": question.question}, {"answer": question.answer})]


def encode(tokenizer: "PreTrainedTokenizerFast", lesson: Lesson, last_only: bool = False) -> Row:
    """A lesson as token ids, and which of them are answers (only the last pair's if `last_only`)."""
    ids, answers = [tokenizer.bos_token_id], [False]
    for number, (prompt, completion) in enumerate(lesson):
        before = tokenizer("\n" * (number > 0) + prompt, add_special_tokens=False)["input_ids"]
        after = [*tokenizer(completion, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        counts = not last_only or number == len(lesson) - 1
        ids += before + after
        answers += [False] * len(before) + [counts] * len(after)
    return ids, answers


def collate(rows: list[Row]) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Token ids (rows, length), padded on the right to a multiple of 8, and their weights in the loss, the same shape."""
    import torch

    length = -(-max(len(ids) for ids, _ in rows) // 8) * 8
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for row, (ids, answers) in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = 1 + (ANSWER_WEIGHT - 1) * torch.tensor(answers)
    weights[:, 0] = 0
    return tokens, weights


class _Trainer:
    """Weights in float32, computed with in bfloat16: twice the speed on CPUs that have it, with nothing lost."""

    def __init__(self, model: "LlamaForCausalLM") -> None:
        import torch

        self.model = model.to(torch.bfloat16)
        self.names = [name for name, _ in model.named_parameters()]
        self.masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
        hidden = [m for n, m in zip(self.names, self.masters, strict=True) if m.ndim == 2 and "layers" in n]
        other = [m for m in self.masters if not any(m is one for one in hidden)]
        matrices, vectors = [m for m in other if m.ndim == 2], [m for m in other if m.ndim < 2]
        self.optimizers = [
            torch.optim.Muon(hidden, lr=MUON_RATE, weight_decay=WEIGHT_DECAY, momentum=0.95),
            torch.optim.AdamW(
                [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                lr=ADAM_RATE,
                betas=(0.9, 0.98),
                foreach=True,
            ),
        ]
        self.rates = [MUON_RATE, ADAM_RATE]
        self.steps = 0

    def step(self, ids: "torch.Tensor", weights: "torch.Tensor", progress: float) -> float:
        """Learns from one batch; returns its loss, in nats a weighted token."""
        import torch

        logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        weights = weights[:, 1:].flatten()
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        for master, parameter in zip(self.masters, self.model.parameters(), strict=True):
            master.grad = parameter.grad.float() if parameter.grad is not None else None
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        decay = 1.0 if progress < DECAY_FROM else max(0.02, (1 - progress) / (1 - DECAY_FROM))
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * decay * min(1.0, (self.steps + 1) / WARM_UP_STEPS)
            optimizer.step()
        self._publish()
        self.steps += 1
        return loss.item()

    def finish(self) -> None:
        """Leaves the model in float32 with the exact weights."""
        self.model.float()
        self._publish()

    def _publish(self) -> None:
        import torch

        with torch.no_grad():
            torch._foreach_copy_(list(self.model.parameters()), self.masters)


class _batches:  # noqa: N801 - used as a function
    """A context manager that yields batches until enough tokens were read; made in a process of its own.

    In a thread, making lessons and tokenising would hold the interpreter's lock and cost training half its speed.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", seed: int, tokens: int, regions: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.queue = context.Queue(maxsize=4)
        text = tokenizer.backend_tokenizer.to_str()
        self.process = context.Process(target=_teach, args=(self.queue, text, seed, tokens, regions), daemon=True)

    def __enter__(self) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
        self.process.start()
        return self._stream()

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.join()

    def _stream(self) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
        while (chunk := self.queue.get()) is not None:
            for rows in chunk:
                yield collate(rows)


def _teach(queue: Any, tokenizer_text: str, seed: int, tokens: int, regions: int) -> None:
    """Makes batches of lessons of similar length, in chunks, until `tokens` were made; then puts None."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from lm.pocket.build import BEGIN, END, PAD

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(tokenizer_text), pad_token=PAD, bos_token=BEGIN, eos_token=END
    )
    school, made = School(seed, regions), 0
    while made < tokens:
        lessons = school.lessons(CHUNK_LESSONS, made / tokens)
        rows = sorted((encode(tokenizer, lesson) for lesson in lessons), key=lambda row: len(row[0]))
        batches: list[list[Row]] = [[]]
        for row in rows:
            if batches[-1] and len(row[0]) * (len(batches[-1]) + 1) > BATCH_TOKENS:
                batches.append([])
            batches[-1].append(row)
        school.chance.shuffle(batches)
        made += sum(-(-max(len(ids) for ids, _ in rows) // 8) * 8 * len(rows) for rows in batches)
        queue.put(batches)
    queue.put(None)


def _tokenizer_texts() -> Iterator[str]:
    """What the tokenizer learns its pieces from: lessons of another seed, and the words of other tasks."""
    school = School("tokenizer")
    for lesson in school.lessons(6000, 1.0):
        yield "\n".join(prompt + completion for prompt, completion in lesson)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "tokenizers")}


if __name__ == "__main__":
    import sys

    print(json.dumps(train(sys.argv[1], tokens=int(float(sys.argv[2])))["report"], indent=1))
