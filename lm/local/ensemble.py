"""Several prompts, one answer: each next token is the likeliest by the weighted mean of what all prompts say.

This needs the probabilities of every token at every step, so it works for models in the process and for no endpoint.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dspy
from dspy.utils.exceptions import ContextWindowExceededError

from raisf.lm.adapter import CompactAdapter
from raisf.lm.failures import explain
from raisf.lm.local.decoding import Draft
from raisf.lm.local.inference import Rows, context_of, end_tokens
from raisf.lm.local.model import LocalLM
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Mixed:
    """What an ensemble wrote, whether it came to its end, and what it read for it: all prompts together."""

    text: str
    finished: bool
    prompt_tokens: int
    completion_tokens: int


def answer_together(
    lm: Any,
    signature: type[dspy.Signature],
    demos: list[Any],
    inputs: Sequence[dict[str, Any]],
    weights: Sequence[float],
) -> Mixed:
    """One completion for several calls of a signature, greedily.

    Args:
        lm: A `LocalLM` that is spoken to in the compact format, without a LoRA adapter.
        signature: What the calls take and give.
        demos: Demonstrations, the same before each prompt.
        inputs: The input fields of each call, at least one.
        weights: How much each call counts, none below 0; they need not add up to 1.

    Raises:
        InputError: Another LM or format.
        LMError: As `room_after`.
    """
    adapter = getattr(lm, "adapter", None)
    if not isinstance(lm, LocalLM) or not isinstance(adapter, CompactAdapter) or lm.lora is not None:
        raise InputError(
            f"an ensemble mixes the token probabilities of several prompts, which {getattr(lm, 'model', lm)} does not "
            "give: take an LM in the process (pocket, local/...), in the compact format and without a LoRA adapter"
        )
    engine = lm.base_engine
    if engine.text.seq2seq:
        raise InputError(f"an ensemble mixes what causal models say, and {lm.model} is an encoder-decoder")
    text, model = engine.text, engine.twin
    stop, ends = adapter.stop, end_tokens(model, text)
    written = [text.plain(adapter.prompt(signature, call, demos), (stop,)) for call in inputs]
    prompts = [text.encode(prompt, special=True) for prompt in written]
    room = room_after(lm, prompts)

    def ended(tokens: list[int]) -> bool:
        # A token is at least one byte, so the stop's last bytes lie in as many tokens.
        return tokens[-1] in ends or stop in text.decode(tokens[-len(stop.encode()) :], False)

    new = mix(model, prompts, weights, min(lm.kwargs["max_tokens"], room), ended)
    answer = text.decode([token for token in new if token not in ends], True)
    return Mixed(answer, ended(new), sum(map(len, prompts)), len(new))


def room_after(lm: LocalLM, prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens an LM can write after each of some prompts.

    Raises:
        LMError: One is longer than it reads, which is told as of any call of its own.
    """
    longest, context = max(map(len, prompts)), context_of(lm.base_engine.model)
    if longest >= context:
        told = f"the prompt is {longest + 1:,} tokens long and the model reads {context:,} at most"
        raise explain(ContextWindowExceededError(message=told), lm)
    return context - longest


def mix(
    model: "PreTrainedModel",
    prompts: Sequence[list[int]],
    weights: Sequence[float],
    limit: int,
    ended: Callable[[list[int]], bool],
) -> list[int]:
    """Continue several prompts with the same tokens, each the likeliest by the weighted mean of their probabilities.

    Args:
        model: A causal language model.
        prompts: Token ids, at least one a prompt.
        weights: One a prompt.
        limit: The most tokens to add, at least 1.
        ended: Whether these new tokens are the end.

    Returns:
        The new tokens, the last one that ended it included.

    Source:
        Shi et al. 2023, arXiv 2301.12652, section 3.2.
    """
    import torch

    rows, shares = Rows(model), torch.tensor([weights], device=model.device)
    new: list[int] = []
    logits = rows.join([Draft(prompt, limit) for prompt in prompts])
    while True:
        new.append(int((shares @ logits.float().softmax(-1)).argmax()))
        if len(new) == limit or ended(new):
            return new
        logits = rows.step([new[-1]] * len(prompts))
