"""What was wrong with one step of a run, in words: for an LM that rewrites the instruction behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from raisf.evaluation.decomposition import same_decomposition
from raisf.evaluation.examples import gold_answers
from raisf.evaluation.metrics import exact_match
from raisf.optimize.demonstrations import Rows, answered
from raisf.optimize.judges.judge_data import Step, steps_asked
from raisf.optimize.judges.predictor_roles import decomposes_first, role_of
from raisf.optimize.within import owned
from raisf.signatures.answers import ComposedAnswer, DirectAnswer, GroundedAnswer, PassageAnswer
from raisf.signatures.judges import AnswerTruth, Decomposition, ListwiseRelevance, PassageRelevance, SelfKnowledge
from raisf.utils.text import answer_text


@dataclass(frozen=True, slots=True)
class Remark:
    """On one step.

    Attributes:
        text: What was right or wrong with it, and what gold says.
        right: None where gold says nothing of the step; only the run's end tells.
    """

    text: str
    right: bool | None


class Feedback:
    """Remarks on the steps of RA-ISF and its baselines, from the judges' own gold; on others, from the answer.

    Args:
        program: Whose steps these are; perhaps a module that contains a program of ours.
        examples: Questions with gold, those whose runs will be looked at.
        rows: The judges' rows of the same questions.
        score: What makes an answer right: a measure of `raisf.evaluation.metrics`.
    """

    def __init__(
        self,
        program: dspy.Module,
        examples: Sequence[dspy.Example],
        rows: Rows,
        score: Callable[..., float] = exact_match,
    ):
        self._score = score
        self._ours = owned(program)
        self._steps: dict[str, Step] = {}
        self._parts: dict[str, list[str]] = {}
        self._known: dict[str, str] = {}
        self._relevant: dict[str, dict[str, str]] = {}
        if not self._ours:
            return
        self._steps = _steps(examples)
        for example in examples:
            self._parts |= _parts(example)
        for name, predictor in program.named_predictors():
            for row in rows.of.get(name, []):
                if role_of(predictor) in (SelfKnowledge, AnswerTruth):
                    self._known[row.question] = row.verdict
                elif role_of(predictor) is PassageRelevance:
                    self._relevant.setdefault(row.question, {})[row.passage] = row.verdict
                elif role_of(predictor) is ListwiseRelevance:
                    for number, passage in enumerate(row.passages, 1):
                        verdict = "relevant" if number in row.relevant_ids else "irrelevant"
                        self._relevant.setdefault(row.question, {})[passage] = verdict

    def on(
        self,
        name: str,
        predictor: Any,
        inputs: dict[str, Any],
        outputs: Any,
        example: dspy.Example,
        prediction: dspy.Prediction,
        score: float,
    ) -> Remark:
        """The remark on a step: what its predictor was given and gave, in a run that ended with that score."""
        found = None
        if name in self._ours:
            found = self._own(role_of(predictor), self._ours[name], inputs, outputs, example)
        return found or Remark(self._whole(example, prediction, score), None)

    def _own(self, role: Any, owner: Any, inputs: dict[str, Any], outputs: Any, example: dspy.Example) -> Remark | None:
        question = inputs.get("question", "")
        if role in (SelfKnowledge, AnswerTruth):
            return self._on_verdict(question, outputs.get("verdict"), self._known.get(question))
        if role is PassageRelevance:
            judged = self._relevant.get(question, {})
            return self._on_verdict(question, outputs.get("verdict"), judged.get(inputs["passage"]))
        if role is ListwiseRelevance:
            return self._on_list(question, inputs["passages"], outputs.get("relevant_ids") or [])
        if role is Decomposition:
            gold = _parts(example).get(question, self._parts.get(question))
            return self._on_parts(question, outputs.get("sub_questions") or [], decomposes_first(owner), gold)
        # Equal words may be asked about different things: a run is held to what its own question says.
        step = _steps([example]).get(question) or self._steps.get(question)
        if role in (DirectAnswer, GroundedAnswer, PassageAnswer, ComposedAnswer) and step is not None:
            return self._on_answer(role, inputs, answer_text(outputs.get("answer"), step.answers), step)
        return None

    def _on_verdict(self, question: str, said: Any, gold: str | None) -> Remark | None:
        if gold is None:
            return None
        if said == gold:
            return Remark(f"Right: judged {said}.", True)
        return Remark(f"Wrong: judged {said}, but {self._reason(question, gold)}.", False)

    def _answers(self, question: str) -> str:
        return _quoted(self._steps[question].answers if question in self._steps else ())

    def _reason(self, question: str, gold: str) -> str:
        """Why gold's verdict is right."""
        answers = self._answers(question)
        if gold == "know":
            return f"answering from memory gives the right answer, {answers}"
        if gold == "unknown":
            return f"the answer from memory is not {answers}"
        if gold == "relevant":
            return f"this is the gold passage and gives the answer, {answers}"
        others = [text for text, verdict in self._relevant[question].items() if verdict == "relevant"]
        where = "no passage retrieved for this question is"
        if others:
            where = f"the gold passage, which was among those retrieved, is {_short(others[0])}"
        return f"this passage does not suffice to answer ({answers}); {where}"

    def _on_list(self, question: str, passages: Sequence[str], listed: Sequence[int]) -> Remark | None:
        verdicts = [self._relevant.get(question, {}).get(passage) for passage in passages]
        if None in verdicts:
            return None
        gold = [number for number, verdict in enumerate(verdicts, 1) if verdict == "relevant"]
        right = set(gold) == set(listed)
        return Remark(f"{'Right' if right else 'Wrong'}: listed {list(listed)}; gold is {gold}.", right)

    def _on_parts(self, question: str, listed: Sequence[str], first: bool, gold: Sequence[str] | None) -> Remark | None:
        if gold is None:
            return None
        if not gold:
            answers = self._answers(question)
            if first and len(listed) > 1:  # it was asked before any judge
                return Remark(f"Wrong: this is a simple question, {answers}: list it alone, as it stands.", False)
            return Remark(f"A simple question, {answers}: an earlier judge erred when it let it come here.", None)
        right = same_decomposition([str(part) for part in listed], gold) == 1.0
        return Remark("Right." if right else f"Wrong: the gold sub-questions are {_quoted(gold, ', then ')}.", right)

    def _on_answer(self, role: Any, inputs: dict[str, Any], answer: str, step: Step) -> Remark:
        if self._score(answer, step.answers, step.scoring) == 1.0:
            return Remark("Right.", True)
        wrong = f"Wrong: answered {answer!r}, right is {_quoted(step.answers)}."
        if role is DirectAnswer:
            return Remark(f"{wrong} A question whose answer is not known had better be judged unknown before.", False)
        if role is ComposedAnswer:
            facts = " ".join(map(str, inputs["facts"]))
            held = any(str(one).casefold() in facts.casefold() for one in step.answers)
            return Remark(f"{wrong} {'The facts hold it.' if held else 'The facts do not name it.'}", False)
        judged = self._relevant.get(inputs["question"], {})
        among = [passage for passage in inputs["passages"] if judged.get(passage) == "relevant"]
        if among:
            return Remark(f"{wrong} The gold passage was among those given: {_short(among[0])}.", False)
        if all(passage in judged for passage in inputs["passages"]):
            return Remark(f"{wrong} The gold passage was not among those given.", None)
        return Remark(wrong, None)

    def _whole(self, example: dspy.Example, prediction: Any, score: float) -> str:
        """How the run ended; all that can be said of a step without gold."""
        gold = gold_answers(example)
        answer = prediction.get("answer") if isinstance(prediction, dspy.Prediction) else prediction
        if not gold:
            gave = dict(prediction) if isinstance(prediction, dspy.Prediction) else prediction
            return f"In the end the program gave {_short(gave)}; the example is {_short(dict(example))}."
        said = f"In the end the program answered {str(answer)!r}"
        if score >= 1:
            return f"{said}, which is right."
        return f"{said}; right is {_quoted(gold)}. Gold says nothing about this step itself."


def _steps(examples: Sequence[dspy.Example]) -> dict[str, Step]:
    """What these ask, by its words, as far as gold answers it."""
    return steps_asked(found) if (found := answered(examples)) else {}


def _parts(example: dspy.Example) -> dict[str, list[str]]:
    """The question with its parts, none where it is known to be simple; empty where gold says nothing of that."""
    parts = list(example.get("sub_questions") or [])
    told = "question" in example and (len(parts) > 1 or example.get("hops") == 1)
    return {example.question: parts if len(parts) > 1 else []} if told else {}


def _quoted(texts: Sequence[str], between: str = " or ") -> str:
    return between.join(repr(str(text)) for text in texts)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= 200 else f"{text[:200]}…")
