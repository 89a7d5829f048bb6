"""Step by step: the calls of the systems that reason in words or retrieve more than once.

A reasoning is a few sentences, each with one fact; a fact is "question = answer"; a step is an action and what it gave.
"""

import dspy


class Reasoning(dspy.Signature):
    """Think step by step, one fact a sentence, then answer the question in one or a few words."""

    question: str = dspy.InputField()
    reasoning: str = dspy.OutputField(desc="a few sentences, one fact each")
    answer: str = dspy.OutputField(desc="one or a few words")


class GroundedReasoning(dspy.Signature):
    """Think step by step with the facts in the passages, then answer the question in one or a few words."""

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    reasoning: str = dspy.OutputField(desc="a few sentences, one fact each")
    answer: str = dspy.OutputField(desc="one or a few words")


class NextThought(dspy.Signature):
    """Write the next sentence of a reasoning that answers the question from the passages.

    Once the thoughts suffice, write "So the answer is:" and the answer.
    """

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    thoughts: list[str] = dspy.InputField(desc="the sentences so far")
    thought: str = dspy.OutputField(desc="one sentence")


class FollowUp(dspy.Signature):
    """Ask the next question that has to be answered before the whole question can be, given the facts found so far.

    Write none if the facts suffice.
    """

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="a follow-up question and its intermediate answer")
    follow_up: str = dspy.OutputField(desc="a simple question, or none")


class NextAction(dspy.Signature):
    """Answer the question in steps. Each step is a thought and then an action.

    Search[query] looks something up, Finish[answer] gives the answer in one or a few words.
    """

    question: str = dspy.InputField()
    steps: list[str] = dspy.InputField(desc="earlier thoughts, actions and observations")
    thought: str = dspy.OutputField(desc="one sentence: what is known, or what is missing")
    action: str = dspy.OutputField(desc="Search[...] or Finish[...]")


class WrittenPassage(dspy.Signature):
    """Write from memory a short encyclopedia passage that answers the question."""

    question: str = dspy.InputField()
    background: str = dspy.OutputField(desc="two to four sentences")


class HelpfulPassages(dspy.Signature):
    """List the numbers, counted from 1, of the passages that help to answer the question, if only a part of the way.

    Give an empty list if there is none.
    """

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    helpful_ids: list[int] = dspy.OutputField()


class Topic(dspy.Signature):
    """Name the general topic that the question is about."""

    question: str = dspy.InputField()
    topic: str = dspy.OutputField(desc="a few words")


class PassageReview(dspy.Signature):
    """Set aside what you know yourself about the topic, and use the passages alone.

    Check the passages one by one, step by step: what does each say that helps to answer the question?
    """

    question: str = dspy.InputField()
    topic: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    review: str = dspy.OutputField(desc="a sentence about each passage, by its number, counted from 1")


class ReviewedPassages(dspy.Signature):
    """List only the numbers of the passages that the review finds helpful to answer the question.

    Give an empty list if there is none.
    """

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    review: str = dspy.InputField()
    helpful_ids: list[int] = dspy.OutputField()
