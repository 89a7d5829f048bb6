"""A Llama or T5 in the process behind DSPy's engine protocol: all threads' requests wait in a queue and go in batches.

Texts are written in one batch, whose rows come and go; every few tokens it lets others in, and judgements are made.
One engine serves all LMs, threads and programs of a process that name the same weights.
"""

import atexit
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dspy.lm15 import ContextLengthError, Request, Response

from raisf.lm.local import inference, seq2seq
from raisf.lm.local.decoding import MAX_ROWS, Decoding
from raisf.lm.local.inference import context_of, end_tokens, load_model, tokens_of
from raisf.lm.local.jobs import Job, job_of, readings, scorings
from raisf.lm.local.memory import FreedMemory
from raisf.lm.local.multi_lora import BASE, Loras, Slot, twin_of
from raisf.lm.local.prefixes import Prefixes
from raisf.lm.local.probes import Probe, Probes
from raisf.lm.local.scoring import answers
from raisf.lm.local.tails import Tails
from raisf.lm.local.tokenization import Text
from raisf.lm.local.weights import Precision, check_unchanged, weights_folder, weights_hash
from raisf.lm.local.writing import Answer, fail
from raisf.lm.transport import add_to_stoppable, in_time

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A program's judgements arrive within a millisecond of each other; a lone call loses this much, a tenth of its forward.
QUIET_SECONDS = 0.001
# Tokens that are written of each text before the queue is looked at again. Whoever comes waits for so many, and is read
# or judged together with those who came meanwhile: each pass has its price, however few are in it.
STEPS = 4
EXIT_SECONDS = 20  # what a forward pass of a large model on a CPU may take

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
            _engines[key] = InferenceEngine(folder, precision, name, sha)
        return _engines[key]


def _reopened(name: str, sha: str, precision: Precision | None) -> "InferenceEngine":
    """The engine that another process pickled."""
    folder = weights_folder(name)
    check_unchanged(name, folder, sha)
    return engine_for(folder, sha, precision, name)


