"""The commands that need a session, when the short way found none: says which is missing, or tries once more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from postroom import ask, present
from postroom.console import places
from postroom.errors import NoSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values


def run(args: Values, argv: Sequence[str]) -> int:
    """Hands the command to the session that is meant; NoSession says what to do where there is none (10.38)."""
    try:
        code = hand_over(args, argv)
    except NoSession:
        if args.verb != "status" or (document := places.status_of_unreachable(args.session)) is None:
            raise
        sys.stdout.write(present.dumps(document) if args.json else present.status_text(document))
        return 0
    if code is None:
        raise places.none_meant(args.verb)
    return code


def hand_over(args: Values, argv: Sequence[str]) -> int | None:
    """Runs the command in its session's process; None when no session is meant.

    Raises NoSession for a session that is named and is not there.
    """
    meant = places.meant_session(args.session)
    return None if meant is None else asked(meant, args, argv)


def hand_over_if_possible(args: Values, argv: Sequence[str]) -> int | None:
    """The same, but None also where the session that the caller runs in cannot be asked: it has no inbox (05.6)."""
    try:
        return hand_over(args, argv)
    except NoSession:
        if args.session is not None:
            raise
        return None


def asked(meant: places.Meant, args: Values, argv: Sequence[str]) -> int:
    """Runs the command in the process of this session. Raises NoSession where that is not there."""
    try:
        line = ask.dial(meant.control_path)
    except ask.Unanswered:
        places.refuse_left_over(args.session)
        raise places.not_running(meant.session_id, args.session) from None
    return ask.hand_over(line, meant.token, list(argv))
