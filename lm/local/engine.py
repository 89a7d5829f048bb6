"""A Llama or T5 in the process behind DSPy's engine protocol: all threads' requests wait in a queue and go in batches.

One engine serves all LMs, threads and programs of a process that name the same weights.
"""

import atexit
import math
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspy.lm15 import DataPart, Message, Request, Response, Usage

from raisf.lm.local import inference, seq2seq
from raisf.lm.local.inference import end_tokens, load_model
from raisf.lm.local.jobs import MAX_ROWS, Job, batches, job_of
from raisf.lm.local.multi_lora import BASE, Loras, Slot
from raisf.lm.local.prefixes import Prefixes
from raisf.lm.local.tokenization import Text
from raisf.lm.local.weights import Precision, weights_folder, weights_hash
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

# A program's judgements arrive within a millisecond of each other; a lone call loses this much, a tenth of its forward.
QUIET_SECONDS = 0.001
# What a forward pass of a large model on a CPU may take.
EXIT_SECONDS = 20

_engines: dict[tuple[Path, str, Precision | None], "InferenceEngine"] = {}
_engines_lock = threading.Lock()


def engine_for(folder: Path, sha: str, precision: Precision | None = None, name: str = "") -> "InferenceEngine":
    """The process's engine for these weights in this precision; they are read at the first request.

    Args:
        folder: Weights and tokenizer.
        sha: Their hash.
        precision: See `raisf.lm.local.weights.choose_precision`.
        name: What another process finds the same weights by; the folder if empty.
    """
    key = (folder.resolve(), sha, precision)
    with _engines_lock:
        if key not in _engines:
            _engines[key] = InferenceEngine(folder, precision, name)
        return _engines[key]


def _reopened(name: str, sha: str, precision: Precision | None) -> "InferenceEngine":
    """The engine that another process pickled."""
    folder = weights_folder(name)
    if (found := weights_hash(folder)) != sha:
        raise InputError(
            f"the weights of {name} are not those that were pickled: expected #{sha}, found #{found} in {folder}"
        )
    return engine_for(folder, sha, precision, name)


