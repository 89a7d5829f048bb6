"""Tries to break it for a quarter of an hour, and tells in one table what broke: `make campaign`.

Commands are killed at random points and run again; an endpoint fails one call in ten, and one in two; replies and
documents are made up to be misread. Exits with 1 where anything was lost, wrong or crashed.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from campaign.endpoint import ask_through_faults
from campaign.kills import Tally, kill_everywhere, make_home
from campaign.rubbish import misread_replies, read_documents


def main() -> int:
    logging.getLogger("dspy.clients.lm").setLevel(logging.ERROR)  # it warns of each reply that is cut off
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0, help="for all of it, about; default: 15")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random; default: 0")
    parser.add_argument("--only", choices=("kills", "endpoint", "replies", "documents"), help="one part")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        tallies = run(Path(folder), given.minutes * 60, given.seed, given.only)
    show(tallies)
    return 0 if all(tally.good for tally in tallies) else 1


def run(work: Path, seconds: float, seed: int, only: str | None = None) -> list[Tally]:
    """Runs the parts, each for its share of the seconds."""
    parts = {"kills": 0.6, "endpoint": 0.2, "replies": 0.1, "documents": 0.1}
    tallies: list[Tally] = []
    home = make_home(work / "home") if only in (None, "kills", "endpoint") else work
    for name, share in parts.items():
        if only in (None, name):
            tallies += PARTS[name](home, work / name, share * seconds, seed)
    return tallies


def show(tallies: list[Tally]) -> None:
    console = Console(width=100)
    table = Table("campaign", "tried", "lost", "wrong", "crashed")
    for tally in tallies:
        table.add_row(tally.name, *map(str, (tally.tried, tally.lost, tally.wrong, tally.crashed)))
    console.print(table)
    for tally in tallies:
        for note in tally.notes:
            console.print(note, markup=False)


PARTS = {
    "kills": kill_everywhere,
    "endpoint": ask_through_faults,
    "replies": misread_replies,
    "documents": read_documents,
}

if __name__ == "__main__":
    sys.exit(main())
