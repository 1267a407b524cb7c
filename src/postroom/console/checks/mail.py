"""What is let in, what is held and what waits: mail that arrived and that no agent has read (03.10 to 03.21, 09.16).

Findings from what the sessions themselves answered; nothing is looked at here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroom.console.checks.finding import Finding, claimed, counted, found, several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from postroom.console.checks.sessions import Live

WAITED_SECONDS = 600
"""Mail that has waited longer than ten minutes waits behind a door that nobody answers (09.16)."""

_ASKING = frozenset({"interactive", "bg"})
"""Kinds of session in front of which somebody sits, or can come to sit."""

_ACCEPT = 'set "crossSessionInbound": "accept" in your own settings'


def _asked(sessions: Sequence[Live]) -> Iterator[tuple[Live, dict[str, Any]]]:
    """The sessions that answered, with their status."""
    for each in sessions:
        if each.status is not None:
            yield each, dict(each.status)


def _setting(status: dict[str, Any]) -> tuple[str | None, str]:
    inbound: dict[str, Any] = status.get("inbound") or {}
    return inbound.get("value"), str(inbound.get("scope", "default"))


def settings(sessions: Sequence[Live]) -> Iterator[Finding]:
    """Sessions that refuse or hold by a setting, or have a half of messaging turned off (03.10, 03.11, 03.33)."""
    for each, status in _asked(sessions):
        value, scope = _setting(status)
        if value == "refuse":
            yield found(
                "inbound-refuse",
                f"{each.called} refuses everything that is sent to it, and tells nobody: a {claimed(scope)} setting"
                " says so.",
                f'Change "crossSessionInbound" there if that is not meant; `postroom --session {each.named} explain`'
                " shows what decides.",
            )
        elif value == "hold":
            yield found(
                "inbound-hold",
                f"{each.called} holds everything that is sent to it until a person decides: a {claimed(scope)} setting"
                " says so, or cannot be read.",
                f'`postroom --session {each.named} held` shows what waits. Else change "crossSessionInbound" there.',
            )
        for half, does in (("send", "send"), ("receive", "receive")):
            if half in status.get("off", ()) and not (half == "receive" and value == "refuse"):
                yield found(
                    "messaging-off",
                    f"{each.called} cannot {does} messages: settings have turned that off.",
                    "Change permissions.deny or crossSessionInbound in them if that is not meant.",
                )


def defaults(sessions: Sequence[Live]) -> Iterator[Finding]:
    """Sessions that hold by the default rule, because of the permission classes (03.15 to 03.21, 10.8)."""
    open_to = [(each, status) for each, status in _asked(sessions) if _setting(status)[0] is None]
    for each, status in open_to:
        if any("nobody can be asked here" in problem for problem in status.get("problems", ())):
            yield found(
                "nobody-asked",
                f"{each.called} never asks for permission and nobody can be asked in front of it: what sessions send"
                " that do ask is held there, and ends unread.",
                f"If they are to reach it, {_ACCEPT}, or open it with --settings that say so.",
            )
        elif status.get("class") == "unknown":
            yield found(
                "mode-unknown",
                f"The permission mode of {each.called} ({claimed(str(status.get('mode')))}) is not known: it holds"
                " everything.",
                f"`postroom --session {each.named} status --mode MODE` sets it.",
            )
    classes = {each.id: status.get("class") for each, status in _asked(sessions)}
    names = {each.id: each.name for each in sessions}
    told: list[str] = []
    for each, status in open_to:
        mine = status.get("class")
        if mine not in ("bypassing", "prompting"):
            continue
        others = sorted(
            names[other]
            for other, theirs in classes.items()
            if other != each.id and theirs in ("bypassing", "prompting") and theirs != mine
        )
        if others:
            told.append(
                f"{each.called} ({mine}) holds what {several(others)} {'sends' if len(others) == 1 else 'send'}"
            )
    told.sort()  # they were found in the order of their process numbers
    if told:
        yield found(
            "classes-differ",
            f"By default a session holds what one of the other permission class sends: {'; '.join(told[:_TOLD])}"
            + (f"; and {len(told) - _TOLD} more sessions the same." if len(told) > _TOLD else "."),
            f"Approve one with --always, or {_ACCEPT}.",
        )


_TOLD = 3
"""Sessions that are named one by one; on a desk of hundreds the rest is a number."""


def waiting(sessions: Sequence[Live]) -> Iterator[Finding]:
    """Mail that waits for a person, or for an agent that does not come (03.37, 03.64, 09.16)."""
    for each, status in _asked(sessions):
        if held := int(status.get("held") or 0):
            yield found(
                "held",
                f"{counted(held, 'message')} {'is' if held == 1 else 'are'} held for {each.called} and"
                f" {'waits' if held == 1 else 'wait'} for a person.",
                f"`postroom --session {each.named} held` shows them, `approve ID` lets one in.",
            )
        unread, most = int(status.get("unread") or 0), int(status.get("most") or 0)
        if most and unread >= most:
            yield found(
                "inbox-full",
                f"The inbox of {each.called} is full ({unread:,} unread, and {most:,} is its limit): whoever writes to"
                " it is refused.",
                f"`postroom --session {each.named} inbox --take` takes them; limits.maxUnread allows more.",
            )
        waited = int(status.get("waited") or 0)
        if waited > WAITED_SECONDS:
            yield found(
                "mail-waiting",
                f"Mail for {each.called} has waited for {waited // 60:,} minutes ({counted(unread, 'message')} unread)"
                f" behind {_behind(status)}.",
                f"`postroom --session {each.named} inbox --take` takes it. To wake the agent: {_wake(each, status)}",
            )


def _behind(status: dict[str, Any]) -> str:
    """The doors of a session, as what the mail waits behind."""
    shown = [
        f"{door['name']} ({claimed(str(door.get('why') or 'there'))})" for door in status.get("doors", ())
    ]
    return f"doors that nobody answers: {'; '.join(shown)}" if shown else "a door that nobody answers"


def _wake(each: Live, status: dict[str, Any]) -> str:
    needs = [
        str(door.get("needs", ""))
        for door in status.get("doors", ())
        if door.get("wakes") and door.get("why")
    ]
    if needs and needs[0]:
        return claimed(needs[0])
    return (
        "let it run `postroom wait`, or type something to it: its next tool call brings the mail."
        if (each.client is not None)
        else "let it run `postroom wait`."
    )


CHECKS: tuple[Callable[[Sequence[Live]], Iterator[Finding]], ...] = (settings, defaults, waiting)
