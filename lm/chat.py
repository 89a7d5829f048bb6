"""DSPy's chat, JSON and two-step formats, read by the project's one reader; what an LM cut off is never read.

The prompts are DSPy's own. The classes have DSPy's names, by which its stream listeners tell the formats apart.
"""

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import dspy
from dspy.adapters.types.base_type import CUSTOM_TYPE_START_IDENTIFIER
from dspy.adapters.utils import apply_output_field_defaults
from dspy.clients.backend_selection import select_backend
from dspy.clients.call_result import legacy_output
from dspy.clients.capabilities import with_capability_planning
from dspy.clients.execution import _canonical, prepare
from dspy.lm15 import DataPart, LM15Error, Request, Response, choice, judgments
from dspy.utils.exceptions import AdapterParseError, LMUnsupportedFeatureError

from raisf.lm.labels import Unreadable, contradicts
from raisf.lm.options import with_seed
from raisf.lm.reading import json_object, read_field, sections_of, without_thinking

Values = dict[str, Any]
"""Options of a call, or fields, by name."""

SHOWN_CHARACTERS = 500  # of an unreadable reply, in its error


class UnreadableReply(AdapterParseError):
    """A reply that cannot be read, or only in part; its message shows the beginning.

    Attributes:
        reply: All of it.
    """

    def __init__(self, adapter: dspy.Adapter, signature: type[dspy.Signature], completion: Any, why: str) -> None:
        self.reply = str(completion)
        shown = self.reply[:SHOWN_CHARACTERS]
        super().__init__(type(adapter).__name__, signature, shown, message=f"{why}.")  # type: ignore[arg-type]


class Unscored(Exception):
    """An endpoint gave no probabilities of labels: the verdict is to be asked for in words, by a call of its own.

    Args:
        adapter: Asks so.
        asked: Whether the endpoint was asked for them, which is a call too.
    """

    def __init__(self, adapter: dspy.Adapter, asked: bool) -> None:
        super().__init__("the endpoint gave no probabilities of labels")
        self.adapter, self.asked = adapter, asked


