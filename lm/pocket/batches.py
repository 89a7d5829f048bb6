"""From lessons to batches of token ids, made in a process of their own."""

import multiprocessing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lm.pocket.build import BEGIN, END, PAD
from lm.pocket.lessons import Lesson, School

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

# Tokens a step, padding included. Few sequences a step cost more overhead, many learn less from each token.
BATCH_TOKENS = 6144
# Answers weigh five times the prompts: at equal tokens one-passage reading rose from 42% to 61% right.
ANSWER_WEIGHT = 5.0
CHUNK_LESSONS = 600

Row = tuple[list[int], list[bool]]


def encode(tokenizer: "PreTrainedTokenizerFast", lesson: Lesson, last_only: bool = False) -> Row:
    """A lesson as token ids, and which of them are answers (only the last pair's if `last_only`)."""
    plain = tokenizer.backend_tokenizer
    begin, end = (plain.encode(mark, add_special_tokens=False).ids for mark in (BEGIN, END))
    ids, answers = list(begin), [False]
    for number, (prompt, completion) in enumerate(lesson):
        before = plain.encode("\n" * (number > 0) + prompt, add_special_tokens=False).ids
        after = [*plain.encode(completion, add_special_tokens=False).ids, *end]
        counts = not last_only or number == len(lesson) - 1
        ids += before + after
        answers += [False] * len(before) + [counts] * len(after)
    return ids, answers


def collate(rows: list[Row]) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Token ids (rows, length), padded right to a multiple of 8, and their weights in the loss, the same shape."""
    import torch

    length = -(-max(len(ids) for ids, _ in rows) // 8) * 8
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for row, (ids, answers) in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = 1 + (ANSWER_WEIGHT - 1) * torch.tensor(answers)
    weights[:, 0] = 0
    return tokens, weights


class Batches:
    """As a context, an iterator of batches until enough tokens were read; they are made in a process of its own.

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
