"""How a signature becomes the text of a completion, and a completion the fields of a prediction.

A base Llama continues text; DSPy's chat format, with its headers and field markers, is twice as long and foreign to it.
The compact format is one block of `name: value` lines a call:

    question: Who wrote Emma?                 question: Who wrote Emma?
    passage: Emma | Emma is a novel by ...    passage: Emma | Emma is a novel by ...
    passage: Persuasion | ...                 verdict: relevant
    evidence: Emma is a novel by Jane Austen.
    answer: Jane Austen

The prompt ends after the first output's name and colon; demonstrations are whole blocks before it.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import dspy
from dspy.adapters.utils import apply_output_field_defaults
from dspy.clients.call_result import legacy_output
from dspy.lm15 import Config, Message, Request, Response
from pydantic_core import to_jsonable_python

from raisf.lm.chat import (
    BOOLS,
    ChatAdapter,
    UnreadableReply,
    Values,
    WholeReplies,
    asks_probabilities,
    check_not_cut_off,
    read_verdict,
    scored,
)
from raisf.lm.chat_format import ChatCall
from raisf.lm.labels import Unreadable
from raisf.lm.options import CONTROLS, SAMPLING, check_known, limit_of, seeds_of
from raisf.lm.reading import has_value, may_be_list, once, read_field, without_thinking
from raisf.lm.streaming import CHAT, MarkedStream, pieces
from raisf.utils.errors import InputError

LIST_SEPARATOR = " ; "
EMPTY_LIST = "none"  # an empty completion would read as no answer at all
# Marks a request whose text the model continues as it is, without its chat template.
COMPLETION: Values = {"completion": True}
POCKET_END = "<|end|>\n"  # the pocket Llama's end-of-text token, then a line break before the next block


class CompactAdapter(WholeReplies):
    """Formats a call as one block of text for a model that completes text, and reads the completion leniently.

    Where the only output is a `Literal` and the LM can score labels (`raisf.lm.local.model.LocalLM`), the labels are
    scored instead of a verdict being generated; the prediction then also carries `probabilities`, a dict from label to
    probability.

    Args:
        instructions: put the signature's instructions, as one line, before the first block. A model trained on the
            format itself (the pocket Llama) needs none.
        end: closes every block; generation stops there.

    Attributes:
        said: the outputs that the LM has given before, as text by name: the call shows them and asks for the rest.
        markers: between which stands what is streamed.
    """

    markers = CHAT

    def __init__(self, instructions: bool = True, end: str = "\n\n"):
        super().__init__()
        self.instructions = instructions
        self.end = end
        self.said: dict[str, str] = {}

    def prompt(self, signature: type[dspy.Signature], inputs: Values, demos: list[Any] = []) -> str:  # noqa: B006
        """The text that the model continues.

        Args:
            signature: what the call takes and gives.
            inputs: values of the input fields; absent and None fields give no line.
            demos: dicts or examples with values of the fields; one gives no line for an output that it lacks, and one
                without the last output is left out.
        """
        head = f"{_one_line(signature.instructions)}\n" if self.instructions else ""
        blocks = "".join(self._shown(signature, demo) for demo in demos)
        return head + blocks + self._question(signature, inputs, signature.output_fields) + self._said(signature)

    def _shown(self, signature: type[dspy.Signature], demo: Any) -> str:
        outputs = signature.output_fields.items()
        given = {name: demo[name] for name, field in outputs if has_value(demo, name, field.annotation)}
        if next(reversed(signature.output_fields)) not in given:
            return ""
        return self._question(signature, demo, given) + self._outputs(given) + self.end

    def completion(self, signature: type[dspy.Signature], outputs: Any) -> str:
        """The text that should follow a prompt: ` value`, further outputs on their own lines, then `end`."""
        return self._outputs({name: outputs[name] for name in signature.output_fields}) + self.end

    def _outputs(self, values: Values) -> str:
        lines = [f"{name}: {self._value(value)}" for name, value in values.items()]
        return "\n".join(lines).removeprefix(f"{next(iter(values))}:")

    def _said(self, signature: type[dspy.Signature]) -> str:
        """What follows a prompt's end, up to the name and colon of the first output that is still to come."""
        if not self.said:
            return ""
        following = next(name for name in signature.output_fields if name not in self.said)
        return f"{self._outputs(self.said)}\n{following}:"

    def _question(self, signature: type[dspy.Signature], inputs: Any, outputs: Values) -> str:
        lines = []
        for name in signature.input_fields:
            value = inputs.get(name)
            if isinstance(value, list | tuple):
                lines += [f"{name.removesuffix('s')}: {self._value(item)}" for item in value]
            elif value is not None:
                lines.append(f"{name}: {self._value(value)}")
        return "\n".join([*lines, f"{next(iter(outputs))}:"])

    def _value(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return LIST_SEPARATOR.join(self._value(item) for item in value) or EMPTY_LIST
        value = to_jsonable_python(value, bytes_mode="base64", fallback=str)  # dates, members of an Enum
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if mark := self.end.strip():
            text = text.replace(mark, " ")  # a passage that holds the end mark must not close its block
        return _one_line(text)

    def format(self, signature: type[dspy.Signature], demos: list[Any], inputs: Values) -> list[Values]:
        """The prompt as the one user message of a call."""
        return [{"role": "user", "content": self.prompt(signature, inputs, demos)}]

    def format_finetune_data(
        self, signature: type[dspy.Signature], demos: list[Any], inputs: Values, outputs: Values
    ) -> dict[str, list[Values]]:
        """A training row: the prompt as the user's message, the completion as the assistant's."""
        answer = {"role": "assistant", "content": self.completion(signature, outputs)}
        return {"messages": [*self.format(signature, demos, inputs), answer]}

    def parse(self, signature: type[dspy.Signature], completion: str) -> Values:
        """The output fields of a completion.

        Raises:
            AdapterParseError: a required output is absent or cannot be read as its type.
        """
        fields: Values = {}
        last = next(reversed(signature.output_fields), None)
        try:
            for name, text in self.sections(signature, without_thinking(completion)).items():
                annotation = signature.output_fields[name].annotation
                fields[name] = _read(text, annotation, name, may_be_empty=name != last)
        except Unreadable as error:
            raise UnreadableReply(self, signature, completion, str(error)) from error
        for name, field in signature.output_fields.items():
            if name not in fields and field.is_required():
                raise UnreadableReply(self, signature, completion, f"`{name}` is missing")
        return fields

    def sections(self, signature: type[dspy.Signature], completion: str) -> dict[str, str]:
        """Split a completion at the lines that name an output; what follows the block's end is not part of it."""
        outputs = {name.casefold(): name for name in signature.output_fields}
        inputs = {
            line.casefold()
            for name, field in signature.input_fields.items()
            for line in (name, name.removesuffix("s") if may_be_list(field.annotation) else name)
        }
        text = self._said(signature) + completion
        # The first line is the first output's, whatever it begins with, but where another block gives that output.
        begun = text.partition("\n")[0].strip() and f"\n{next(iter(outputs))}:" not in text.casefold()
        found: list[tuple[str, list[str]]] = [(next(iter(signature.output_fields)), [])]
        for place, line in enumerate(self._block(text).split("\n")):
            name, colon, rest = line.partition(":")
            key = name.strip(" *").casefold()
            if colon and key in outputs:
                line = rest.removeprefix("**") if name.count("**") == 1 else rest  # **answer:** Paris
                found.append((outputs[key], []))
            elif colon and key in inputs and (place or not begun):
                break  # the model went on to write the next block
            found[-1][1].append(line)
        (first, _), *named = found
        # What stands before any name is the first output's, unless that is named later.
        return once((name, "\n".join(lines).strip()) for name, lines in (named if first in dict(named) else found))

    def _block(self, completion: str) -> str:
        if mark := self.end.strip():
            return completion.split(mark)[0]
        return completion.lstrip().split(self.end)[0]

    def __call__(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> list[Values]:
        """Format the inputs, call the LM, and read its completions, one dict of fields for each."""
        return self.fields_of(lm, lm_kwargs, ChatCall(signature, demos, inputs, self.markers))

    async def acall(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> list[Values]:
        """The same, awaited."""
        return await self.afields_of(lm, lm_kwargs, ChatCall(signature, demos, inputs, self.markers))

    def fields_of(self, lm: dspy.BaseLM, lm_kwargs: Values, call: ChatCall) -> list[Values]:
        """The same of a call, between whose markers stands what is streamed."""
        if not self.in_words and asks_probabilities(lm, lm_kwargs, call.signature):
            with self._else_in_words():
                return self.ask(lm, lm_kwargs, call)
        if getattr(lm, "completes_text", False):
            return self.ask(lm, lm_kwargs, call, scores=not hasattr(lm, "scores_labels"))
        with self._streaming(call):
            options = self._with_stop(lm, lm_kwargs, call)
            return super().__call__(lm, options, call.signature, call.demos, call.inputs)

    async def afields_of(self, lm: dspy.BaseLM, lm_kwargs: Values, call: ChatCall) -> list[Values]:
        """The same, awaited."""
        if not self.in_words and asks_probabilities(lm, lm_kwargs, call.signature):
            with self._else_in_words():
                return await self.aask(lm, lm_kwargs, call)
        if getattr(lm, "completes_text", False):
            return await self.aask(lm, lm_kwargs, call, scores=not hasattr(lm, "scores_labels"))
        with self._streaming(call):
            options = self._with_stop(lm, lm_kwargs, call)
            return await super().acall(lm, options, call.signature, call.demos, call.inputs)

    def ask(self, lm: dspy.BaseLM, lm_kwargs: Values, call: ChatCall, scores: bool = True) -> list[Values]:
        """The call in DSPy's typed form, to an LM that completes text or gives the probabilities of labels.

        Args:
            lm: Is asked.
            lm_kwargs: Options of this call.
            call: What is asked; its markers are those between which stands what is streamed.
            scores: Whether labels are scored, not generated.
        """
        found = []
        for request, options in self._requests(lm, lm_kwargs, call, scores):
            with self._streaming(call, scores and bool(_scored_of(lm, call.signature))):
                found.append(self._read_response(call.signature, lm(request, **options)))
        return found

    async def aask(self, lm: dspy.BaseLM, lm_kwargs: Values, call: ChatCall, scores: bool = True) -> list[Values]:
        """The same, awaited."""
        found = []
        for request, options in self._requests(lm, lm_kwargs, call, scores):
            with self._streaming(call, scores and bool(_scored_of(lm, call.signature))):
                found.append(self._read_response(call.signature, await lm.acall(request, **options)))
        return found

    def _streaming(self, call: ChatCall, scored: bool = False) -> AbstractContextManager[Any]:
        """A context in which a stream shows the fields between the call's markers; scored labels have no tokens."""
        stream = dspy.settings.send_stream
        if stream is None or scored:
            return dspy.context(send_stream=None)

        def marked(text: str, finished: bool) -> str:
            found = pieces(call.signature, self.sections, _read, text, finished)
            return call.markers.write([piece for piece in found if piece[0] not in self.said], finished)

        return dspy.context(send_stream=MarkedStream(stream, marked))

    def _with_stop(self, lm: dspy.BaseLM, lm_kwargs: Values, call: ChatCall) -> Values:
        return {**lm_kwargs, "stop": list(self._stops({**lm.kwargs, **lm_kwargs}, call))}

    def _stops(self, options: Values, call: ChatCall) -> tuple[str, ...]:
        """The texts at which the LM stops: the block's end, those that the call gives, what begins another block."""
        own = dict.fromkeys([self.stop, *([given] if isinstance(given := options.get("stop") or (), str) else given)])
        names = call.signature.input_fields
        lists = {name for name in names if isinstance(call.inputs.get(name), list | tuple)}
        labels = [f"\n{name.removesuffix('s') if name in lists else name}:" for name in names]
        return (*own, *labels[: max(0, 4 - len(own))])  # OpenAI's interface takes four

    @property
    def stop(self) -> str:
        """The text that ends a block, at which an LM stops."""
        return self.end.rstrip() or self.end

    def _requests(
        self, lm: dspy.BaseLM, lm_kwargs: Values, call: ChatCall, scores: bool
    ) -> Iterator[tuple[Request, Values]]:
        """The call in DSPy's typed form, which can ask for probabilities: a request and its options a candidate.

        Raises:
            InputError: An option has no place in it, and would be lost.
        """
        options = {**lm.kwargs, **lm_kwargs}
        bare = getattr(lm, "completes_text", False)
        if bare:  # else only a verdict is asked for here, which no option changes
            check_known(lm.model, options)
        message = Message.user(self.format(call.signature, call.demos, call.inputs)[0]["content"])
        controls = {name: options[name] for name in CONTROLS if options.get(name) is not None}
        asked = _scored_of(lm, call.signature) if scores else {}
        for seed in seeds_of(options):
            config = Config(
                **{name: options.get(name) for name in SAMPLING},
                max_tokens=limit_of(lm_kwargs, lm.kwargs),
                seed=seed,
                stop=self._stops(options, call),
                extensions=COMPLETION if bare else None,
                # As OpenAI's interface has it: whether, and how many others beside each token.
                logprobs=(options.get("top_logprobs") or 0) if options.get("logprobs") else None,
                **asked,
            )
            yield Request(model=lm.model, messages=(message,), config=config), controls

    def _read_response(self, signature: type[dspy.Signature], response: Response) -> Values:
        if verdict := read_verdict(response):
            bools = {name for name, field in signature.output_fields.items() if field.annotation is bool}
            return {name: said == BOOLS[0] if name in bools else said for name, said in verdict.items()}
        check_not_cut_off(self, signature, response)
        fields = apply_output_field_defaults(signature, self.parse(signature, response.text or ""))
        found = {name: fields.get(name) for name in signature.output_fields}
        return found | ({"logprobs": legacy_output(response, logprobs=True)["logprobs"]} if response.logprobs else {})


def adapter_named(name: str) -> dspy.Adapter:
    """The adapter of a name: `chat` (DSPy's format), `compact`, or `pocket` (what the pocket Llama was trained on).

    Raises:
        InputError: there is none of that name.
    """
    if name == "chat":
        return ChatAdapter()
    if name == "compact":
        return CompactAdapter()
    if name == "pocket":
        return CompactAdapter(instructions=False, end=POCKET_END)
    raise InputError(f"unknown adapter {name!r}: choose chat, compact or pocket")


def _scored_of(lm: dspy.BaseLM, signature: type[dspy.Signature]) -> Values:
    return scored(signature, getattr(lm, "scores_bools", False))


def _read(text: str, annotation: Any, name: str, may_be_empty: bool = True) -> Any:
    value = read_field(text, annotation, name, may_be_empty=may_be_empty)
    return _one_line(value) if isinstance(value, str) else value


def _one_line(text: str) -> str:
    return " ".join(text.split())
