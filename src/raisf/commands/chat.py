"""`raisf chat`."""

import sys

from raisf.commands.command import command
from raisf.commands.options import ProgramChoice, lm_options, program_options
from raisf.commands.result import CommandResult, facts_result
from raisf.experiments.opening import LMChoice


@command(
    "chat",
    "  raisf chat --index indexes/home\n"
    "  raisf chat --program artifacts/a --lm openai/gpt-4o-mini\n"
    "  raisf chat --index indexes/mine < questions.txt",
)
@program_options
@lm_options
def chat_command(choice: ProgramChoice, lm: LMChoice) -> CommandResult:
    """Ask one question after another; each may refer to those before it, and its tree is shown while it grows."""
    from raisf.commands.live import ask_live
    from raisf.programs.conversation import Conversation, Turn
    from raisf.programs.trace import Trace, render
    from raisf.utils.display import as_text, console
    from raisf.utils.errors import RaisfError

    program = choice.open(lm)
    conversation, turns, screen = Conversation(program), list[Turn](), console()
    interactive = sys.stdin.isatty()
    if interactive:
        screen.print(as_text("An empty line, or Ctrl-D, ends it; Ctrl-C stops a question.", "dim"))
    asked = 0
    while question := _next(interactive):
        try:
            standalone = conversation.standalone(question, turns)
            if standalone != question:
                screen.print(as_text(f"asked as: {standalone}", "dim"))
            prediction = ask_live(program, standalone)
        except RaisfError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            continue
        asked += 1
        trace = prediction.get("trace")
        screen.print(render(trace) if isinstance(trace, Trace) else as_text(prediction.answer))
        turns += [Turn("user", question), Turn("assistant", prediction.answer)]
    return CommandResult({"questions": asked}, facts_result({"questions": asked}).view)


def _next(interactive: bool) -> str:
    """The next question; "" at the end."""
    if not interactive:
        return next((line.strip() for line in sys.stdin if line.strip()), "")
    try:
        return input("? ").strip()
    except (EOFError, KeyboardInterrupt):
        return ""
