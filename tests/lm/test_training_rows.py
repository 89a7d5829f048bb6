"""What a model learns is what it is asked and should say, whatever its chat template and its tokenizer make of it."""

from typing import Any

import dspy
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import explain
from raisf.lm.finetune.lora import TrainingRow, tokenized
from raisf.lm.local.model import LocalLM
from raisf.lm.local.tokenization import Text
from raisf.signatures.answers import DirectAnswer, GroundedAnswer
from raisf.utils.errors import InputError, LMError

SAID = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada\n"}]
TURNS = (
    "{% for one in messages %}<{{ one.role }}>{{ one.content }}{{ eos_token if one.role == 'assistant' }}{% endfor %}"
)


def chatting(makers: Any, template: str) -> Text:
    tokenizer = makers.make_tokenizer("<|begin|> $A")
    tokenizer.chat_template = template
    return Text(tokenizer)


def test_an_answer_is_learnt_where_the_model_is_asked_for_it(makers: Any) -> None:
    """Templates of models that think first write a "<think>" into the turn that is asked for, and into no other."""
    text = chatting(makers, TURNS + "{% if add_generation_prompt %}<assistant><think>\n{% endif %}")
    row = text.training_row(SAID, False)
    assert text.decode(row.tokens[: row.start], False) == "<user>Who?<assistant><think>\n"
    assert text.decode(row.tokens[row.start :], False) == "Ada\n<|end|>"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('System role not supported') }}", "refuses the messages: System role not supported"),
        ("{% if add_generation_prompt %}<think>{% else %}no answer{% endif %}", "does not repeat an answer"),
    ],
)
def test_a_chat_template_that_takes_no_such_rows_is_told_with_the_format_that_does(
    makers: Any, template: str, why: str
) -> None:
    text = chatting(makers, template)
    with pytest.raises(InputError, match=rf"^know: .*{why}.*--adapter compact"):
        tokenized(text, [TrainingRow(SAID)], False, 512, "know")
    assert tokenized(text, [TrainingRow(SAID)], True, 512, "know")


def test_a_chat_template_that_refuses_a_call_is_told_so_too(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told that the server might not know the model, of a folder."""
    lm = LocalLM(f"local/{llama}", adapter="chat", cache=False)
    monkeypatch.setattr(lm.base_engine.text.tokenizer, "chat_template", "{{ raise_exception('no system role') }}")
    with dspy.context(lm=lm, adapter=lm.adapter), pytest.raises(Exception, match="no system role") as raised:
        dspy.Predict("question -> answer")(question="Who?")
    told = explain(raised.value, lm)
    assert isinstance(told, LMError) and "server" not in str(told) and str(told).endswith("(--adapter compact)")


def test_an_answer_has_an_end_to_be_learnt_where_the_tokenizer_drops_line_breaks() -> None:
    """Each answer of such a model was cut off at its limit, as nothing had taught it to stop."""
    words = ["</s>", "<unk>", "question", ":", "Who", "?", "answer", "Ada"]
    library = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    text, form = Text(PreTrainedTokenizerFast(tokenizer_object=library, eos_token="</s>")), CompactAdapter()

    def row(signature: Any, outputs: dict[str, str]) -> TrainingRow:
        return TrainingRow(form.format_finetune_data(signature, [], {"question": "Who?"}, outputs)["messages"])

    [learnt] = tokenized(text, [row(DirectAnswer, {"answer": "Ada"})], True, 512, "answer_directly")
    assert text.decode(learnt.tokens[: learnt.start], False).endswith("question : Who ? answer :")
    assert text.decode(learnt.tokens[learnt.start :], False) == "Ada </s>"
    with pytest.raises(
        InputError, match=r"^answer_from writes several outputs, .* no line breaks: train predictors with"
    ):
        tokenized(text, [row(GroundedAnswer, {"evidence": "Ada", "answer": "Ada"})], True, 512, "answer_from")
