"""The counter, where a person deals with what may come in: held, approve, deny, explain, rules, the change of the mode.

Looking is for whoever may use the verbs. Deciding is for a person, which `door` establishes here, before the session
is asked for anything (10.39): `approve`, `deny`, `rules --revoke`, and `status --mode` from outside. What the
decisions do is the session's affair, what they look like is in `verdicts`.

How it fails: a refusal is an answer; what the session raises, `control` answers.

Weak: what stands at `terminal_of`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from postroom import present, verdicts
from postroom.core.inbound import class_of
from postroom.core.message import Refusal
from postroom.door import is_inside, refused_person
from postroom.errors import BadUsage
from postroom.state import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from postroom.call import Call
    from postroom.core.holds import Hold
    from postroom.core.message import Decided, PermissionClass
    from postroom.door import Door
    from postroom.session import Session
    from postroom.transport import Evidence

APPROVING = "Approving a held message"
DENYING = "Denying a held message"
REVOKING = "Revoking a rule"
CHANGING_MODE = "Changing the mode from outside the session"
"""What needs a person, as a refusal's sentence begins (10.39)."""


_ELSEWHERE, _FIRST = 0, 1
"""What the kernel calls a process of another pid namespace, and the first process of this one."""


class Office(Protocol):
    """What stands behind the counter; `control.Control` is one.

    Attributes:
        session: whose verbs.
        door: who may speak.
        terminal: reads the controlling terminal of a connecting process; `terminal_of`.
    """

    session: Session
    door: Door
    terminal: Callable[[Evidence], int]


def terminal_of(evidence: Evidence) -> int:
    """The controlling terminal of a connecting process, as the kernel tells it now: its device number, 0 for none.

    A process that has left its family (its parent exited) shows no ancestors that could be a session's. So the
    process at the head of its terminal's session, a person's shell as a rule, must be among them; else it has no
    terminal of its own (10.39). In a container the head may be the first process, which adopts every orphan, or live in
    another pid namespace, where it cannot be seen. There the process must also be in front at the terminal, in a process
    group of its own or of an ancestor: what an agent's shell left behind is in its session's, or in the background.

    Weak: a program that makes itself a terminal, as `script` does, and then leaves its family, passes.
    """
    process = processes.look(evidence.pid)
    if process is None or process.start != evidence.start:
        return 0
    try:
        head, group = os.getsid(evidence.pid), os.getpgid(evidence.pid)
    except OSError:
        return 0
    family = [pid for pid, _ in evidence.ancestry]
    if head in (_ELSEWHERE, _FIRST):
        own = group in family and group != _FIRST
        return process.tty if own and group == process.foreground else 0
    return process.tty if head in family else 0


def refused_here(office: Office, call: Call, action: str) -> Refusal | None:
    """Judges whether whoever asks is a person (10.39); None takes it for one."""
    return refused_person(office.door, call.evidence, office.terminal(call.evidence), action)


# ── looking ──────────────────────────────────────────────────────────────────────────────────────


async def held(office: Office, call: Call) -> None:
    """`held`, `held --follow` (10.5)."""
    session = office.session
    seen: set[int] | None = None
    while not call.ended:
        holds = session.held()
        new = [hold for hold in holds if seen is None or hold.row not in seen]
        if new or seen is None:
            call.part(_shown(session, new, as_json=call.args.json, first=seen is None))
        seen = {hold.row for hold in holds}
        if not call.args.follow or not await session.changed(None):
            break
    if not call.ended:
        call.done()


def _shown(session: Session, holds: Sequence[Hold], *, as_json: bool, first: bool) -> str:
    if as_json:
        return present.dumps(verdicts.held_document(holds))
    if not first:
        receiver = session.standing.permission_class
        return "".join(
            "\n" + verdicts.hold_text(hold, session.name, session.now(), receiver=receiver) for hold in holds
        )
    return verdicts.held_text(holds, session.status(), session.now())


