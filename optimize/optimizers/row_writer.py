"""Training rows as text: what a predictor is to learn, in the words in which its calls reach its LM."""

from typing import Any

import dspy

from raisf.lm.adapter import CompactAdapter
from raisf.lm.chat_format import ChatCall, chat_call
from raisf.lm.connect import adapter_for
from raisf.lm.local.model import LocalLM
from raisf.lm.reading import has_outputs
from raisf.optimize.within import owned
from raisf.utils.errors import InputError


def inputs_of(signature: Any, row: dspy.Example) -> dict[str, Any]:
    """What a row says of a signature's inputs; in a row, which is plain data, a `dspy.History` is a dict."""
    given = {name: row[name] for name in signature.input_fields if name in row}
    earlier = [name for name in given if signature.input_fields[name].annotation == dspy.History]
    return given | {name: dspy.History.model_validate(given[name]) for name in earlier}


def format_of(program: dspy.Module, name: str, lm: LocalLM) -> dspy.Adapter:
    """How a predictor's calls become text: programs of ours in the LM's own format, DSPy's modules as settings say."""
    return adapter_for(lm) if name in owned(program) else dspy.settings.adapter or dspy.ChatAdapter()


class RowWriter:
    """Puts what a predictor is to learn into the words in which its calls reach its LM.

    Args:
        program: With the predictor.
        name: The predictor's.
        lm: What is trained, and asked after that.

    Attributes:
        adapter: What writes the rows: the LM's own where it reads back what DSPy's adapter asks (`LocalLM`).
    """

    def __init__(self, program: dspy.Module, name: str, lm: LocalLM) -> None:
        self._predictor: Any = dict(program.named_predictors())[name]
        self.adapter: Any = format_of(program, name, lm)
        self._asks = self.adapter
        if isinstance(lm.adapter, CompactAdapter) and not isinstance(self._asks, CompactAdapter):
            fields = self._predictor.signature.input_fields.items()
            if self._call({name: "" for name, field in fields if field.annotation != dspy.History}) is not None:
                self.adapter = lm.adapter

    def messages(self, row: dspy.Example) -> list[dict[str, str]] | None:
        """A row as a conversation, demonstrations included; None if it cannot be put into words."""
        signature, demos = self._predictor.signature, self._predictor.demos
        inputs = inputs_of(signature, row)
        outputs = {key: row.get(key) for key in signature.output_fields}
        if not has_outputs(row, signature):
            return None
        if self.adapter is not self._asks:
            call = self._call(inputs)
            said = self._asks.format_assistant_message_content(signature, outputs)
            if call is None or not (outputs := call.read(said)):
                return None
            signature, demos, inputs = call.signature, call.demos, call.inputs
        try:
            made = self.adapter.format_finetune_data(signature=signature, demos=demos, inputs=inputs, outputs=outputs)
        except NotImplementedError:
            raise InputError(
                f"{type(self.adapter).__name__} writes no training rows: choose another adapter (--adapter compact)"
            ) from None
        return made["messages"]

    def _call(self, inputs: dict[str, Any]) -> ChatCall | None:
        """A call of the predictor as the LM reads it back."""
        return chat_call(self._asks.format(self._predictor.signature, self._predictor.demos, inputs))
