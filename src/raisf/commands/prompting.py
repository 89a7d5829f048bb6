"""`raisf compile --how prompts`: what its options mean to the room `optimize`, and which candidate won."""

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raisf.commands import assemble
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.evaluation.intervals import Score

WRITES = ("mipro", "gepa")


def prompt_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the optimizers that compile to prompts, as far as they were given.

    Raises:
        InputError: An option that the strategy does not have, or an LM that cannot be opened.
    """
    names = ("demos", "candidates", "trials", "reflection_lm", "reflection_api_base")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if (written := [name for name in names[2:] if name in given]) and arguments.strategy not in WRITES:
        option = written[0].replace("_", "-")
        raise InputError(f"--{option} is for --strategy {' and '.join(WRITES)}: leave it out, or take one of them")
    endpoint = given.pop("reflection_api_base", None)
    if (spec := given.get("reflection_lm")) is not None:
        from raisf.optimize.optimizers.few_shot import REFLECTION_TOKENS

        given["reflection_lm"] = assemble.open_lm(spec, api_base=endpoint, max_tokens=REFLECTION_TOKENS)
    elif endpoint:
        raise InputError("--reflection-api-base without --reflection-lm: give openai/MODEL too")
    return given


def show_candidates(report: dict[str, Any]) -> RenderableType:
    """A row for each candidate, and the instructions that the chosen one has of its own."""
    from raisf.evaluation.intervals import Score

    first, *_ = report["candidates"]
    title = f"selected: {report['chosen']}"
    table = Table("candidate", "exact match on the dev split", f"against {first['name']}", title=title)
    table.title_justify = "left"
    for candidate in report["candidates"]:
        against = "" if candidate is first else _signed(Score(**candidate["difference"]))
        table.add_row(candidate["name"], str(Score(**candidate["score"])), against)
    told = [Text.assemble((f"{name}: ", "bold"), text) for name, text in report["instructions"].items()]
    if report["strategy"] == "mipro" and not any(report["proposed"].values()):
        told.append(Text("no instruction was proposed: the LM's format has none, or none could be read", style="dim"))
    if report["failed"]:
        told.append(Text(f"{report['failed']} questions failed and count as wrong", style="yellow"))
    return Group(table, *told)


def _signed(difference: "Score") -> str:
    return f"{100 * difference.value:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
