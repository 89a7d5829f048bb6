"""What a model learns is what it is asked and should say, whatever its chat template and its tokenizer make of it."""

from types import SimpleNamespace
from typing import Any

import dspy
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from raisf.lm.adapter import CompactAdapter
from raisf.lm.failures import explain
from raisf.lm.finetune import lora
from raisf.lm.finetune.lora import TrainingRow, fitting, tokenized
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
    with pytest.raises(InputError, match="does not repeat an answer"):
        tokenized(text, [TrainingRow([SAID[0], {"role": "assistant", "content": " "}])], False, 512, "know")


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


def test_a_row_that_just_fits_is_learnt(makers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text, rows = chatting(makers, TURNS), [TrainingRow(SAID)]
    lm: Any = SimpleNamespace(base_engine=SimpleNamespace(text=text, model=None))
    whole = len(text.training_row(SAID, False).tokens)
    for context, fits in ((whole, True), (whole - 1, False)):
        monkeypatch.setattr(lora, "context_of", lambda model, context=context: context)
        assert fitting(lm, rows, dspy.ChatAdapter(), "know") == [fits]
    assert len(tokenized(text, rows, False, whole, "know")) == 1
    with pytest.raises(InputError, match="none of 1 rows fits"):
        tokenized(text, rows, False, whole - 1, "know")


def test_a_chat_template_that_refuses_a_call_is_told_so_too(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told that the server might not know the model, of a folder."""
    lm = LocalLM(f"local/{llama}", adapter="chat", cache=False)
    monkeypatch.setattr(lm.base_engine.text.tokenizer, "chat_template", "{{ raise_exception('no system role') }}")
    with dspy.context(lm=lm, adapter=lm.adapter), pytest.raises(Exception, match="no system role") as raised:
        dspy.Predict("question -> answer")(question="Who?")
    told = explain(raised.value, lm)
    assert isinstance(told, LMError) and "server" not in str(told) and str(told).endswith("(--adapter compact)")


def tokenizer_of_words(*, breaks: bool) -> PreTrainedTokenizerFast:
    """Drops line breaks, all or those that end a text."""
    words = ["</s>", "<unk>", "question", ":", "Who", "?", "answer", "Ada", "\n"]
    library = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    if breaks:
        library.normalizer = normalizers.Strip(left=False, right=True)
        library.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|:|\?| "), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=library, eos_token="</s>")


def test_an_answer_has_an_end_to_be_learnt_where_the_tokenizer_strips_texts() -> None:
    text = Text(tokenizer_of_words(breaks=True))
    asked = {"role": "user", "content": "question: Who?\nanswer:"}
    row = text.training_row([asked, {"role": "assistant", "content": " Ada\n\n"}], True)
    assert text.breaks_lines and row.tokens[-1] == text.tokenizer.eos_token_id


def test_what_was_learnt_from_rows_that_are_made_otherwise_now_is_learnt_anew(makers: Any) -> None:
    """A finished training of a model that never learnt to stop was taken up as it was."""
    thinking = chatting(makers, TURNS + "{% if add_generation_prompt %}<assistant><think>\n{% endif %}")
    plain = chatting(makers, TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}")
    assert thinking.ends_or_begins_anew(False) and not thinking.ends_or_begins_anew(True)
    assert not plain.ends_or_begins_anew(False) and not plain.ends_or_begins_anew(True)
    assert Text(tokenizer_of_words(breaks=False)).ends_or_begins_anew(True)
    assert Text(tokenizer_of_words(breaks=True)).ends_or_begins_anew(True)


def test_an_answer_has_an_end_to_be_learnt_where_the_tokenizer_drops_line_breaks() -> None:
    """Each answer of such a model was cut off at its limit, as nothing had taught it to stop."""
    text, form = Text(tokenizer_of_words(breaks=False)), CompactAdapter()

    def row(signature: Any, outputs: dict[str, str]) -> TrainingRow:
        return TrainingRow(form.format_finetune_data(signature, [], {"question": "Who?"}, outputs)["messages"])

    [learnt] = tokenized(text, [row(DirectAnswer, {"answer": "Ada"})], True, 512, "answer_directly")
    assert text.decode(learnt.tokens[: learnt.start], False).endswith("question : Who ? answer :")
    assert text.decode(learnt.tokens[learnt.start :], False) == "Ada </s>"
    with pytest.raises(
        InputError, match=r"^answer_from writes several outputs, .* no line breaks: train predictors with"
    ):
        tokenized(text, [row(GroundedAnswer, {"evidence": "Ada", "answer": "Ada"})], True, 512, "answer_from")