class InferenceEngine:
    """Answers DSPy's typed requests with a causal Llama, or with an encoder-decoder such as T5.

    A request is generated (greedily, or sampled), or, where it asks for probabilities of labels, scored: each
    label's probability is that of its whole text after the prompt, normalised over the labels.

    Args:
        folder: weights and tokenizer in the Hugging Face layout, weights as safetensors.
        precision: see `raisf.lm.local.weights.choose_precision`.
        name: what another process finds the same weights by; the folder if empty.
    """

    supported_params = frozenset({"max_tokens", "temperature", "top_p", "seed", "stop"})

    def __init__(self, folder: Path, precision: Precision | None = None, name: str = ""):
        self.folder = folder
        self.precision: Precision | None = precision
        self.name = name or str(folder.absolute())
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._ending = False
        self._lock = threading.Lock()
        self._model: PreTrainedModel | None = None
        self._text: Text | None = None
        self.loras: Loras
        self._prefixes: Prefixes | None = None  # an encoder-decoder keeps none

    def __deepcopy__(self, memo: dict[int, Any]) -> "InferenceEngine":
        return self  # a copied program shares the weights

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.name, weights_hash(self.folder), self.precision)

    def complete(self, request: Request) -> Response:
        """Answer a request, together with those that other threads make at the same time."""
        return self.submit(request).result()

    def submit(
        self,
        request: Request,
        lora: tuple[Path, str] | None = None,
        listen: Callable[[str], None] | None = None,
    ) -> Future[Response]:
        """Put a request in the queue.

        Args:
            request: What to answer.
            lora: Folder and hash of the LoRA adapter that answers on this base; None for the base itself.
            listen: Is told, in the engine's thread, all that has been written after each token. It must be quick.

        Raises:
            InputError: the adapter cannot be read, is of another base, or has changed.
            ContextLengthError: the prompt is longer than the model's context.
            UnsupportedFeatureError: the request asks for what this engine does not do.
        """
        job = job_of(request, self.text, self._context, self._place(*lora) if lora else BASE)
        job.listen = listen
        with self._lock:
            if self._worker is None or not self._worker.is_alive():  # a forked child has no worker
                self._worker = threading.Thread(target=self._work, daemon=True, name=f"engine {self.folder.name}")
                self._worker.start()
                atexit.register(self._finish, self._worker)
        self._queue.put(job)
        return job.future

    def _finish(self, worker: threading.Thread) -> None:
        """Lets the worker end before the interpreter does: one that is cut off inside torch aborts the process."""
        self._ending = True
        self._queue.put(None)
        worker.join(EXIT_SECONDS)

    # Before the queue

    def _load(self) -> None:
        with self._lock:
            if self._model is None:
                self._model, tokenizer = load_model(self.folder, self.precision)
                self._text = Text(tokenizer, self._model.config.is_encoder_decoder)
                self.loras = Loras(self._model)
                if not self._text.seq2seq:
                    self._prefixes = Prefixes(self._model, self.loras)

    def _place(self, folder: Path, sha: str) -> Slot:
        with self._lock:
            return self.loras.place(folder, sha)

    @property
    def model(self) -> "PreTrainedModel":
        """The base model, read if it has not been."""
        self._load()
        assert self._model is not None
        return self._model

    @property
    def text(self) -> Text:
        """Its tokenizer, safe to share between threads."""
        self._load()
        assert self._text is not None
        return self._text

    @property
    def _context(self) -> int:
        return getattr(self.model.config, "max_position_embeddings", None) or 2**31

    @property
    def compute(self) -> Any:
        """`raisf.lm.local.inference` or `raisf.lm.local.seq2seq`: the functions for this kind of model."""
        return seq2seq if self.text.seq2seq else inference

    # In the worker's thread

    def _work(self) -> None:
        while not self._ending:
            waiting = [self._queue.get()]
            try:
                while len(waiting) < 2 * MAX_ROWS:
                    waiting.append(self._queue.get(timeout=QUIET_SECONDS))
            except queue.Empty:
                pass
            jobs = [job for job in waiting if job and job.future.set_running_or_notify_cancel()]
            self._answer(jobs, self._find_prefixes)
            jobs = [job for job in jobs if not job.future.done()]
            for batch in batches(jobs, self.model.device.type):
                if self._ending:
                    break
                self._answer(batch, self._score if batch[0].labels else self._generate)

    def _answer(self, batch: list[Job], answer: Any) -> None:
        try:
            answer(batch)
        except BaseException as error:  # the callers wait for it in their threads
            for job in batch:
                if not job.future.done():
                    job.future.set_exception(error)

    def _find_prefixes(self, jobs: list[Job]) -> None:
        if self._prefixes is not None:
            prompts = [(job.lora, job.prompt[: job.start or None]) for job in jobs]
            for job, prefix in zip(jobs, self._prefixes.find(prompts), strict=True):
                job.prefix = prefix

    def _score(self, batch: list[Job]) -> None:
        sequences = [tokens for job in batch for tokens in job.labels.values()]
        starts = [job.start for job in batch for _ in job.labels]
        slots = [job.lora for job in batch for _ in job.labels]
        prefixes = [job.prefix for job in batch for _ in job.labels]
        logprobs = iter(self.compute.score(self.model, sequences, starts, slots, self.loras, prefixes))
        for job in batch:
            probabilities = _normalise({label: next(logprobs) for label in job.labels})
            best = max(probabilities, key=probabilities.__getitem__)
            data = DataPart(
                value={job.name: best},
                probabilities={job.name: probabilities},
                method="candidate_sequence_likelihood",
            )
            self._respond(job, data, len(job.labels[best]) - job.start)

    def _generate(self, batch: list[Job]) -> None:
        import torch
        from transformers import TopPLogitsWarper

        ends = end_tokens(self.model, self.text.tokenizer)
        configs = [job.request.config for job in batch]
        generators = {row: _generator(config.seed) for row, config in enumerate(configs) if config.temperature}

        def choose(row: int, logits: "torch.Tensor") -> int:
            if row not in generators:
                return int(logits.argmax())
            scores = logits.float() / (configs[row].temperature or 1.0)
            if (top_p := configs[row].top_p) is not None and top_p < 1:
                scores = TopPLogitsWarper(top_p)(torch.empty(0, dtype=torch.long), scores[None])[0]  # pyright: ignore[reportArgumentType]
            weights = scores.softmax(-1).cpu()
            return int(torch.multinomial(weights, 1, generator=generators[row]))

        def text(row: int, tokens: list[int]) -> str:
            written = self.text.decode([token for token in tokens if token not in ends], True)
            for stop in configs[row].stop:
                written = written.split(stop)[0]
            return written

        def ended(row: int, tokens: list[int]) -> bool:
            if (listen := batch[row].listen) is not None:
                listen(text(row, tokens))
            return (
                self._ending
                or tokens[-1] in ends
                or any(
                    # A token is at least one byte, so a stop's last bytes lie in as many tokens.
                    stop in self.text.decode(tokens[-len(stop.encode()) :], False)
                    for stop in configs[row].stop
                )
            )

        prompts, limits = [job.prompt for job in batch], [job.limit for job in batch]
        blend = self.loras.blend([job.lora for job in batch])
        found = self.compute.generate(
            self.model, prompts, limits, choose if generators else None, ended, blend, [job.prefix for job in batch]
        )
        for row, tokens in found:
            if self._ending:  # cut off: nobody may take it for an answer
                return
            job = batch[row]
            self._respond(job, text(row, tokens), len(tokens), ended(row, tokens))

    def _respond(self, job: Job, content: str | DataPart, tokens: int, finished: bool = True) -> None:
        job.future.set_result(
            Response(
                id=None,
                model=job.request.model,
                message=Message.assistant(content),
                finish_reason="stop" if finished else "length",
                usage=Usage(input_tokens=len(job.prompt), output_tokens=tokens),
            )
        )


def _generator(seed: int | None) -> "torch.Generator":
    import torch

    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)


def _normalise(logprobs: dict[str, float]) -> dict[str, float]:
    highest = max(logprobs.values())
    weights = {label: math.exp(logprob - highest) for label, logprob in logprobs.items()}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}
