"""`raisf ask`."""

import logging
import sys

from raisf.commands.command import argument, command, option
from raisf.commands.options import ProgramChoice, lm_options, program_options
from raisf.commands.result import CommandResult, answer_facts
from raisf.experiments.opening import LMChoice
from raisf.utils.errors import InputError, LMError, in_short

logger = logging.getLogger(__name__)


@command(
    "ask",
    '  raisf ask "Who is the mayor of Belrin?" --index indexes/home\n'
    '  raisf ask "..." --index indexes/mine --lm openai/gpt-4o-mini\n'
    '  raisf ask "..." --index indexes/mine --lm openai/llama --api-base http://127.0.0.1:8000/v1\n'
    '  raisf ask "..." --program artifacts/a --json\n'
    '  raisf ask "..." --index indexes/mine --live\n'
    '  raisf ask "..." --program mypackage.rag:MyRAG --index indexes/mine\n'
    "  raisf ask - --program direct < question.txt",
    alone="put the question in quotes",
)
@argument("question", help="the question; - reads it from standard input")
@option("--live", is_flag=True, help="show the tree on standard error, if that is a terminal, while it grows")
@program_options
@lm_options
def ask_command(question: str, live: bool, choice: ProgramChoice, lm: LMChoice) -> CommandResult:
    """Answer one question and show how: route, passages with verdicts, sub-questions, cost."""
    from dspy.utils.exceptions import AdapterParseError

    from raisf.evaluation.examples import answer_of
    from raisf.evaluation.readability import REMEDY
    from raisf.programs.rendering import render
    from raisf.programs.trace import Trace
    from raisf.utils.display import as_text

    question = (sys.stdin.read() if question == "-" else question).strip()
    if (asked := sum(line.rstrip().endswith("?") for line in question.split("\n"))) > 1:
        logger.warning("these %d lines are asked as one question; raisf chat < FILE asks each alone", asked)
    if not question:
        raise InputError("the question is empty: give one in quotes, or - to read it from standard input")
    program = choice.open_to_ask(lm)
    try:
        if live:
            from raisf.commands.live import ask_live

            prediction = ask_live(program, question)
        else:
            prediction = program(question=question)
    except AdapterParseError as error:  # a module of the user's own passes it on
        raise LMError(f"the LM's output could not be read ({in_short(error)}): {REMEDY}") from error
    answer = answer_of(prediction, program)
    trace = prediction.get("trace")
    trace = trace if isinstance(trace, Trace) else None
    unread = trace is not None and trace.unreadable > 0 and not trace.read
    if unread:
        logger.warning("no output of the LM could be read: %s", REMEDY)
    return CommandResult(answer_facts(answer, trace), as_text(answer) if trace is None else render(trace), int(unread))
