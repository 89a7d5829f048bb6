"""`raisf ask`."""

import sys

from raisf.commands.command import argument, command, option
from raisf.commands.options import ProgramChoice, lm_options, program_options
from raisf.commands.result import CommandResult, answer_facts
from raisf.experiments.opening import LMChoice
from raisf.utils.errors import InputError


@command(
    "ask",
    '  raisf ask "Who is the mayor of Belrin?" --index indexes/home\n'
    '  raisf ask "..." --index indexes/mine --lm openai/gpt-4o-mini\n'
    '  raisf ask "..." --index indexes/mine --lm openai/llama --api-base http://127.0.0.1:8000/v1\n'
    '  raisf ask "..." --program artifacts/a --json\n'
    '  raisf ask "..." --index indexes/mine --live\n'
    '  raisf ask "..." --program mypackage.rag:MyRAG --index indexes/mine\n'
    "  raisf ask - --program direct < question.txt",
)
@argument("question", help="the question; - reads it from standard input")
@option("--live", is_flag=True, help="show the tree on standard error, if that is a terminal, while it grows")
@program_options
@lm_options
def ask_command(question: str, live: bool, choice: ProgramChoice, lm: LMChoice) -> CommandResult:
    """Answer one question and show how: route, passages with verdicts, sub-questions, cost."""
    from raisf.evaluation.examples import answer_of
    from raisf.programs.trace import Trace, render
    from raisf.utils.display import as_text

    question = (sys.stdin.read() if question == "-" else question).strip()
    if not question:
        raise InputError("the question is empty: give one in quotes, or - to read it from standard input")
    program = choice.open_to_ask(lm)
    if live:
        from raisf.commands.live import ask_live

        prediction = ask_live(program, question)
    else:
        prediction = program(question=question)
    answer = answer_of(prediction, program)
    trace = prediction.get("trace")
    trace = trace if isinstance(trace, Trace) else None
    return CommandResult(answer_facts(answer, trace), as_text(answer) if trace is None else render(trace))