async def explain(office: Office, call: Call) -> None:
    """`explain MSG_ID`, `explain [--from NAME] [--mode CLASS]` (10.10)."""
    args = call.args
    if args.msg_id is not None:
        if args.from_ is not None or args.mode is not None:
            raise BadUsage(
                "postroom explain: a message that came is explained as it is, without --from and --mode.",
                "Leave out MSG_ID to suppose one, or the options.",
            )
        explanation = office.session.explain(args.msg_id)
        subject = f"Message {args.msg_id}"
    else:
        stated = stated_by(args.mode)
        explanation = office.session.explain_supposed(args.from_, stated)
        whose = f"from {args.from_}" if args.from_ else "from somebody without a name"
        subject = f"A message {whose} that states {stated or 'no class'}"
    if isinstance(explanation, Refusal):
        return call.refused(explanation)
    return call.answer(
        verdicts.explanation_document(explanation), verdicts.explanation_text(subject, explanation)
    )


def stated_by(word: str | None) -> PermissionClass | None:
    """The class that a class, or a mode of that class, states; None for `none` and for nothing said (10.10)."""
    if word in (None, "none"):
        return None
    found = class_of(word) if word not in ("bypassing", "prompting") else word
    return None if found == "unknown" else found


async def rules(office: Office, call: Call) -> None:
    """`rules`, `rules --revoke ID` (10.11)."""
    session = office.session
    said = ""
    if call.args.revoke is not None:
        if refusal := refused_here(office, call, REVOKING):
            return call.refused(refusal)
        gone = session.revoke(call.args.revoke)
        if isinstance(gone, Refusal):
            return call.refused(gone)
        said = verdicts.revoked_text(gone)
    found = session.rules()
    return call.answer(
        verdicts.rules_document(found), said + verdicts.rules_text(found, session.name, alone=not said)
    )


# ── deciding ─────────────────────────────────────────────────────────────────────────────────────


async def approve(office: Office, call: Call) -> None:
    """`approve ID [--always] [--note TEXT]` (10.5, 03.41, 03.48)."""
    if refusal := refused_here(office, call, APPROVING):
        return call.refused(refusal)
    args, session = call.args, office.session
    holds = session.held()
    decided = session.approve(args.id, always=args.always, note=args.note or None)
    if isinstance(decided, Refusal) and decided.code == "invalid_record":  # nobody to accept always
        decided = replace(decided, hint="Approve this one alone, without --always.")
    return _decided(call, decided, holds, session)


async def deny(office: Office, call: Call) -> None:
    """`deny ID [--note TEXT]` (10.5, 03.42)."""
    if refusal := refused_here(office, call, DENYING):
        return call.refused(refusal)
    session = office.session
    holds = session.held()
    return _decided(call, session.deny(call.args.id, note=call.args.note or None), holds, session)


def _decided(call: Call, decided: Decided | Refusal, holds: Sequence[Hold], session: Session) -> None:
    """Answers what became of a decision; `holds` are those of before it."""
    if isinstance(decided, Refusal):
        return call.refused(decided)
    hold = next((hold for hold in holds if hold.message.msg_id == decided.msg_id), None)
    always = decided.state == "accepted" and call.args.always
    setting = session.standing.settings.inbound
    text = verdicts.decided_text(
        decided,
        hold,
        always=always,
        more=max(0, len(holds) - len(session.held()) - 1) if always else 0,
        above=setting.value if setting is not None else "",
    )
    return call.answer(verdicts.decided_document(decided), text)


def refused_mode(office: Office, call: Call) -> Refusal | None:
    """`status --mode MODE`: changes the mode, or says why not (10.6, 03.43).

    What comes from inside the session is a child's report, which lets in no hold; a person's does.
    """
    inside = is_inside(office.door, office.session.id, call.token, call.evidence)
    if not inside and (refusal := refused_here(office, call, CHANGING_MODE)):
        return refusal
    office.session.set_mode(call.args.mode, by="child" if inside else "person")
    return None
