"""How a message goes to whom it is meant for: delivered, with a resume, or not at all (chapter 02, 06.13).

`route` is a ladder; the first rung that applies answers:

1. another session                → by a transport
2. the main conversation          → into its queue (06.8)
3. stopped by the user            → `stopped_by_user`: its work counts as cancelled (02.24)
4. a resume of it is under way    → joins that (02.27)
5. live                           → into its pending list (02.22)
6. nobody can resume it here      → `resume_failed`
7. its metadata or transcript is unfit → `resume_failed` (02.26)
8. completed, failed or killed    → resumes it (02.23)

An agent that was evicted is one whose life was read from disk: the same rungs. It performs nothing, and knows no name
beyond the one that its sentences say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from postroom.core.refusals import refusal

if TYPE_CHECKING:
    from postroom.core.message import Refusal
    from postroom.core.runs import AgentState

NO_RESUME = "this program gives no way to resume it"


class Deliver(NamedTuple):
    """At once: `main`, an agent's `pending` list, or a `transport`."""

    how: Literal["main", "pending", "transport"]


class Resume(NamedTuple):
    """By a resume that this message begins."""


class Join(NamedTuple):
    """With a resume that is under way."""


if TYPE_CHECKING:
    Route = Deliver | Resume | Join | Refusal

TRANSPORT, MAIN, PENDING = Deliver("transport"), Deliver("main"), Deliver("pending")
RESUME, JOIN = Resume(), Join()


class Recipient(NamedTuple):
    """Who was resolved, as far as the way to it depends on that.

    Attributes:
        kind: another session, this session's main conversation, or an agent in it.
        name: what it is called, for a sentence.
        state: an agent's.
        stopped_by_user: nothing resumes it.
        resuming: a resume of it is under way.
        can_resume: its host can resume agents.
        flaw: why its metadata or transcript cannot be used; empty: nothing is wrong with them.
    """

    kind: Literal["main", "agent", "session"]
    name: str = ""
    state: AgentState = "live"
    stopped_by_user: bool = False
    resuming: bool = False
    can_resume: bool = True
    flaw: str = ""


def route(to: Recipient) -> Route:
    """Says how a message goes to somebody; see the ladder above."""
    if to.kind != "agent":
        return MAIN if to.kind == "main" else TRANSPORT
    if to.stopped_by_user:
        return refusal("stopped_by_user", name=to.name)
    if to.resuming:
        return JOIN
    if to.state == "live":
        return PENDING
    if not to.can_resume:
        return refusal("resume_failed", name=to.name, reason=NO_RESUME)
    if to.flaw:
        return refusal("resume_failed", name=to.name, reason=to.flaw)
    return RESUME
