"""`python -m benchmarks [--quick] [--json FILE] [ROW …]`: measures, prints, and asserts nothing.

Exit code 0 whether goals are reached or not; 1 where a row could not be measured at all.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    commands,
    durable,
    inprocess,
    inside,
    mailbox_file,
    report,
    rest,
    roster,
    sockets,
    tooling,
)
from benchmarks.harness import Bench, Group, Measured, measured

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

ROWS: dict[str, tuple[str, Callable[[Bench], Generator[Group]]]] = {
    "1": ("one-way send inside a process", inside.one_way),
    "2": ("message and answer inside a process", inside.message_and_answer),
    "3": ("resolving a name", inprocess.resolving),
    "3b": ("resolving among many, and a change", inprocess.growing),
    "4": ("socket, one connection a message", sockets.one_connection),
    "5": ("socket, kept connection", sockets.kept_connection),
    "6": ("socket, 256 in flight", sockets.in_flight),
    "7": ("durable accept", durable.accept),
    "8": ("mailbox, one writer", mailbox_file.appending),
    "8b": ("mailbox, eight writers", mailbox_file.together),
    "8c": ("mailbox, append to received", mailbox_file.receiving),
    "11": ("a command handed over", commands.handed_over),
    "11c": ("list, inbox, --help", commands.others),
    "12": ("the tools over MCP", tooling.over_mcp),
    "13": ("end to end", commands.end_to_end),
    "14": ("list with many", roster.listing_many),
    "15": ("a session at rest", rest.at_rest),
    "16": ("memory", rest.memory),
}
"""Row of chapter 12 → its title and what yields its groups."""


def main(argv: Sequence[str]) -> int:
    """Measures the rows that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "rows", metavar="ROW", nargs="*", help=f"which rows (default: all of {' '.join(ROWS)})"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer operations: all rows in under two minutes"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one round of very few, to see that all of it runs"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write everything there")
    args = parser.parse_args(argv)
    unknown = [row for row in args.rows if row not in ROWS]
    if unknown:
        parser.error(f"no such row: {' '.join(unknown)}")
    bench = Bench("smoke" if args.smoke else "quick" if args.quick else "full")
    begun = time.perf_counter()
    print("  ".join(f"{key}: {value}" for key, value in report.machine().items()))
    done: list[tuple[str, str, Measured]] = []
    failed: dict[str, str] = {}
    for row in args.rows or ROWS:
        title, groups = ROWS[row]
        try:
            run(bench, row, title, groups, done)
        except Exception as error:
            failed[row] = repr(error)
            print(f"\nrow {row} · {title}\n  could not be measured: {error!r}", flush=True)
    print("\n".join(report.summary(done)))
    print(f"{time.perf_counter() - begun:.0f} s in all ({bench.mode})")
    if args.json is not None:
        args.json.write_text(json.dumps(report.document(bench, done, failed), indent=1) + "\n")
    return 1 if failed else 0


def run(
    bench: Bench,
    row: str,
    title: str,
    groups: Callable[[Bench], Generator[Group]],
    done: list[tuple[str, str, Measured]],
) -> None:
    """Measures one row and prints each group as soon as it is there."""
    with closing(groups(bench)) as yielded:
        for each in measured(yielded, bench.rounds):
            done.append((row, title, each))
            print(report.heading(row, title, each))
            print("\n".join(report.table(each)), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
