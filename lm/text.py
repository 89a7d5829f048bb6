"""Between the words of a request and the tokens of a model."""

import threading
from typing import TYPE_CHECKING, Any

from dspy.lm15 import InvalidRequestError, Request, TextPart

from lm.adapter import COMPLETION
from lm.inference import common_length

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Text:
    """A tokenizer that many threads may use."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase"):
        self.tokenizer = tokenizer
        self._lock = threading.Lock()  # a fast tokenizer used by two threads at once raises "Already borrowed"

    def of(self, request: Request) -> tuple[str, bool]:
        """What the model is to read, and whether the tokenizer adds its special tokens to it.

        Messages go through the model's chat template, if it has one; the compact adapter's text stays as it is.

        Raises:
            InvalidRequestError: the template refuses the messages.
        """
        messages = [{"role": message.role, "content": message.text or ""} for message in request.messages]
        if request.system is not None:
            parts = [TextPart(request.system)] if isinstance(request.system, str) else request.system
            system = "".join(part.text for part in parts if isinstance(part, TextPart))
            messages.insert(0, {"role": "system", "content": system})
        if not getattr(self.tokenizer, "chat_template", None) or request.config.extensions == COMPLETION:
            return "\n\n".join(message["content"] for message in messages), True
        try:
            with self._lock:
                text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template raises what it likes
            raise InvalidRequestError(f"the model's chat template refuses the messages: {error}") from error
        return str(text), False

    def lesson(self, messages: list[dict[str, str]], completion: bool) -> tuple[list[int], int]:
        """What the model is to learn from a conversation that ends with its own words, as it meets it when asked.

        Args:
            messages: DSPy's finetuning form, role and content each; the last one is the assistant's.
            completion: the messages are bare text (the compact adapter's), whatever chat template the model has.

        Returns:
            The tokens, up to the first that ends the model's words, and the place of the first that is to be learnt.
        """
        *asked, answer = messages
        if completion or not getattr(self.tokenizer, "chat_template", None):
            text = "\n\n".join(message["content"] for message in asked)
            prompt, whole = self.encode(text, True), self.encode(text + answer["content"], True)
        else:
            with self._lock:
                texts = [
                    str(self.tokenizer.apply_chat_template(part, tokenize=False, add_generation_prompt=part is asked))
                    for part in (asked, messages)
                ]
            prompt, whole = (self.encode(text, False) for text in texts)
        start = max(1, common_length(prompt, whole))  # a tokenizer may join the answer's first letters with the prompt
        ends = [place for place in range(start, len(whole)) if whole[place] == self.tokenizer.eos_token_id]
        return whole[: ends[0] + 1] if ends else whole, start

    def encode(self, text: str, special: bool) -> list[int]:
        """The tokens of a text, never none: something must stand before the first token to predict."""
        # The library behind a fast tokenizer encodes several times faster than transformers' call around it.
        library = getattr(self.tokenizer, "backend_tokenizer", None)
        tokens: Any
        with self._lock:
            if library is not None:
                tokens = library.encode(text, add_special_tokens=special).ids
            else:
                tokens = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        first: Any = self.tokenizer.bos_token_id or self.tokenizer.eos_token_id or 0
        return tokens or [first]

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        """The text of tokens."""
        with self._lock:
            return str(self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))
