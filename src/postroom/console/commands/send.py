"""`postroom send` without a session: an outsider that nobody can answer (10.38).

With `--wait-reply` a short-lived session is opened for the answer, and the message then has its address.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from postroom import ask, present
from postroom.arguments import call_of
from postroom.console import cli
from postroom.console.commands import session
from postroom.control import replies
from postroom.core import contract
from postroom.core.message import Refusal
from postroom.errors import BadUsage
from postroom.opening import opened_session, send_as_outsider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from postroom.arguments import Values
    from postroom.core.message import Receipt


def run(args: Values, argv: Sequence[str]) -> int:
    """Sends for the session that is meant, else as an outsider; returns the exit code."""
    code = session.hand_over_if_possible(args, argv)
    return asyncio.run(send(args, argv)) if code is None else code


async def send(args: Values, argv: Sequence[str]) -> int:
    """Sends as an outsider."""
    try:
        stdin = ask.standard_input(list(argv))
    except UnicodeError:
        raise BadUsage("The text is not UTF-8.", "Convert it to UTF-8 and send it again.") from None
    except ask.Unread:
        raise BadUsage(
            "Standard input cannot be read.", "Give it a file or a pipe, or give the text itself."
        ) from None
    text = args.text
    if args.stdin:
        if isinstance(stdin, int):
            refusal = contract.too_large(stdin)
            assert refusal is not None
            return cli.refuse(refusal, as_json=args.json)
        text = (stdin or "").removesuffix("\n")
    call = call_of(args, text)
    if args.wait_reply is None:
        result = await send_as_outsider(call, msg_id=args.msg_id)
        return report(result, args)
    if args.notify_when_idle:
        reason = "the session that is opened for the answer does not stay to hear of it"
        return cli.refuse(contract.refusal("notify_not_allowed", reason=reason), as_json=args.json)
    async with opened_session("asking", kind="headless") as opened:
        since = opened.session.now()
        result = await opened.session.send_call(call, msg_id=args.msg_id)
        if isinstance(result, Refusal) or result.status == "unknown":
            return report(result, args)
        if not args.json:
            sys.stdout.write(present.receipt_text(result))
            sys.stdout.flush()
        message = await opened.session.wait_for(replies(result, since), args.wait_reply)
        document = present.receipt_document(result)
        document["reply"] = present.message_document(message) if message else None
        if message is not None:
            opened.session.confirm(opened.session.take(only=message.msg_id))
        opened.forget = opened.session.store.unread == 0
        text = (
            present.message_text(message) if message else f"No answer within {args.wait_reply:g} seconds.\n"
        )
        sys.stdout.write(present.dumps(document) if args.json else text)
        return 0 if message else 3


def report(result: Receipt | Refusal, args: Values) -> int:
    """Prints a Receipt or a Refusal."""
    if isinstance(result, Refusal):
        return cli.refuse(result, as_json=args.json)
    document = present.receipt_document(result)
    sys.stdout.write(present.dumps(document) if args.json else present.receipt_text(result))
    if result.status != "unknown":
        return 0
    sys.stderr.write("unknown\n")
    return 1
