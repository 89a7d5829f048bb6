"""Between the words of a request and the tokens of a model."""

import functools
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspy.lm15 import CitationPart, InvalidRequestError, Request, TextPart, ThinkingPart, UnsupportedFeatureError

from raisf.lm.adapter import COMPLETION
from raisf.lm.local.token_tree import common_length
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_SAID = (TextPart, ThinkingPart, CitationPart)
"""What a message may hold: text, and beside it what no model reads again."""


def _text_of(parts: Iterable[Any], between: str) -> str:
    return between.join(part.text for part in parts if isinstance(part, TextPart))


def check_text(text: str) -> None:
    """Raise InputError for a text that is none: one that holds a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a text holds half a character (U+{ord(text[error.start]):04X}, a lone surrogate), which no model reads: "
            "repair it, for instance by text.encode('utf-8', 'replace').decode()"
        ) from None


@dataclass(frozen=True, slots=True)
class TokenizedRow:
    """A training row as tokens.

    Attributes:
        tokens: Prompt and completion; what an encoder reads and its decoder writes.
        start: The first token of the completion.
        weight: Of its loss; 1 is an average row's.
    """

    tokens: list[int]
    start: int
    weight: float


class Text:
    """A tokenizer that many threads may use.

    Args:
        tokenizer: The model's.
        seq2seq: Whether the model is an encoder-decoder: what it writes is then no continuation of what it reads.
        known: How many tokens the model has weights for; None: for all.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", seq2seq: bool = False, known: int | None = None):
        self.tokenizer = tokenizer
        self.seq2seq = seq2seq
        self._known = known
        self._lock = threading.Lock()  # a fast tokenizer used by two threads at once raises "Already borrowed"
        self._library = getattr(tokenizer, "backend_tokenizer", None)
        if self._library is not None:  # a training leaves in tokenizer.json how it cut and filled up its own rows
            self._library.no_truncation()
            self._library.no_padding()

    def of(self, request: Request) -> tuple[str, bool]:
        """What the model is to read, and whether the tokenizer adds its special tokens to it.

        Messages go through the model's chat template, if it has one; the compact adapter's text is joined. A special
        token in them is read as the text that it is, but for the end mark that the adapter writes between its blocks.

        Raises:
            InvalidRequestError: the template refuses the messages.
            UnsupportedFeatureError: a message holds something else than text.
        """
        completion = request.config.extensions == COMPLETION
        marks = request.config.stop if completion else ()
        parts = (part for message in request.messages for part in message.parts)
        if strange := {type(part).__name__ for part in parts if not isinstance(part, _SAID)}:
            raise UnsupportedFeatureError(f"this model reads text alone, and was given: {', '.join(sorted(strange))}")
        messages = [{"role": message.role, "content": _text_of(message.parts, "\n")} for message in request.messages]
        if request.system is not None:
            parts = [TextPart(request.system)] if isinstance(request.system, str) else request.system
            messages.insert(0, {"role": "system", "content": _text_of(parts, "")})
        messages = self._plain_messages(messages, marks)
        if completion or not getattr(self.tokenizer, "chat_template", None):
            return "\n\n".join(message["content"] for message in messages), True
        return self._templated(messages, asks=True), False

    def plain(self, text: str, marks: Collection[str] = ()) -> str:
        """A text in which no special token is one: a passage may hold them, and would end the user's turn.

        Args:
            text: Any.
            marks: Those that the prompt's own writer put there.
        """
        if self._specials is None:
            return text
        return self._specials.sub(
            lambda found: found[0] if found[0] in marks else f"{found[0][0]} {found[0][1:]}", text
        )

    @functools.cached_property
    def _specials(self) -> re.Pattern[str] | None:
        tokens = self.tokenizer.added_tokens_decoder.values()
        # One of a single character cannot be broken, and is none that a text is unlikely to hold.
        names = sorted((one.content for one in tokens if one.special and len(one.content) > 1), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, names))) if names else None

    @functools.cached_property
    def turn_end(self) -> int | None:
        """The special token that the chat template writes behind what the model has said; None where it writes none."""
        said = "Yes."
        try:
            whole = self._templated([{"role": "user", "content": "?"}, {"role": "assistant", "content": said}], False)
            _, _, rest = whole.rpartition(said)
            token = self.encode(rest.lstrip(), False)[0] if rest.strip() else None
        except Exception:  # it has no template, one that refuses this, or one of tokens that the model does not know
            return None
        known = self.tokenizer.added_tokens_decoder.get(token) if token is not None else None
        return token if known is not None and known.special else None

    @functools.cached_property
    def breaks_lines(self) -> bool:
        """Whether the model reads and writes line breaks: some tokenizers take them for any other space."""
        return "\n" in self.decode(self._encoded("a\nb", False), True)

    @functools.cached_property
    def _keeps_ends(self) -> bool:
        """Whether the line breaks that end a text are tokens; an encoder's answers end by themselves."""
        return self.seq2seq or self._encoded("a\n\n", False) != self._encoded("a", False)

    def ends_or_begins_anew(self, completion: bool) -> bool:
        """Whether rows end, or begin, otherwise than those that version 0.1.0 made, which were learnt in vain."""
        if completion or self.seq2seq or not getattr(self.tokenizer, "chat_template", None):
            return completion and not self._keeps_ends
        asked, said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        try:
            return not self._templated([asked, said], asks=False).startswith(self._templated([asked], asks=True))
        except InvalidRequestError:  # which the rows will tell
            return False

    def _plain_messages(self, messages: list[dict[str, str]], marks: Collection[str]) -> list[dict[str, str]]:
        return [{**message, "content": self.plain(message["content"], marks)} for message in messages]

    def training_row(self, messages: list[dict[str, str]], completion: bool, weight: float = 1.0) -> TokenizedRow:
        """What the model is to learn from a conversation that ends with its own words, as it meets it when asked.

        Args:
            messages: DSPy's finetuning form, role and content each; the last one is the assistant's.
            completion: the messages are bare text (the compact adapter's), whatever chat template the model has.
            weight: the row's, in the loss.

        Returns:
            The row, up to the first token that ends the model's words.

        Raises:
            InvalidRequestError: the chat template refuses the conversation, or changes the answer.
        """
        ended = completion and messages[-1]["content"].rstrip().endswith(str(self.tokenizer.eos_token or "\0"))
        *asked, answer = messages = self._plain_messages(messages, [str(self.tokenizer.eos_token)] if ended else ())
        if completion or not getattr(self.tokenizer, "chat_template", None):
            text = "\n\n".join(message["content"] for message in asked)
            said, end = answer["content"], str(self.tokenizer.eos_token or "")  # which a template would write
            if completion and not self._keeps_ends:
                said = said.rstrip() + end  # of the compact format's own end nothing would be left
            whole, start = self.completed(text, said if completion else said + end, True)
        elif self.seq2seq:
            whole, start = self.completed(self._templated(asked, asks=True), answer["content"], False)
        else:
            text, ended_text = self._templated(asked, asks=True), self._templated(messages, asks=False)
            if ended_text.startswith(text):
                said = ended_text[len(text) :]
            else:  # a turn begins otherwise while it is asked for, as with a "<think>"
                words = answer["content"].strip()
                _, found, end = ended_text.rpartition(words or ended_text)
                if not (words and found):
                    raise InvalidRequestError("the model's chat template does not repeat an answer as it was given")
                said = words + end
            whole, start = self.completed(text, said, False)
        ends = [place for place in range(start, len(whole)) if whole[place] == self.tokenizer.eos_token_id]
        return TokenizedRow(whole[: ends[0] + 1] if ends else whole, start, weight)

    def completed(
        self, prompt: str, completion: str, special: bool, before: list[int] | None = None
    ) -> tuple[list[int], int]:
        """A prompt and what the model might answer, as it meets them.

        An encoder reads the prompt and its decoder writes the answer up to its own end-of-text, which stands for
        whatever whitespace closes the answer: here the one lies behind the other.

        Args:
            prompt: What is before the model.
            completion: The answer.
            special: Whether the tokenizer adds its special tokens to the prompt.
            before: The prompt's tokens, where they are known.

        Returns:
            The tokens of both, and the place of the first one that is not the same for any answer.
        """
        before = before or self.encode(prompt, special)
        if not self.seq2seq:
            # Encoded together: a tokenizer may join the answer's first letters with the prompt.
            whole = self.encode(prompt + completion, special)
            return whole, max(1, common_length(before, whole))
        end: Any = self.tokenizer.eos_token_id
        written = self.encode(completion.rstrip(), False)
        return [*before, *written[: written.index(end) if end in written else None], end], len(before)

    def encode(self, text: str, special: bool) -> list[int]:
        """The tokens of a text, never none: something must stand before the first token to predict.

        A causal model goes on from them: an end that its tokenizer closes each text with (add_eos_token) is left out.

        Raises:
            InputError: It holds half a character, which no tokenizer takes; or a token that the model does not know.
        """
        if not text.isascii():
            check_text(text)
        tokens = self._encoded(text, special)
        if special and self._closes and tokens[-1:] == [self.tokenizer.eos_token_id]:
            tokens = tokens[:-1]
        if self._known is not None and tokens and (strange := max(tokens)) >= self._known:
            raise InputError(
                f"the tokenizer is another model's: it writes the token {strange} "
                f"({self.tokenizer.convert_ids_to_tokens(strange)!r:.40}), and the model has weights for "
                f"{self._known:,} tokens: copy or download the folder again"
            )
        first: Any = self.tokenizer.bos_token_id or self.tokenizer.eos_token_id or 0
        return tokens or [first]

    @functools.cached_property
    def _closes(self) -> bool:
        return not self.seq2seq and self._encoded("a", True)[-1:] == [self.tokenizer.eos_token_id]

    def _encoded(self, text: str, special: bool) -> list[int]:
        # The library behind a fast tokenizer encodes several times faster than transformers' call around it.
        with self._lock:
            if self._library is not None:
                return self._library.encode(text, add_special_tokens=special).ids
            tokens: Any = self.tokenizer(text, add_special_tokens=special)["input_ids"]
            return tokens

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        """The text of tokens."""
        with self._lock:
            return str(self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))

    def pieces(self, tokens: list[int]) -> list[str]:
        """What the text of tokens grows by with each: a character of several tokens comes with the last of them."""
        found, shown, begun = [], 0, 0
        for place in range(1, len(tokens) + 1):
            # Not each alone: a tokenizer may drop the space before the first.
            before, text = (self.decode(tokens[shown:end], False) for end in (begun, place))
            if text.endswith("\ufffd") and place < len(tokens):
                found.append("")
                continue
            found.append(text[len(before) :])
            shown, begun = begun, place
        return found

    def _templated(self, messages: list[dict[str, str]], asks: bool) -> str:
        """A conversation in the model's chat template; `asks`: the model is to speak next."""
        with self._lock:
            try:
                return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks))
            except Exception as error:  # a template raises what it likes
                raise InvalidRequestError(f"the model's chat template refuses the messages: {error}") from error
