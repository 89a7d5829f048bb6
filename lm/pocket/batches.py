"""From lessons to batches of token ids, made in a process of their own."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raisf.lm.pocket.build import BEGIN, END
from raisf.lm.pocket.lessons import lessons
from raisf.lm.pocket.sampler import Lesson, LessonSampler
from raisf.utils.errors import RaisfError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

# Tokens a step, padding included. Few sequences a step cost more overhead, many learn less from each token.
BATCH_TOKENS = 8192
# Answers weigh five times the prompts: at equal tokens one-passage reading rose from 42% to 61% right.
ANSWER_WEIGHT = 5.0
CHUNK_LESSONS = 4000
# How long the training starts small: copying and short readings, until a circuit for them has formed.
START_TOKENS = 5_400_000
# The lengths that rows are padded to. A CPU's matrix kernels are compiled for each shape anew, which with hundreds of
# shapes took longer than the arithmetic.
LENGTHS = (16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640)

MaskedTokens = tuple[list[int], list[bool]]
Batch = tuple["torch.Tensor", "torch.Tensor"]


def encode(tokenizer: "Tokenizer", lesson: Lesson, last_only: bool = False) -> MaskedTokens:
    """A lesson as token ids, and which of them are answers (only the last pair's if `last_only`)."""
    begin, end = (tokenizer.encode(mark, add_special_tokens=False).ids for mark in (BEGIN, END))
    ids, answers = list(begin), [False]
    for number, (prompt, completion) in enumerate(lesson):
        before = tokenizer.encode("\n" * (number > 0) + prompt, add_special_tokens=False).ids
        after = [*tokenizer.encode(completion, add_special_tokens=False).ids, *end]
        counts = not last_only or number == len(lesson) - 1
        ids += before + after
        answers += [False] * len(before) + [counts] * len(after)
    return ids, answers


def collate(rows: list[MaskedTokens]) -> "Batch":
    """Token ids (rows, length), padded right to one of `LENGTHS`, and their weights in the loss, the same shape."""
    import torch

    longest = max(len(ids) for ids, _ in rows)
    length = next((length for length in LENGTHS if length >= longest), longest)
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for row, (ids, answers) in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = 1 + (ANSWER_WEIGHT - 1) * torch.tensor(answers)
    weights[:, 0] = 0
    return tokens, weights


def said(model: Any, ids: "torch.Tensor", weights: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """The logits at each place that a model learns from, and what they should be.

    Args:
        model: A Llama, or an encoder-decoder, whose encoder reads a row's prompt and whose decoder writes its answer.
        ids: Of `collate`; for an encoder-decoder lessons of one pair.
        weights: Of `collate`.

    Returns:
        Logits (rows, length, vocabulary), and the tokens that should have been said and their weights (rows, length).
    """
    import torch

    if not model.config.is_encoder_decoder:
        return model(input_ids=ids, use_cache=False).logits[:, :-1], ids[:, 1:], weights[:, 1:]
    answers = weights == ANSWER_WEIGHT
    read = ids.masked_fill(answers, 0)
    count = answers.sum(1, keepdim=True)
    length = 1 << (int(count.max()) - 1).bit_length()  # few shapes, as in `collate`
    places = answers.int().argmax(1, keepdim=True) + torch.arange(length, device=ids.device)
    written = torch.arange(length, device=ids.device) < count
    targets = ids.gather(1, places.clamp(max=ids.shape[1] - 1)) * written
    before = targets.roll(1, 1).index_fill(1, targets.new_zeros(1), model.config.decoder_start_token_id)
    mask = torch.zeros(read.shape, dtype=model.dtype, device=ids.device).masked_fill(read == 0, -torch.inf)
    mask = mask[:, None, None]
    logits = model(input_ids=read, attention_mask=mask, decoder_input_ids=before, use_cache=False).logits
    # Between one a token and one an answer: a verdict is one word, and long sub-questions would drown it.
    return logits, targets, written / count**0.5


class Batches:
    """As a context, an iterator of chunks of batches until enough tokens were read; made in a process of its own.

    In a thread, making lessons and tokenising would hold the interpreter's lock and cost training half its speed. A
    chunk follows from the seed and its number, so that a stopped training can go on with any of them.

    Args:
        tokenizer: Its words.
        seed: Decides the lessons.
        tokens: How many to make in all, padding included.
        regions: Of the home world, taught by heart.
        chunk: The first chunk's number.
        made: Tokens in the chunks before, counted as if every batch were full.
        judging: Whether the lessons are a T5's.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        seed: int,
        tokens: int,
        regions: int,
        chunk: int = 0,
        made: int = 0,
        judging: bool = False,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.chunks, self._sent = context.Pipe(duplex=False)
        text = tokenizer.backend_tokenizer.to_str()
        arguments = (self._sent, text, seed, tokens, regions, chunk, made, judging, CHUNK_LESSONS)
        self.process = context.Process(target=_teach, args=arguments, daemon=True)

    def __enter__(self) -> Iterator[list[Batch]]:
        self.process.start()
        self._sent.close()  # so that the process alone holds this end, and the other one is told of its death
        return self._stream()

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.join()
        self.chunks.close()

    def _stream(self) -> Iterator[list[Batch]]:
        while (chunk := self._next()) is not None:
            yield [collate(rows) for rows in chunk]

    def _next(self) -> Any:
        """What the process has made next; it may be killed, as by a machine out of memory, in the middle of a chunk."""
        try:
            return self.chunks.recv()
        except (EOFError, OSError):
            self.process.join()
            raise RaisfError(
                f"the process that makes the lessons has ended (exit code {self.process.exitcode}): run the same "
                "command again, which goes on from its last checkpoint"
            ) from None


def _teach(
    chunks: "Connection",
    tokenizer_text: str,
    seed: int,
    tokens: int,
    regions: int,
    number: int,
    made: int,
    judging: bool,
    size: int,
) -> None:
    """Sends chunks of batches of lessons of similar length until `tokens` were made; then None."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_text)
    sampler = LessonSampler(seed, regions)
    with contextlib.suppress(BrokenPipeError):  # nobody is left to read them, as after a kill
        while made < tokens:
            sampler.begin(f"{seed}/{number}")
            taught = lessons(sampler, size, made < min(START_TOKENS, tokens / (8 if judging else 4)), judging)
            batches = list(cut([encode(tokenizer, lesson) for lesson in taught]))
            sampler.rng.shuffle(batches)
            made += len(batches) * BATCH_TOKENS
            number += 1
            chunks.send(batches)
        chunks.send(None)


def cut(rows: list[MaskedTokens]) -> Iterator[list[MaskedTokens]]:
    """Batches of rows of like length, each of (nearly) `BATCH_TOKENS` tokens with its padding.

    What does not fill a batch goes into a longer one. Rows beyond the last length, and the few that are left in the
    end, are dropped.
    """
    waiting: list[MaskedTokens] = []
    shorter = 0
    for length in LENGTHS:
        waiting += [row for row in rows if shorter < len(row[0]) <= length]
        size = BATCH_TOKENS // length
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
        shorter = length
