"""What commands are made of: click's, with --json, examples in their help, and a word to who presses Ctrl-C."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from raisf.commands.result import show, writing
from raisf.utils.text import one_line

NOTHING_WRITTEN = "nothing was written"
GO_ON = "run the same command again to go on where it stopped"


_LINE, _OUT = "raisf.command_line", "raisf.out"


def command_line() -> str:
    """The command line that is being run, ready to be run again; "" outside of a command."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_LINE, "") if context else ""


def say(*cells: object) -> None:
    """Prints a line of the running command's result at once, tabs between its cells; nothing with --json.

    Where nobody reads on, as behind `| head`, the command ends.
    """
    context = click.get_current_context()
    out = context.meta[_OUT]
    if out is None:
        return
    try:
        with writing(out):
            print(*map(one_line, cells), sep="\t", file=out)
    except BrokenPipeError:
        context.exit(0)


def tell(line: str) -> None:
    """Writes a line on stderr as it is by then, if it can be written: no answer depends on whether anybody reads it.

    Its disk may be full, its reader gone, and a signal may come while another line is being written.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        print(line, file=sys.stderr, flush=True)


class Option(click.Option):
    """An option that the help shows under a heading."""

    def __init__(self, *args: Any, heading: str = "options", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.heading = heading


class Argument(click.Argument):
    """An argument that the help explains."""

    def __init__(self, *args: Any, help: str, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.help = help  # click itself takes one from 8.5 on


class Command(click.Command):
    """A command whose function gives a `CommandResult`, which is shown on standard output.

    Args:
        examples: Commands to copy, for the help.
        shows: False for a command without a result, which speaks on standard output itself: it has no --json.
        resume: What to do, or to know, after Ctrl-C.
        actions: Commands that a first argument of their name calls instead: `raisf index DOCS`, `raisf index add ...`.
        several: Options that take several values at once: `--test a.jsonl b.jsonl`.
        alone: What to do for more arguments than it takes, such as a shell makes of `docs/*.md`.
    """

    def __init__(
        self,
        *args: Any,
        examples: str,
        shows: bool = True,
        resume: str = NOTHING_WRITTEN,
        actions: Mapping[str, click.Command] | None = None,
        several: Sequence[str] = (),
        alone: str = "",
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.examples, self.resume, self.actions, self.several = examples, resume, dict(actions or {}), several
        self.alone = alone
        if shows:
            help = "print the result as JSON on standard output, and only that"
            self.params.append(Option(["--json", "as_json"], is_flag=True, help=help))

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        """As click's; the arguments of an action are parsed by its own command."""
        from difflib import get_close_matches

        if args and args[0] in self.actions:
            return self.actions[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        # Else a misspelt action would be taken for documents, of which an option is missing.
        if args and (near := get_close_matches(args[0], self.actions, n=1)) and not Path(args[0]).exists():
            empty = super().make_context(info_name, [], parent, resilient_parsing=True)
            raise click.UsageError(f"Nothing is at {args[0]!r}. Did you mean '{info_name} {near[0]}'?", empty)
        given = [one for one in args if one != "--json"]  # which shows the same result
        made = super().make_context(info_name, _spread(args, self.several), parent, **extra)
        made.meta[_LINE] = shlex.join(["raisf", info_name or "", *given])
        return made

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, with what to do for more arguments than it takes."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as mistake:  # `--model` is nearest to `--help`, which nobody meant
            meant = [one for one in mistake.possibilities or () if one != "--help"]
            raise click.NoSuchOption(mistake.option_name, possibilities=meant, ctx=ctx) from mistake
        except click.UsageError as mistake:
            if self.alone and "unexpected extra argument" in mistake.message:
                raise click.UsageError(f"{mistake.message}: {self.alone}", ctx) from mistake
            raise

    def invoke(self, ctx: click.Context) -> None:
        """Runs the command and shows what it gives."""
        as_json = ctx.params.pop("as_json", False)
        ctx.meta[_OUT] = None if as_json else sys.stdout
        try:
            # Libraries print progress of their own: only the result belongs on standard output.
            with contextlib.redirect_stdout(sys.stderr):
                result = super().invoke(ctx)
            if result is not None:
                show(result, as_json=as_json)
                if result.exit_code:
                    ctx.exit(result.exit_code)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(str(interrupt) or self.resume) from None
        except RuntimeError as error:  # Python 3.11 makes one of what strikes in a __set_name__, as during an import
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt(self.resume) from None
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The arguments and options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            if isinstance(one, Argument):
                sections.setdefault("arguments", []).append((one.metavar or (one.name or "").upper(), one.help or ""))
            elif (row := one.get_help_record(ctx)) is not None:
                heading = one.heading if isinstance(one, Option) else "options"
                sections.setdefault(heading, []).append(row)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: from 8.5 on click writes the arguments here, which `format_options` does in all versions."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, line for line."""
        formatter.write(f"\nexamples:\n{self.examples}\n")


class Commands(click.Group):
    """Commands whose help says in whole sentences what each does."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Their names and what they do, which click would cut off after a line."""
        with formatter.section("commands"):
            rows = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
            formatter.write_dl([(name, one.help or "") for name, one in rows if one])


class Family(Commands):
    """Commands under one name, such as `raisf pocket train` and `raisf pocket report`."""

    def __init__(self, name: str, commands: Sequence[Command], **kwargs: Any):
        super().__init__(name, commands, no_args_is_help=False, **kwargs)
        self.examples = "\n".join(one.examples for one in commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, line for line."""
        formatter.write(f"\nexamples:\n{self.examples}\n")


def command(name: str, examples: str, **options: Any) -> Callable[[Callable[..., Any]], Command]:
    """Makes a function a command; its docstring is the help. The options are `Command`'s."""
    return click.command(name, cls=Command, examples=examples, **options)


def argument(name: str, help: str, **options: Any) -> Callable[[Any], Any]:
    """An argument of a command."""
    return click.argument(name, cls=Argument, help=help, **options)


def option(*names: str, **options: Any) -> Callable[[Any], Any]:
    """An option of a command, under a `heading` of the help."""
    return click.option(*names, cls=Option, **options)


def _spread(args: Sequence[str], several: Sequence[str]) -> list[str]:
    """`--test a b` as `--test a --test b`, for the options named."""
    spread: list[str] = []
    current: str | None = None  # the option whose values come now
    for place, one in enumerate(args):
        if one == "--":
            return [*spread, *args[place:]]
        if one.startswith("-") and one != "-":
            current = one if one in several else None
        elif current is not None and spread[-1] != current:
            spread.append(current)
        spread.append(one)
    return spread