class WholeReplies(dspy.Adapter):
    """Calls LMs by DSPy's typed requests, whose responses say why they end, and reads only replies that are whole.

    Attributes:
        in_words: Verdicts are written out, and no endpoint is asked for the probabilities of their labels.
        counted: The caller counts calls: where a verdict must be asked for again in words, `Unscored` is raised, and
            the caller makes that second call.
    """

    in_words = False
    counted = False

    @contextlib.contextmanager
    def _else_in_words(self) -> Iterator[None]:
        """A context for having labels scored. Where they are not, it ends early; if `counted`, with `Unscored`."""
        try:
            yield
        except LMUnsupportedFeatureError as error:
            if self.counted:
                written = copy.copy(self)
                written.in_words = True
                raise Unscored(written, getattr(error.__cause__, "usage", None) is not None) from error

    @with_capability_planning
    def __call__(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> list[Values]:
        """Format the inputs, call the LM, and read its completions, one dict of fields for each."""
        processed = self._call_preprocess(lm, lm_kwargs, signature, inputs)
        calls = typed_calls(lm, self.format(processed, demos, inputs), lm_kwargs)
        if calls is None:
            return super().__call__(lm, lm_kwargs, signature, demos, inputs)
        responses = [lm(request, **options) for request, options in calls]
        return self._fields(processed, signature, responses, lm, lm_kwargs)

    @with_capability_planning
    async def acall(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> list[Values]:
        """The same, awaited."""
        processed = self._call_preprocess(lm, lm_kwargs, signature, inputs)
        calls = typed_calls(lm, self.format(processed, demos, inputs), lm_kwargs)
        if calls is None:
            return await super().acall(lm, lm_kwargs, signature, demos, inputs)
        responses = [await lm.acall(request, **options) for request, options in calls]
        return self._fields(processed, signature, responses, lm, lm_kwargs)

    def _fields(
        self, processed: Any, signature: Any, responses: list[Response], lm: dspy.BaseLM, lm_kwargs: Values
    ) -> list[Values]:
        for response in responses:
            check_not_cut_off(self, signature, response)
        logprobs = bool({**lm.kwargs, **lm_kwargs}.get("logprobs"))
        outputs: list[Any] = [legacy_output(response, logprobs=logprobs) for response in responses]
        return self._call_postprocess(processed, signature, outputs, lm, lm_kwargs)


def _texts_alone(value: Any) -> Any:
    """The same values, with DSPy's marks of images and files in their texts broken; such objects themselves stay."""
    if isinstance(value, str):
        return value.replace(CUSTOM_TYPE_START_IDENTIFIER, CUSTOM_TYPE_START_IDENTIFIER.replace("-", " "))
    if isinstance(value, dict | dspy.Example):
        return {name: _texts_alone(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_texts_alone(one) for one in value]
    return value


def check_not_cut_off(adapter: dspy.Adapter, signature: type[dspy.Signature], response: Response) -> None:
    """Raise AdapterParseError for a response that its LM did not end by itself."""
    if response.finish_reason not in ("stop", "tool_call"):
        limit = "the token limit (max_tokens, or what the prompt leaves of the context window)"
        why = limit if response.finish_reason == "length" else response.finish_reason
        raise UnreadableReply(adapter, signature, response.text or "", f"the reply was cut off by {why}")


def typed_calls(lm: dspy.BaseLM, messages: list[Values], lm_kwargs: Values) -> list[tuple[Request, Values]] | None:
    """A call as typed requests, one a candidate, each with its options; None where the LM takes none."""
    if not isinstance(lm, dspy.LM) or lm.model_type == "text" or lm_kwargs.get("prompt_cache") is not None:
        return None
    call = prepare(lm, None, messages, lm_kwargs)
    try:
        native = isinstance(getattr(lm, "_engine_spec", None), str) and select_backend(lm, call.legacy).resolution
        request = _canonical(call, compat=native.compat if native else None)
    except (LM15Error, TypeError, ValueError):
        return None  # DSPy sends such a call through LiteLLM
    options = {"cache": call.kwargs["cache"]} if "cache" in call.kwargs else {}
    rollout = call.legacy.get("rollout_id")
    rollouts = [rollout, *(f"{rollout or 0}-{number}" for number in range(1, call.n))]
    each = [options if name is None else {**options, "rollout_id": name} for name in rollouts]
    return [(with_seed(request, number), one) for number, one in enumerate(each)]


class _LabelAlone(dspy.ChatAdapter):
    """DSPy's chat prompt for a call whose reply is one label and nothing else: its first token says which."""

    def format_field_structure(self, signature: type[dspy.Signature]) -> str:
        return self.user_message_output_requirements(signature)

    def user_message_output_requirements(self, signature: type[dspy.Signature]) -> str:
        ((name, field),) = signature.output_fields.items()
        return f"Respond with the `{name}` alone, one of: {', '.join(get_args(field.annotation))}."

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: Values, missing_field_message: str | None = None
    ) -> str:
        ((name, _),) = signature.output_fields.items()
        return str(outputs.get(name, missing_field_message))


class ChatAdapter(dspy.ChatAdapter, WholeReplies):
    """DSPy's chat format; a reply in JSON is read too, as is one whose values are dressed otherwise than asked for.

    Where the only output is a `Literal` and the endpoint lists likely tokens, its label alone is asked for, with one
    token; the prediction then also carries `probabilities`, a dict from label to probability.
    """

    def __call__(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> list[Values]:
        """Format the inputs, call the LM, and read its completions, one dict of fields for each."""
        if (asked := self._verdict(lm, lm_kwargs, signature, demos, inputs)) is not None:
            with self._else_in_words(), dspy.context(send_stream=None):
                return [read_verdict(lm(asked[0], **asked[1]))]
        return super().__call__(lm, lm_kwargs, signature, demos, inputs)

    async def acall(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> list[Values]:
        """The same, awaited."""
        if (asked := self._verdict(lm, lm_kwargs, signature, demos, inputs)) is not None:
            with self._else_in_words(), dspy.context(send_stream=None):
                return [read_verdict(await lm.acall(asked[0], **asked[1]))]
        return await super().acall(lm, lm_kwargs, signature, demos, inputs)

    def _verdict(
        self, lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature], demos: list[Any], inputs: Values
    ) -> tuple[Request, Values] | None:
        if self.in_words or not asks_probabilities(lm, lm_kwargs, signature):
            return None
        messages = _LabelAlone().format(signature, _texts_alone(demos), _texts_alone(inputs))
        calls = typed_calls(lm, messages, lm_kwargs)
        if not calls:
            return None
        request, options = calls[0]
        return replace(request, config=replace(request.config, **scored(signature))), options

    def format(self, signature: type[dspy.Signature], demos: list[Values], inputs: Values) -> list[Values]:
        """The messages. In a text, DSPy's mark of an image or a file is text: a passage attaches nothing to a call."""
        # Not super(), around which DSPy has callbacks too: they would be told of two calls, one in the other.
        return dspy.Adapter.format(self, signature, _texts_alone(demos), _texts_alone(inputs))

    def parse(self, signature: type[dspy.Signature], completion: str) -> Values:
        """The output fields of a completion.

        Raises:
            AdapterParseError: A required output is missing, or cannot be read as its type.
        """
        return _parse(self, signature, completion)

    def _make_json_adapter_fallback(self) -> dspy.JSONAdapter:
        return JSONAdapter(
            use_native_function_calling=self.use_native_function_calling, parallel_tool_calls=self.parallel_tool_calls
        )


class JSONAdapter(dspy.JSONAdapter, WholeReplies):
    """DSPy's JSON format, read as the chat format is."""

    def format(self, signature: type[dspy.Signature], demos: list[Values], inputs: Values) -> list[Values]:
        """See `ChatAdapter.format`."""
        return dspy.Adapter.format(self, signature, _texts_alone(demos), _texts_alone(inputs))

    def parse(self, signature: type[dspy.Signature], completion: str) -> Values:
        """See `ChatAdapter.parse`."""
        return _parse(self, signature, completion)


# DSPy's own annotations take a signature for an instance of one.
class TwoStepAdapter(dspy.TwoStepAdapter, WholeReplies):  # pyright: ignore[reportIncompatibleMethodOverride]
    """DSPy's free form, out of which a second LM extracts the fields: by one call, and read as the chat format is."""

    def parse(self, signature: Any, completion: str) -> Values:
        """See `ChatAdapter.parse`."""
        form = ChatAdapter(use_json_adapter_fallback=False)
        form.in_words = True
        wanted: Any = self._create_extractor_signature(signature)
        return form(self.extraction_model, {}, wanted, [], {"text": completion})[0]


_STRICT: dict[type[dspy.Adapter], type[dspy.Adapter]] = {
    dspy.ChatAdapter: ChatAdapter,
    dspy.JSONAdapter: JSONAdapter,
    dspy.TwoStepAdapter: TwoStepAdapter,
}


def strict(adapter: dspy.Adapter) -> dspy.Adapter:
    """The same format with the project's reader, if it is one of these of DSPy's; any other adapter as it is."""
    ours = _STRICT.get(type(adapter))
    if ours is None:
        return adapter
    made = ours.__new__(ours)
    vars(made).update(vars(adapter))
    return made


def without_attachments(adapter: dspy.Adapter) -> dspy.Adapter:
    """The same adapter, to which marks in a text are text, as `ChatAdapter.format` has it."""
    made: Any = copy.copy(adapter)
    made.format = lambda signature, demos, inputs: adapter.format(signature, _texts_alone(demos), _texts_alone(inputs))
    return made


def _parse(adapter: dspy.Adapter, signature: type[dspy.Signature], completion: str) -> Values:
    try:
        fields = _read_fields(signature, without_thinking(completion))
    except Unreadable as error:
        raise UnreadableReply(adapter, signature, completion, str(error)) from error
    fields = apply_output_field_defaults(signature, fields)
    if missing := [name for name in signature.output_fields if name not in fields]:
        raise UnreadableReply(adapter, signature, completion, f"`{missing[0]}` is missing")
    return fields


def _read_fields(signature: type[dspy.Signature], text: str) -> Values:
    outputs = {name.casefold(): name for name in signature.output_fields}
    sections, after = sections_of(text, outputs)
    fields: Values = {}
    if not sections:
        found = json_object(text) or {}
        sections = {outputs[key]: value for key, value in found.items() if key in outputs}
    if not sections and (only := scored_labels(signature)):
        sections = {only[0]: text}  # a bare label is as clear as a named one
    last = next(reversed(signature.output_fields), None)
    for name, said in sections.items():
        annotation = signature.output_fields[name].annotation
        try:
            fields[name] = read_field(said, annotation, name, may_be_empty=name != last)
        except Unreadable as error:
            raise Unreadable(f"`{name}`: {error}") from error
        labels = get_args(annotation) if get_origin(annotation) is Literal else ()
        if (labels or annotation == list[int]) and contradicts(after, fields[name], labels):
            raise Unreadable(f"`{name}`: what follows the reply contradicts it")
    return fields


BOOLS = ["true", "false"]
"""The labels of a `bool`."""


def scored_labels(signature: type[dspy.Signature], bools: bool = False) -> tuple[str, list[str]] | None:
    """Name and labels of a signature's only output, if it is a `Literal` of strings: a local LM scores these.

    Args:
        signature: What the call takes and gives.
        bools: Whether a `bool` is scored too: by a probe, and not by how likely its labels are written.
    """
    (name, field), *others = signature.output_fields.items()
    if bools and not others and field.annotation is bool:
        return name, list(BOOLS)
    labels = list(get_args(field.annotation))
    if others or get_origin(field.annotation) is not Literal or not all(isinstance(label, str) for label in labels):
        return None
    return name, labels


def asks_probabilities(lm: dspy.BaseLM, lm_kwargs: Values, signature: type[dspy.Signature]) -> bool:
    """Whether a call to an endpoint asks for the probabilities of its labels: one verdict, from an LM that may know."""
    options = {**lm.kwargs, **lm_kwargs}
    plain = (options.get("n") or 1) == 1 and not any(options.get(name) for name in ("logprobs", "tools"))
    return plain and scored_labels(signature) is not None and getattr(lm, "scores_labels", False)


def scored(signature: type[dspy.Signature], bools: bool = False) -> Values:
    """The part of a request's config that has a signature's labels scored; empty where it has none."""
    if not (labels := scored_labels(signature, bools)):
        return {}
    declared: Values = {labels[0]: choice("", labels[1])}
    return {"response_format": judgments(**declared), "probabilities": "required"}


def read_verdict(response: Response) -> Values:
    """The fields of a response with probabilities; none where it has none."""
    data = response.message.first(DataPart)
    if data is None or not data.probabilities:
        return {}
    [(name, probabilities)] = data.probabilities.items()
    return {name: max(probabilities, key=probabilities.__getitem__), "probabilities": probabilities}