class InferenceEngine:
    """Answers DSPy's typed requests with a causal Llama, or with an encoder-decoder such as T5.

    A request is generated (greedily, or sampled), or, where it asks for probabilities of labels, scored: each
    label's probability is that of its whole text after the prompt, normalised over the labels; or what a probe reads
    off a hidden state there. A generated text comes with the log-probabilities of its tokens where the request's
    `config.logprobs` is 0.

    Args:
        folder: weights and tokenizer in the Hugging Face layout, weights as safetensors.
        precision: see `raisf.lm.local.weights.choose_precision`.
        name: what another process finds the same weights by; the folder if empty.
        sha: the weights' hash; that of what lies in the folder now if empty.
    """

    supported_params = frozenset({"max_tokens", "temperature", "top_p", "seed", "stop", "logprobs"})

    def __init__(self, folder: Path, precision: Precision | None = None, name: str = "", sha: str = ""):
        self.folder = folder
        self.sha = sha or weights_hash(folder)
        self.precision: Precision | None = precision
        self.name = name or str(folder.absolute())
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._ending = False
        self._lock = threading.Lock()
        self._model: PreTrainedModel | None = None
        self._text: Text | None = None
        self.loras: Loras
        self.probes: Probes
        self._prefixes: Prefixes | None = None  # an encoder-decoder keeps none
        self._tails: Tails | None = None  # likewise
        self._freed = FreedMemory()
        self._places: int | None = None  # for which the device has had memory, once it lacked some

    def __deepcopy__(self, memo: dict[int, Any]) -> "InferenceEngine":
        return self  # a copied program shares the weights

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.name, self.sha, self.precision)

    def complete(self, request: Request) -> Response:
        """The base's answer to a request; see `EngineClient.complete`."""
        return in_time(self.submit(request))

    def submit(
        self,
        request: Request,
        lora: tuple[Path, str] | None = None,
        listen: Callable[[str], None] | None = None,
        probe: tuple[Path, str] | None = None,
    ) -> Future[Response]:
        """Put a request in the queue.

        Args:
            request: What to answer.
            lora: Folder and hash of the LoRA adapter that answers on this base; None for the base itself.
            listen: Is told, in the engine's thread, all that has been written after each token. It must be quick.
            probe: Folder and hash of the probe that gives the labels' probabilities; None reads the label tokens.

        Returns:
            Its answer. Whoever cancels it waits for it no more: it is not begun, or leaves the batch.

        Raises:
            InputError: the adapter or the probe cannot be read, is of another base, or has changed; or the probe
                knows other labels.
            ContextLengthError: the prompt is longer than the model's context.
            UnsupportedFeatureError: the request asks for what this engine does not do.
        """
        read = self._probe(*probe) if probe else None
        job = job_of(request, self.text, self._context, self._place(*lora) if lora else BASE, read)
        job.listen = listen
        return self._enqueue(job)

    def read_layers(self) -> range:
        """The numbers of the layers that probes may read; raises InputError where the base is an encoder-decoder."""
        self.load()
        return self.probes.layers

    def hidden(self, requests: Sequence[Request], layers: Sequence[int] | None = None) -> list[np.ndarray | None]:
        """The base's hidden states at the last token of each prompt, batched with whatever else is asked.

        Args:
            requests: What the base reads; they are not answered.
            layers: Whose outputs, 1 the first; None for all.

        Returns:
            For each request (layers, width) in float32; None where the prompt is longer than the context.
        """
        self.load()
        wanted = self.probes.wanted(layers)
        futures: list[Future[Any] | None] = []
        try:
            for request in requests:
                try:
                    job = job_of(request, self.text, self._context, layers=wanted)
                except ContextLengthError:
                    futures.append(None)
                else:
                    futures.append(self._enqueue(job))
            return [future.result() if future is not None else None for future in futures]
        finally:
            for future in filter(None, futures):
                future.cancel()

    def _enqueue(self, job: Job) -> Future[Any]:
        with self._lock:
            if self._worker is None or not self._worker.is_alive():  # a forked child has no worker
                self._worker = threading.Thread(target=self._work, daemon=True, name=f"engine {self.folder.name}")
                self._worker.start()
                atexit.register(self._finish, self._worker)
        self._queue.put(job)
        add_to_stoppable(job.future)
        return job.future

    def _finish(self, worker: threading.Thread) -> None:
        """Lets the worker end before the interpreter does: one that is cut off inside torch aborts the process."""
        self._ending = True
        self._queue.put(None)
        worker.join(EXIT_SECONDS)

    def load(self) -> None:
        """Read weights and tokenizer, if they have not been; else the first request does.

        Raises:
            InputError: They cannot be read, or have changed.
        """
        with self._lock:
            if self._model is None:
                model, tokenizer = load_model(self.folder, self.precision)
                check_unchanged(self.name, self.folder, self.sha)
                self._model = model
                self._text = Text(tokenizer, self._model.config.is_encoder_decoder, tokens_of(self._model))
                self.loras, self.probes = Loras(self._model), Probes(self._model)
                if not self._text.seq2seq:
                    self._prefixes, self._tails = Prefixes(self._model, self.loras), Tails()

    def _place(self, folder: Path, sha: str) -> Slot:
        with self._lock:
            return self.loras.place(folder, sha)

    def _probe(self, folder: Path, sha: str) -> Probe:
        self.load()
        with self._lock:
            return self.probes.open(folder, sha)

    @property
    def model(self) -> "PreTrainedModel":
        """The base model, read if it has not been."""
        self.load()
        assert self._model is not None
        return self._model

    @functools.cached_property
    def twin(self) -> "PreTrainedModel":
        """The model on the same weights without hooks, for other threads: the engine's hangs adapters into its own."""
        return twin_of(self.model)

    @property
    def text(self) -> Text:
        """Its tokenizer, safe to share between threads."""
        self.load()
        assert self._text is not None
        return self._text

    @property
    def _context(self) -> int:
        return context_of(self.model)

    @property
    def compute(self) -> Any:
        """`raisf.lm.local.inference` or `raisf.lm.local.seq2seq`: the functions for this kind of model."""
        return seq2seq if self.text.seq2seq else inference

    def _work(self) -> None:
        waiting: deque[Answer] = deque()
        decoding: Decoding[Answer] | None = None
        while not self._ending:
            idle = not (waiting or decoding)
            self._places = None if idle else self._places  # what else held memory may be gone
            jobs = self._arrived(wait=idle)
            jobs = self._attempt(jobs, self._find_prefixes)
            for batch in scorings((job for job in jobs if job.scored), self.model.device.type):
                if not self._ending:
                    self._attempt(batch, self._score)
            for job in jobs:
                if not job.scored:
                    self._attempt([job], lambda jobs: waiting.extend(map(self._begun, jobs)))
            if waiting or decoding:
                rows = decoding or Decoding(self.compute.Rows(self.model, self.loras, self._tails))
                decoding = self._write(rows, waiting)
            self._freed.give_back()

    def _arrived(self, wait: bool) -> list[Job]:
        """The requests in the queue, and those that come within a moment of them.

        Args:
            wait: Whether to wait for the first.
        """
        found = [self._queue.get()] if wait else []
        quiet = not wait
        while len(found) < 2 * MAX_ROWS:
            try:
                found.append(self._queue.get_nowait())
                quiet = False
            except queue.Empty:
                if quiet:
                    break
                # Not by `get(timeout=)`: before Python 3.13 it waits for ever, and all callers with it, where this
                # thread is paused for longer than the timeout at the wrong moment, as a busy machine does.
                time.sleep(QUIET_SECONDS)
                quiet = True
        return [job for job in found if job and not job.over]

    def _attempt(self, jobs: list[Job], answer: Callable[[list[Job]], None]) -> list[Job]:
        """Do something for jobs, or tell their callers what went wrong; gives those that are still to be answered.

        What fails for several is tried for each alone, so that only the bad one fails.
        """
        try:
            answer(jobs)
        except BaseException as error:  # the callers wait for it in their threads
            if len(jobs) == 1:
                jobs[0].fail(error)
            for job in jobs:
                if not job.over:
                    self._attempt([job], answer)
        return [job for job in jobs if not job.over]

    def _find_prefixes(self, jobs: list[Job]) -> None:
        if self._prefixes is not None:
            prompts = [(job.lora, job.prompt[: job.start or None]) for job in jobs]
            for job, prefix in zip(jobs, self._prefixes.find(prompts), strict=True):
                job.prefix = prefix

    def _score(self, batch: list[Job]) -> None:
        for job, answer, tokens in answers(batch, self.model, self.loras, self.compute):
            if isinstance(answer, np.ndarray):
                job.answer(answer)
            else:
                job.respond(answer, tokens)

    def _begun(self, job: Job) -> Answer:
        return Answer(job, self.text, end_tokens(self.model, self.text))

    def _write(self, decoding: Decoding[Answer], waiting: deque[Answer]) -> Decoding[Answer] | None:
        """Let in what there is room for, and write some tokens of each text; gives what goes on, if anything does."""
        device = self.model.device.type
        admitted = [draft for draft in decoding.admitted(waiting, device, self._places) if not draft.job.over]
        if self._tails is not None:
            for draft in admitted:
                draft.prefix = self._tails.longest(draft.lora, draft.prompt, draft.prefix)
        fewer = None
        for batch in readings(admitted, device):
            if fewer or not decoding.open:  # they wait until the first of them have been written
                waiting.extendleft(reversed(batch))
                continue
            try:
                self._hand_over(decoding.join(batch))
            except BaseException as error:  # those who are being written have lost nothing
                if fewer := decoding.fewer_places(batch, error):
                    self._places = fewer
                    waiting.extendleft(reversed(batch))
                else:
                    fail(batch, error)
        going = list(decoding.drafts)
        try:
            for _ in range(STEPS):
                if decoding.drafts and not self._ending:
                    self._hand_over(decoding.step())
        except BaseException as error:  # nobody knows what is left of the rows
            fail(going, error)
            return None
        return decoding if decoding.drafts else None

    def _hand_over(self, ended: list[Answer]) -> None:
        for draft in ended:
            draft.job.respond(draft.written, len(draft.tokens), draft.finished, draft.told)
