"""What DSPy's adapters write reads back as what it means, and our programs ask in their words."""

import dspy
import pytest
from dspy.adapters.baml_adapter import BAMLAdapter
from dspy.utils.callback import BaseCallback

from raisf.lm.adapter import adapter_named
from raisf.lm.chat import strict
from raisf.lm.chat_format import ChatCall, chat_call

ADAPTERS = [dspy.ChatAdapter(), dspy.JSONAdapter(), BAMLAdapter(), dspy.XMLAdapter()]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
def test_a_demonstration_shows_the_outputs_that_it_has(adapter):
    """`dspy.LabeledFewShot` has no reasonings to show: none of its demonstrations was in the prompt."""
    signature = dspy.Signature("question -> reasoning, label: Literal['a', 'b'], things: list[str], answer")
    demos = [dspy.Example(question="Q?", answer="A"), dspy.Example(question="P?", label="b", things=["c"], answer="B")]
    for call in (chat_call(adapter.format(signature, demos, {"question": "R?"})), ChatCall(signature, demos, {})):
        assert call is not None
        assert adapter_named("pocket").prompt(signature, {"question": "R?"}, call.demos) == (
            "question: Q?\nanswer: A<|end|>\n"
            "question: P?\nlabel: b\nthings: c\nanswer: B<|end|>\n"
            "question: R?\nreasoning:"
        )


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
def test_earlier_turns_of_a_conversation_are_what_was_said(adapter):
    signature = dspy.Signature("question, history: dspy.History -> answer")
    said = {"question": "Who?\n\nRespond with a name.", "answer": "Ada"}
    inputs = {"question": "Where?", "history": dspy.History(messages=[said])}
    call = chat_call(adapter.format(signature, [], inputs))
    assert call is not None and call.demos == [said] and call.inputs == {"question": "Where?"}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: type(adapter).__name__)
def test_a_call_is_answered_in_the_form_that_its_adapter_reads(adapter):
    signature = dspy.Signature("question -> label: Literal['a', 'b'], things: list[str], answer")
    fields = {"label": "b", "things": ["c"], "answer": "B"}
    call = chat_call(adapter.format(signature, [], {"question": "Q?"}))
    assert call is not None and adapter.parse(signature, call.answer(fields)) == fields


@pytest.mark.parametrize("kind", [dspy.ChatAdapter, dspy.JSONAdapter])
def test_our_programs_prompts_are_dspys_own_and_a_callback_hears_of_each_once(kind):
    told = []

    class Watch(BaseCallback):
        def on_adapter_format_start(self, call_id, instance, inputs):
            told.append(type(instance))

    asked = (dspy.Signature("question -> answer"), [dspy.Example(question="P?", answer="A")], {"question": "Q?"})
    ours = strict(kind())
    with dspy.context(callbacks=[Watch()]):
        messages = ours.format(*asked)
    assert messages == kind().format(*asked) and told == [type(ours)]
