"""ReAct: thoughts and actions in turns, until an action gives the answer."""

import re

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.steps import reads_instructions, search, texts, union
from raisf.programs.trace import Node, Step
from raisf.retrieval.passage import Retriever
from raisf.signatures.reasoning import NextAction
from raisf.utils.checks import check_count
from raisf.utils.text import clean, counted

# The brackets may hold others: "Finish[The Beatles [band]]".
_ACTION = re.compile(r"\b(search|finish)\s*\[((?:[^\[\]]|\[[^\[\]]*\])+)\]", re.IGNORECASE)
_MALFORMED = "no action -> write Search[query] or Finish[answer]"


class ReAct(Program):
    """Thinks, then acts: Search[query] shows it the best passage, Finish[answer] ends the question.

    Each step shows all earlier thoughts, actions and observations (the pocket models, in the form that they were
    trained on, only actions and observations). Of what the LM writes for an action the first Search or Finish counts.
    Where there is none it is asked once more, with a note of what is wanted; if that fails too, the question ends as
    "unknown". So it does when the steps are used up.

    Args:
        retriever: Called as `retriever(query, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages that a search shows; 1, as the paper's search shows one page. BlendFilter's tables take 5.
        max_steps: Actions at most.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Yao et al. 2023, arXiv 2210.03629, section 3, without its Lookup, which searches within a long page.
    """

    system = "react"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 1,
        max_steps: int = 7,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_count("max_steps", max_steps)
        self.k = k
        self.max_steps = max_steps
        self.act = dspy.Predict(NextAction)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            steps: list[str] = []
            for number in range(1, self.max_steps + 1):
                action = self._next(run, question, steps)
                if action is None:
                    return node.unread("unreadable", f"no action could be read in step {number}, nor when asked again")
                thought, kind, text = action
                if kind == "finish":
                    node.steps.append(Step(generation=thought))
                    return node.conclude("acted", f"after {counted(len(steps), 'search', 'searches')}", text)
                step = search(run, text, self.k, thought)
                node.steps.append(step)
                node.passages = union(node.passages, step.passages)
                steps.append(self._shown(len(steps) + 1, step))
            node.end("max_steps", f"no answer within max_steps={self.max_steps}")
        return node

    def _shown(self, number: int, step: Step) -> str:
        """A step as the LM sees it later."""
        action, observation = f"Search[{step.query}]", " ".join(texts(step.passages)) or "nothing found"
        if reads_instructions(self.act.lm):
            return f"Thought {number}: {step.generation} Action {number}: {action} Observation {number}: {observation}"
        return f"{action} -> {observation}"

    def _next(self, run: Run, question: str, steps: list[str]) -> tuple[str, str, str] | None:
        """The next thought, its action's kind and what stands in its brackets; None where no action can be read."""
        for shown in (steps, [*steps, _MALFORMED]):
            prediction = run.ask(self.act, question=question, steps=list(shown))
            action = _ACTION.search(clean(prediction.action)) if prediction else None
            if prediction and action and (text := clean(action[2])):
                return clean(prediction.thought), action[1].casefold(), text
            if prediction:
                run.misread()
        return None
