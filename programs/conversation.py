"""A program in a conversation: earlier turns make the last question one that stands alone."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import dspy

from raisf.evaluation.local_lms import lms_of
from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import adapter_for
from raisf.lm.lists import ASKS, plain
from raisf.programs.calls import Run
from raisf.programs.concurrency import BudgetSpent
from raisf.programs.program import MAX_QUESTION_CHARACTERS, check_question
from raisf.programs.questions import asks, is_unknown, normal, refuses
from raisf.programs.state import harmless
from raisf.programs.steps import reads_instructions
from raisf.signatures.conversation import StandaloneQuestion
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from raisf.utils.predictors import all_predictors
from raisf.utils.text import clean

MOST_TURNS = 8
"""Turns that are read, the last ones: what a question refers to is rarely further back."""

LONGEST_TURN = 500
"""Characters of a turn that are read."""

_LABEL = re.compile(
    r"^\**(?:user|(?:the )?(?:standalone|rewritten|rephrased|reworded|final)(?: (?:question|version))?(?: is)?):\**\s*",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"(?<=\?)[\s*]++\(?(?:explanation|note|reason|reasoning|i (?:replaced|rewrote|changed|resolved|made|added))\b.*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Turn:
    """What was said before; the speaker is "user" or "assistant"."""

    speaker: str
    text: str


def _with_standalone(prediction: Any, standalone: str) -> dspy.Prediction:
    given = dict(prediction.items())
    for name in given:
        del prediction[name]
    for name, value in {"standalone": standalone, **given}.items():
        prediction[name] = value  # dspy.majority votes on the last, which is the program's own
    return prediction


def _question_in(text: str) -> str:
    """The rewritten question without its label, and what the LM says about it."""
    parts = [clean(part) for part in re.split(r"\n\s*\n", _REMARK.sub("", text[: 2 * MAX_QUESTION_CHARACTERS]))]
    asked = next((part for part in parts if part.rstrip(" *_\"'").endswith(ASKS)), " ".join(filter(None, parts)))
    return plain(_LABEL.sub("", asked))


def _is_rewording(standalone: str, question: str, turns: Sequence[Turn]) -> bool:
    """Whether what the LM wrote can be the question in other words."""
    said = [turn.text for turn in turns if turn.speaker != "user"]
    asked = [turn.text for turn in turns if turn.speaker == "user"][-1:]  # what was asked further back may come again
    if normal(standalone) in {normal(text) for text in said + asked} - {normal(question)}:
        return False
    # "I would like to know where she was born" looks like a refusal too, and may be reworded.
    if is_unknown(standalone) or (refuses(standalone) and not refuses(question)):
        return False
    if asks(question) and not asks(standalone):  # "No rewriting needed.", or the answer itself
        return False
    return len(standalone) <= MAX_QUESTION_CHARACTERS


class Conversation(dspy.Module):
    """Answers the last question of a conversation.

    It compiles like any module: `rewrite` takes demonstrations, and a program of ours inside is found.

    Args:
        program: Called as `program(question=...)`; shared, not copied.
    """

    def __init__(self, program: dspy.Module) -> None:
        super().__init__()
        self.rewrite = dspy.Predict(StandaloneQuestion)
        self.program = program

    def forward(self, question: str, turns: Sequence[Turn] = ()) -> dspy.Prediction:
        """The program's prediction, with `standalone`, the question that it was asked."""
        standalone = self.standalone(question, turns)
        return _with_standalone(self.program(question=standalone), standalone)

    async def aforward(self, question: str, turns: Sequence[Turn] = ()) -> dspy.Prediction:
        """As `forward`, without blocking the event loop."""
        standalone = await anyio.to_thread.run_sync(self.standalone, question, turns, abandon_on_cancel=True)
        return _with_standalone(await self.program.acall(question=standalone), standalone)

    def standalone(self, question: str, turns: Sequence[Turn], run: Run | None = None) -> str:
        """The question so that it needs no other: one LM call, and none where nothing was said before.

        The question itself where the LM's output cannot be read, repeats an earlier answer or the question before, or
        is no question ("I cannot rewrite it."), where no call is left for it, and where the LM does not reword: pocket
        never does, and smollm2 needs demonstrations or an adapter of its own, without which it makes other questions
        of those that stand alone.

        Args:
            question: The last.
            turns: What was said before.
            run: Whose budget and cost the call belongs to; None: it stands alone, without a limit.

        Raises:
            InputError: It is no question.
        """
        check_question(question)
        if not turns or not self.rewords():
            return question
        said = [f"{turn.speaker}: {clean(turn.text)[:LONGEST_TURN]}" for turn in turns[-MOST_TURNS:]]
        try:
            with dspy.context(lm=self._lm()):
                prediction = (run or Run()).ask(self.rewrite, turns=said, question=question)
        except BudgetSpent:
            return question
        standalone = _question_in(str(prediction.standalone)) if prediction else ""
        return standalone if _is_rewording(standalone, question, turns) else question

    def rewords(self) -> bool:
        """Whether questions that refer to earlier turns are reworded; else each is asked as it stands."""
        lm = self._lm()
        shown = bool(self.rewrite.demos) or getattr(self.rewrite.lm, "lora", None) is not None
        if lm is None or not reads_instructions(lm):
            return False
        return shown or not isinstance(adapter_for(lm), CompactAdapter)

    def take_rewriting(self, path: Path) -> None:
        """Take up how questions are rewritten from what `save` wrote of a compiled conversation.

        Args:
            path: The .json file. Only the instruction and the demonstrations are taken, never an LM or an address.

        Raises:
            InputError: It is no such file.
        """
        saved = read_json(path)
        state = saved.get("rewrite") if isinstance(saved, dict) else None
        try:
            kept, _ = harmless({"rewrite": state})
            self.rewrite.load_state({**kept["rewrite"], "lm": None})
        except (AttributeError, KeyError, TypeError, ValueError, InputError) as error:
            raise InputError(f"{path} is no saved conversation: write one with Conversation.save(FILE.json)") from error

    def _lm(self) -> Any:
        """What rewrites: its own, else what most of the program's answerers ask, else DSPy's.

        A judge with weights or an LM of its own has learnt to write verdicts, or is there for these. Where nothing has
        an `answer`, all predictors count.
        """
        asked_for = [(one, cast(Any, one.signature).output_fields) for _, one in all_predictors(self.program)]
        writers = [one for one, outputs in asked_for if "answer" in outputs]
        lms = [one.lm or dspy.settings.lm for one in writers] or lms_of(self.program)
        lms = [lm for lm in lms if lm is not None]
        asked = Counter(lm.model for lm in lms)
        most = max(lms, key=lambda lm: (asked[lm.model], getattr(lm, "lora", None) is None), default=dspy.settings.lm)
        return self.rewrite.lm or most
