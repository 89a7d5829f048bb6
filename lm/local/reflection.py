"""The reflection tokens of Self-RAG's own checkpoints: what such an LM writes, and how sure it is of each judgement.

Their probabilities are those of single tokens, so this works for models in the process and for no endpoint.

Source: Asai et al. 2024, arXiv 2310.11511, table 1; the checkpoints selfrag/selfrag_llama2_7b and _13b.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raisf.lm.local.decoding import Draft, decode
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.ensemble import room_after
from raisf.lm.local.inference import Rows, end_tokens
from raisf.lm.local.model import LocalLM

if TYPE_CHECKING:
    import torch

RETRIEVAL = ("[Retrieval]", "[No Retrieval]")
RELEVANCE = ("[Relevant]", "[Irrelevant]")
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
USEFULNESS = tuple(f"[Utility:{stars}]" for stars in range(1, 6))
GROUPS = (RETRIEVAL, RELEVANCE, SUPPORT, USEFULNESS)

# What the prompt holds beside words.
_MARKS = (*(name for group in GROUPS for name in group), "<paragraph>", "</paragraph>")

# Judgements that come before anything else is written; the others come where the LM puts them, or not at all.
FIRST = (RETRIEVAL, RELEVANCE)


@dataclass(slots=True)
class Reflection:
    """What an LM with reflection tokens wrote.

    Attributes:
        text: Without these tokens.
        logprobs: Of each token written (natural logarithm), reflection tokens too.
        probabilities: Of each reflection token among those of its group: at the first place of what was written for
            retrieval and relevance, for the others at the first place where one of them was written. A group that was
            not written is missing.
        prompt_tokens: How many it read.
        finished: Whether it came to its end, and was not cut off by the limit.
    """

    text: str = ""
    logprobs: list[float] = field(default_factory=list)
    probabilities: dict[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    finished: bool = True


def reflects(lm: Any) -> bool:
    """Whether an LM has the reflection tokens, and gives their probabilities."""
    if not isinstance(lm, LocalLM) or lm.lora is not None or lm.base_engine.text.seq2seq:
        return False
    return bool(_tokens(lm.base_engine))


def reflect(lm: LocalLM, prompts: Sequence[str], limit: int | None = None) -> list[Reflection]:
    """What the LM writes after each prompt, greedily and all prompts together.

    Args:
        lm: One that `reflects`.
        prompts: Bare text, at least one.
        limit: The most tokens to write; None: as many as the LM's answers may have.

    Raises:
        LMError: As `room_after`.
    """
    import torch

    engine = lm.base_engine
    model, text, tokens = engine.twin, engine.text, _tokens(engine)
    groups = [torch.tensor([tokens[name] for name in group]) for group in GROUPS]
    read = [text.encode(text.plain(prompt, _MARKS), special=True) for prompt in prompts]
    room = room_after(lm, read)
    ends = end_tokens(model, text)

    class Reflecting(Draft):
        likeliest = False  # it is, but what else there was is looked at

        def __init__(self, prompt: list[int]):
            super().__init__(prompt, min(limit or lm.kwargs["max_tokens"], room))
            self.said = Reflection(prompt_tokens=len(prompt))

        def pick(self, logits: "torch.Tensor") -> int:
            logits = logits.float().cpu()
            token, said = int(logits.argmax()), self.said
            for group, ids in zip(GROUPS, groups, strict=True):
                written = token in ids.tolist() and group[0] not in said.probabilities
                if not said.logprobs if group in FIRST else written:
                    said.probabilities |= zip(group, logits[ids].softmax(-1).tolist(), strict=True)
            said.logprobs.append(float(logits.log_softmax(-1)[token]))
            return token

        def ended(self) -> bool:
            return self.tokens[-1] in ends

    drafts = [Reflecting(prompt) for prompt in read]
    unsaid = ends | set(tokens.values())
    for draft in decode(Rows(model), drafts):
        draft.said.text = text.decode([token for token in draft.tokens if token not in unsaid], True)
        draft.said.finished = draft.ended()
    return [draft.said for draft in drafts]


def plain(text: str) -> str:
    """A text without the marks that only the prompt and the model may write; a passage may hold them to cheat."""
    for mark in _MARKS:
        text = text.replace(mark, " ")
    return text


@functools.lru_cache(maxsize=8)
def _tokens(engine: InferenceEngine) -> dict[str, int]:
    """The number of each reflection token; none where one of them is no token of this model."""
    vocabulary = engine.text.tokenizer.get_vocab()
    names = [name for group in GROUPS for name in group]
    return {name: vocabulary[name] for name in names} if all(name in vocabulary for name in names) else {}
