"""`raisf programs`."""

from raisf.commands.command import command
from raisf.commands.result import CommandResult


@command("programs", "  raisf programs\n  raisf programs --json")
def programs_command() -> CommandResult:
    """List the programs: what each does and its source."""
    from raisf.optimize.manifest import read
    from raisf.optimize.shipped import PROGRAMS as SHIPPED
    from raisf.optimize.shipped import shipped_folder
    from raisf.programs.registry import PROGRAMS, about, defaults
    from raisf.utils.display import DataTable, as_text

    rows = []
    table = DataTable("program", "what it does", "source", box=None, padding=(0, 2, 1, 0))
    for name, program in PROGRAMS.items():
        summary, source = about(program)
        rows.append({"name": name, "summary": summary, "source": source, "options": defaults(program)})
        table.add_row(as_text(name, "bold"), summary, as_text(source, "dim"))
    compiled = []
    for name, (summary, source) in SHIPPED.items():
        options = read(shipped_folder(name)).options
        compiled.append({"name": name, "summary": summary, "source": source, "options": options})
        table.add_row(as_text(name, "bold"), summary, as_text(source, "dim"))
    return CommandResult({"programs": rows, "compiled": compiled}, table)
