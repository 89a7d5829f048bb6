"""`raisf chat`."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from raisf.commands.command import command, say, tell
from raisf.commands.options import ProgramChoice, lm_options, program_options
from raisf.commands.result import INTERRUPTED, CommandResult, answer_facts
from raisf.experiments.opening import LMChoice

if TYPE_CHECKING:
    from raisf.programs.calls import Run
    from raisf.programs.conversation import Conversation, Turn


@command(
    "chat",
    "  raisf chat --index indexes/home\n"
    "  raisf chat --program artifacts/a --lm openai/gpt-4o-mini\n"
    "  raisf chat --index indexes/mine < questions.txt        one line each: question, tab, answer",
)
@program_options
@lm_options
def chat_command(choice: ProgramChoice, lm: LMChoice) -> CommandResult:
    """Ask one question after another; with an LM that follows instructions, a question may refer to earlier ones."""
    from rich.console import Group

    from raisf.commands.live import ask_live
    from raisf.programs.conversation import Conversation, Turn
    from raisf.programs.rendering import render
    from raisf.programs.trace import Trace
    from raisf.utils.display import as_text, console
    from raisf.utils.errors import RaisfError
    from raisf.utils.text import visible

    program = choice.open_to_ask(lm)
    conversation, turns, screen = Conversation(program), list[Turn](), console(stderr=True)
    interactive = sys.stdin.isatty()
    if interactive:
        screen.print(as_text("An empty line, or Ctrl-D, ends it; Ctrl-C stops a question.", "dim"))
    if not conversation.rewords():
        told = "Each question is asked as it stands: this LM cannot tell what one that refers to those before it means."
        screen.print(as_text(told, "dim"))
    answers = list[dict[str, Any]]()
    while question := _next(interactive):
        try:
            asked = [question]
            prediction = ask_live(program, question, reword=partial(_reworded, conversation, turns, asked))
            if asked[-1] != question:
                screen.print(as_text(f"asked as: {asked[-1]}", "dim"))
        except Exception as error:  # a module of the user's own may raise anything
            told = str(error) if isinstance(error, RaisfError) else f"{type(error).__name__}: {error}"
            tell(f"error: {visible(told)}")
            answers.append({"question": question, "asked_as": None, "answer": None, "error": told})
            if not interactive:
                say(question, f"error: {told}")
            continue
        except KeyboardInterrupt:
            tell(f"stopped at: {visible(question)}")
            if interactive:
                continue
            question = None
            break
        trace = found if isinstance(found := prediction.get("trace"), Trace) else None
        answers.append({"question": question, "asked_as": asked[-1], **answer_facts(prediction.answer, trace)})
        if not interactive:  # else it stands below its tree
            say(question, prediction.answer)
        screen.print(as_text(prediction.answer) if trace is None else render(trace))
        turns += [Turn("user", question), Turn("assistant", prediction.answer)]
    failed = not interactive and any(answer["answer"] is None for answer in answers)
    return CommandResult({"answers": answers}, Group(), exit_code=INTERRUPTED if question is None else int(failed))


def _reworded(conversation: "Conversation", turns: "list[Turn]", asked: list[str], question: str, run: "Run") -> str:
    """The question so that it stands alone; its call is one of the run's. `asked` takes it, too."""
    asked.append(conversation.standalone(question, turns, run))
    return asked[-1]


def _next(interactive: bool) -> str | None:
    """The next question; "" at the end, and None where Ctrl-C ends a script's."""
    try:
        return input("? ").strip() if interactive else next((line.strip() for line in sys.stdin if line.strip()), "")
    except EOFError:
        return ""
    except KeyboardInterrupt:
        return "" if interactive else None
