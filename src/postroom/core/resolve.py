"""Who is meant: the ladder of chapter 02, and the pins of a conversation.

What it decides: `resolve(to, index)` answers one candidate or one refusal. The rungs, first answer wins:

0. a `from` value that this session received: the identity recorded with that message (02.8)
1. this session alone: `main`; a raw agent id or a live agent's exact name; a teammate's exact name (02.9)
2. this session alone: the normal form of an agent's or teammate's name, if exactly one has it (02.10)
3. `name [ref]`: whoever has that ref, if it is called so (02.11)
4. everybody: by normal form, else by a former name, else by a prefix of three characters or more (02.12)

What rungs 1, 2 and 4 found is then judged: several answer (02.14, 02.19), a pin says otherwise (02.18), a place
could not be checked (02.14). The caller itself counts only when nobody else matches (01.20); observers never do.

What it never does: I/O, choose between two candidates, follow a path that a text named, or take a near name. It
does not refuse a send to oneself: it answers the caller's own candidate, and the session says
`cannot_message_self`.

How it fails: never by an exception. Refusals: `not_found`, `ambiguous`, `stale_ref`, `partial_index`,
`pin_mismatch`. Their texts show names, refs, kinds and folders, and no socket path.

What is weak: an ambiguous prefix is counted out, so it costs its number of matches.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Literal, NamedTuple

from postroom.core.address import (
    MAIN,
    MAX_NAME,
    UDS,
    check_name,
    clean_line,
    confusable,
    look_alike,
    normal_form,
    ref_of,
    shown,
    split_ref,
)
from postroom.core.index import MIN_PREFIX, completion
from postroom.core.index import Candidate as Candidate
from postroom.core.index import Index as Index
from postroom.core.index import Resolved as Resolved
from postroom.core.index import Unchecked as Unchecked
from postroom.core.message import Near, Pin, Refusal, iso
from postroom.errors import InvalidName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_SHOWN = 3
"""Candidates that one refusal names; the rest is a number (01.30)."""

MAX_TEXT = 80
"""Characters of a folder, machine, place or reason in a sentence: those words are claims from elsewhere."""

_How = Literal["near", "name", "former", "prefix", "pin"]


class Ended(NamedTuple):
    """A session that has ended and whose folder is still there: its name, and when in epoch milliseconds (02.13)."""

    name: str
    at: int


# ── pins ─────────────────────────────────────────────────────────────────────────────────────────


class Pins:
    """What the names meant so far in one conversation: normal form → pin (02.17).

    A new conversation begins with an empty one (02.19). It is kept by `items` and made again from them, or
    from the results in a transcript by `restore`, in their order.
    """

    __slots__ = ("by_form",)

    def __init__(self, items: Iterable[tuple[str, Pin]] = ()) -> None:
        self.by_form = dict(items)
        """To be read; it changes by `made` and `restore` alone."""

    def __len__(self) -> int:
        return len(self.by_form)

    def items(self) -> tuple[tuple[str, Pin], ...]:
        """Every normal form with its pin, for the store."""
        return tuple(self.by_form.items())

    def judge(self, *forms: str) -> Pin | None:
        """What the first of these normal forms that has a pin means; None when none has one."""
        return next((self.by_form[form] for form in forms if form in self.by_form), None)

    def made(self, to: str, resolved: Resolved) -> tuple[tuple[str, Pin], ...]:
        """Records a plain send that succeeded (02.17).

        An explicit target so moves the pin of its name (02.18). An address or a raw id says nothing about a
        name and pins none. A teammate is pinned only by its ref.

        Args:
            to: the target as it was written.
            resolved: what `resolve` answered to it.

        Returns:
            The pin that this send made or confirmed under each normal form; nothing where there is none.
        """
        candidate = resolved.candidate
        by_id = candidate.kind == "agent" and to.strip() == candidate.identity
        if not resolved.renames_pin and (by_id or to.strip().startswith(UDS) or candidate.kind == "teammate"):
            return ()
        pin = Pin(name=candidate.name, identity=candidate.identity)
        return self._write(to, pin)

    def restore(self, to: str, pin: Pin) -> None:
        """Repeats a send from a transcript: its target as it was written and the pin of its result (02.17)."""
        self._write(to, pin)

    def _write(self, to: str, pin: Pin) -> tuple[tuple[str, Pin], ...]:
        """Pins the name as it was typed, and the full name where that means nobody else so far (02.12)."""
        split = split_ref(to)
        typed, full = normal_form(to if split is None else split[0]), normal_form(pin.name)
        known = self.by_form.get(full)
        forms = [typed] if typed else []
        if typed != full and (not typed or known is None or known.identity == pin.identity):
            forms.append(full)
        self.by_form.update(dict.fromkeys(forms, pin))
        return tuple((form, pin) for form in forms)


# ── the question ─────────────────────────────────────────────────────────────────────────────────

_NOTHING: Mapping[str, str] = {}
_NO_PINS: Mapping[str, Pin] = {}


def resolve(
    to: str,
    index: Index,
    *,
    received: Mapping[str, str] = _NOTHING,
    pins: Pins | None = None,
    ended: Callable[[str], tuple[str, int] | None] | None = None,
    caller: str = "",
) -> Resolved | Refusal:
    """Answers who is meant: one candidate or one refusal (02.8 to 02.20).

    Args:
        to: the target as the caller wrote it.
        index: the candidates and the places that could not be checked.
        received: each `from` value that this session was shown, and each `uds:` address that it received,
            with the identity recorded for that message (02.8).
        pins: those of this conversation.
        ended: says for a name or an identity what its session was called and when it ended (`Ended`), while
            its folder is there (02.13).
        caller: the identity of the caller, where it is not the candidate that is marked `own`.

    Returns:
        `Resolved`, or a `Refusal` with the code `not_found`, `ambiguous`, `stale_ref`, `partial_index` or
        `pin_mismatch`.
    """
    pinned = _NO_PINS if pins is None else pins.by_form
    ready = index.direct.get(to)
    if ready is not None:
        if not (pinned or received or caller):
            return ready
        form = ready.form
    else:
        form = normal_form(to)
        if form != to:
            ready = index.direct.get(form)
        if ready is None:
            ready = index.completed(form)
    # A finished answer stands, unless a received address, a pin or the caller is in the way.
    if ready is not None and not (received and to in received):
        pin = pinned.get(form)
        if pin is None and form is not ready.form:
            pin = pinned.get(ready.form)
        if pin is None and not caller:
            return ready
        identity = ready.candidate.identity
        if identity != caller and (pin is None or pin.identity == identity):
            return ready
    ask = _Question(to.strip(), form, index, received, pins, ended, caller)
    return _recorded(ask) or _inside(ask) or _selected(ask) or _called(ask)


class _Question:
    """One target and everything that its answer may depend on."""

    __slots__ = ("caller", "ended", "form", "index", "pins", "received", "to")

    def __init__(
        self,
        to: str,
        form: str,
        index: Index,
        received: Mapping[str, str],
        pins: Pins | None,
        ended: Callable[[str], tuple[str, int] | None] | None,
        caller: str,
    ) -> None:
        self.to = to
        self.form = form
        self.index = index
        self.received = received
        self.pins = pins
        self.ended = ended
        self.caller = caller

    def others(self, found: Iterable[Candidate]) -> list[Candidate]:
        """Without the caller."""
        return [one for one in found if not one.own and one.identity != self.caller]

    def pinned(self, *forms: str) -> Pin | None:
        return None if self.pins is None else self.pins.judge(*forms)

    def means(self, pin: Pin, candidate: Candidate) -> bool:
        """The pin's identity is this candidate, by itself or as the same session seen beyond."""
        return pin.identity == candidate.identity or self.index.get(pin.identity) is candidate

    def quoted(self) -> str:
        return _quoted(self.to)

    def when(self, key: str) -> str:
        """A sentence about a session that ended; empty when none is known by this name or identity."""
        known = None if self.ended is None else self.ended(key)
        return (
            ""
            if known is None
            else f"{clean_line(known[0], MAX_NAME)} has ended; its last sign of life was at {iso(known[1])}."
        )


# ── the rungs ────────────────────────────────────────────────────────────────────────────────────


def _recorded(ask: _Question) -> Resolved | Refusal | None:
    """Rung 0: a `from` value means the identity that its message had, and nobody else (02.8)."""
    identity = ask.received.get(ask.to)
    split = split_ref(ask.to)
    if identity is None:
        if split is None and ask.to.startswith(UDS):
            return _not_found("That address belongs to no message that was received here.")
        return None
    candidate = ask.index.get(identity)
    if candidate is None or candidate.observer:
        return _not_found(ask.when(identity) or "The sender of that message cannot be found any more.")
    if split is None:
        return Resolved(candidate, _deceptions(ask, candidate))
    return _explicit(ask, candidate, split[0])


def _inside(ask: _Question) -> Resolved | Refusal | None:
    """Rungs 1 and 2: this session alone (02.9, 02.10); a namesake elsewhere is a warning (02.15)."""
    index, to = ask.index, ask.to
    inside = [one for one in index.named(ask.form) if one.near]
    if ask.form == MAIN:
        # The reserved word means this session's main conversation, and no neighbour that took it.
        return _judged(ask, inside, "near") if inside else _not_found("There is no main conversation here.")
    agent = index.get(to)
    if agent is not None and agent.near and agent.kind == "agent" and not agent.observer:
        return Resolved(agent, _deceptions(ask, agent))
    inside = ask.others(inside)
    for found in (
        [one for one in inside if one.name == to and one.kind != "teammate" and one.live],
        [one for one in inside if one.name == to and one.kind == "teammate"],
        inside,
    ):
        if len(found) == 1:
            return _judged(ask, found, "near")
    return None


def _selected(ask: _Question) -> Resolved | Refusal | None:
    """Rung 3: `name [ref]` means whoever has the ref and that name; a bare `[ref]` needs none (02.11, 02.14)."""
    split = split_ref(ask.to)
    if split is None:
        return None
    name, ref = split
    form = normal_form(name)
    holders = ask.index.with_ref(ref)
    found = [
        one for one in holders if not name or form in {normal_form(each) for each in (one.name, *one.former)}
    ]
    found = ask.others(found) or found
    if not found:
        return _stale_ref(ask, name, ref, holders)
    return _explicit(ask, found[0], name) if len(found) == 1 else _ambiguous(ask, found)


def _called(ask: _Question) -> Resolved | Refusal:
    """Rung 4: everybody, by name, else by a former name, else by a prefix (02.12)."""
    index, form = ask.index, ask.form
    own: Sequence[Candidate] = ()
    look_ups: tuple[tuple[_How, Callable[[str], Sequence[Candidate]]], ...] = (
        ("name", index.named),
        ("former", index.formerly),
        ("prefix", index.beginning),
    )
    for how, look_up in look_ups if len(form) >= MIN_PREFIX else look_ups[:2]:
        found = look_up(form)
        others = ask.others(found)
        if others:
            return _judged(ask, others, how)
        own = own or found
    pin = ask.pinned(form)
    meant = None if pin is None else index.get(pin.identity)
    if meant is not None and not meant.observer:
        # Renamed, and the old name forgotten: the pin stays valid (02.4).
        return _judged(ask, [meant], "pin")
    if own:
        myself = min(own, key=lambda one: one.identity)
        return Resolved(myself, form=normal_form(myself.name))
    return _nobody(ask, pin)


# ── the judgement ────────────────────────────────────────────────────────────────────────────────


def _judged(ask: _Question, found: Sequence[Candidate], how: _How) -> Resolved | Refusal:
    """What was found by a name: several, against a pin, in doubt, or taken (02.14 to 02.20)."""
    pin = ask.pinned(ask.form)
    warnings: list[str] = []
    candidate = found[0]
    if len(found) > 1:
        meant = [one for one in found if pin is not None and ask.means(pin, one)]
        if not meant:
            return _ambiguous(ask, found)
        candidate = meant[0]
        rest = _listed(ask, [one for one in found if one is not candidate])
        warnings.append(f"{ask.quoted()} is taken as before in this conversation; it could also be {rest}.")
    else:
        # The pin of the full name counts where the name as it was typed has none.
        pin = pin or ask.pinned(normal_form(candidate.name))
        if pin is not None and not ask.means(pin, candidate):
            return _pin_mismatch(ask, pin, candidate)
    places = "" if how == "near" else _places(ask.index.unchecked)
    if places:
        if pin is None and not (how == "name" and candidate.local):
            return _partial_index(ask, candidate, places)
        warnings.append(f"{places}; somebody there may have the same name.")
    warnings += _HOW_SAID[how](ask, candidate)
    warnings += _deceptions(ask, candidate)
    return Resolved(candidate, tuple(warnings), form=normal_form(candidate.name))


def _explicit(ask: _Question, candidate: Candidate, name: str) -> Resolved:
    """Somebody whom a ref selected: the pin of the name moves, and no place is in doubt (02.14, 02.18)."""
    renamed = name and normal_form(name) != normal_form(candidate.name)
    warnings = _said_renamed(name, candidate) if renamed else ()
    warnings = (*warnings, *_deceptions(ask, candidate))
    return Resolved(candidate, warnings, renames_pin=True, form=normal_form(candidate.name))


def _name_of(candidate: Candidate) -> str:
    return clean_line(candidate.name, MAX_NAME)


def _quoted(to: str) -> str:
    """The target in a sentence; one with a slash may be a path, which is not repeated."""
    return "that target" if "/" in to else f"'{clean_line(to, MAX_NAME)}'"


def _said_near(ask: _Question, candidate: Candidate) -> tuple[str, ...]:
    """The near one was taken although somebody else is called the same (02.15)."""
    rest = [one for one in ask.others(ask.index.named(ask.form)) if one is not candidate and one.live]
    said = f"{_name_of(candidate)} inside this session is taken; {_listed(ask, rest)} has that name too."
    return (said,) if rest else ()


def _said_renamed(name: str, candidate: Candidate) -> tuple[str, ...]:
    return (f"{clean_line(name, MAX_NAME)} is now called {_name_of(candidate)}.",)


_HOW_SAID: Mapping[_How, Callable[[_Question, Candidate], tuple[str, ...]]] = {
    "near": _said_near,
    "name": lambda ask, candidate: (),
    "former": lambda ask, candidate: _said_renamed(ask.to, candidate),
    "prefix": lambda ask, candidate: (completion(candidate),),
    "pin": lambda ask, candidate: _said_renamed(ask.to, candidate),
}
"""How a candidate was found → what its sender is told about that."""


def _deceptions(ask: _Question, candidate: Candidate) -> tuple[str, ...]:
    """The warning about a name that deceives the eye (02.6)."""
    latin = look_alike(candidate.name)
    others = () if latin is None else (one.name for one in ask.index.named(latin))
    warning = confusable(candidate.name, others)
    return () if warning is None else (warning,)


def _places(unchecked: tuple[Unchecked, ...]) -> str:
    """What could not be checked, as the beginning of a sentence; empty when everything was."""
    each = (f"{clean_line(one.place, MAX_TEXT)} ({clean_line(one.reason, MAX_TEXT)})" for one in unchecked)
    return f"Could not check {', '.join(each)}" if unchecked else ""


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────

_LOOK = "List the agents (`postroom list`) to see who can be written to."


def _near(ask: _Question, candidate: Candidate) -> Near:
    """A candidate with what tells it apart: its type, else where it is (01.30)."""
    where = f"type {candidate.type}" if candidate.type else candidate.where
    return Near(
        name=_name_of(candidate),
        ref=ask.index.ref(candidate),
        kind=candidate.kind,
        where=clean_line(where, MAX_TEXT),
    )


def _best(ask: _Question, found: Iterable[Candidate]) -> tuple[Near, ...]:
    """Up to three, best match first: the very name, then inside, here, running, and the shorter name."""
    ranked = nsmallest(
        MAX_SHOWN,
        found,
        key=lambda one: (
            *(one.name != ask.to, not one.near, not one.local, not one.live),
            *(len(one.name), one.name, one.identity),
        ),
    )
    return tuple(_near(ask, one) for one in ranked)


def _selector(near: Near) -> str:
    return shown(near.name, near.ref)


def _described(near: Near) -> str:
    """`api [1f2e3d] (session, /srv/api)`."""
    return f"{_selector(near)} ({near.kind}{', ' if near.where else ''}{near.where})"


def _enumerated(best: Sequence[Near], total: int) -> str:
    """Those that are named out of `total`, and how many more there are."""
    more = f" and {total - len(best)} more" if total > len(best) else ""
    return ", ".join(_described(near) for near in best) + more


def _listed(ask: _Question, found: Sequence[Candidate]) -> str:
    return _enumerated(_best(ask, found), len(found))


def _not_found(message: str, hint: str = _LOOK, candidates: tuple[Near, ...] = (), more: int = 0) -> Refusal:
    return Refusal(code="not_found", message=message, hint=hint, candidates=candidates, more=more)


def _ambiguous(ask: _Question, found: Sequence[Candidate]) -> Refusal:
    """Several answer, and nothing says which (02.14)."""
    best = _best(ask, found)
    places = _places(ask.index.unchecked)
    return Refusal(
        code="ambiguous",
        message=f"{len(found)} candidates answer to {ask.quoted()}.{f' {places}.' if places else ''}",
        hint=f"Write to one of them by its name and ref: {_enumerated(best, len(found))}.",
        candidates=best,
        more=len(found) - len(best),
    )


def _stale_ref(ask: _Question, name: str, ref: str, holders: Sequence[Candidate]) -> Refusal:
    """The ref is nobody's, or belongs to somebody of another name (02.11)."""
    bearers = ask.others(ask.index.named(normal_form(name)))
    having = _best(ask, holders)
    best = (*having, *_best(ask, bearers))[:MAX_SHOWN]
    total = len(holders) + len(bearers)
    if having:
        now = " and ".join(_selector(near) for near in having)
        message = f"The ref [{ref}] now belongs to {now}, which is not called {clean_line(name, MAX_NAME)}."
    else:
        message = f"Nobody has the ref [{ref}] now. {ask.when(name)}".rstrip()
    hint = f"Write to whom you mean by name and ref: {_enumerated(best, total)}." if best else _LOOK
    return Refusal(code="stale_ref", message=message, hint=hint, candidates=best, more=total - len(best))


def _partial_index(ask: _Question, candidate: Candidate, places: str) -> Refusal:
    """A name alone is not enough while somebody unseen may have it (02.14)."""
    near = _near(ask, candidate)
    return Refusal(
        code="partial_index",
        message=f"{places}, and {ask.quoted()} may mean somebody there.",
        hint=f"If {_described(near)} is meant, repeat with {_selector(near)}.",
        candidates=(near,),
    )


def _pin_mismatch(ask: _Question, pin: Pin, candidate: Candidate) -> Refusal:
    """The name has come to somebody else in the middle of a conversation (02.18, 02.20)."""
    now = _near(ask, candidate)
    meant = ask.index.get(pin.identity)
    if meant is None or meant.observer:
        candidates = (now,)
        before = shown(clean_line(pin.name, MAX_NAME), ref_of(pin.identity))
        further, instead = f" {ask.when(pin.identity) or 'The one meant before has ended.'}", ""
    else:
        candidates = (now, _near(ask, meant))
        before = _selector(candidates[1])
        further, instead = "", f", and for the one meant before {before}"
    return Refusal(
        code="pin_mismatch",
        message=f"In this conversation {ask.quoted()} meant {before}; now {_described(now)} answers to it.{further}",
        hint=f"Write to {_selector(now)} if the new one is meant{instead}.",
        candidates=candidates,
    )


def _nobody(ask: _Question, pin: Pin | None) -> Refusal:
    """Nobody answers: why, and who may have been meant; a hint is never chosen (02.13, 02.14, 02.20)."""
    message = f"Nobody answers to {ask.quoted()}."
    if pin is not None:
        gone = ask.when(pin.identity) or f"{clean_line(pin.name, MAX_NAME)}, whom it meant here, has ended."
        message = f"{message} {gone}"
    elif gone := ask.when(ask.to):
        message = f"{message} {gone}"
        return _not_found(
            message, f'Its mail is kept: `postroom open --resume "{clean_line(ask.to, MAX_NAME)}" --detach`.'
        )
    if places := _places(ask.index.unchecked):
        message = f"{message} {places}."
    if of_type := ask.others(ask.index.of_type(ask.form)):
        best = _best(ask, of_type)
        words = " or ".join(f"{near.name} ({near.where})" for near in best)
        hint = f"That is a type and not a name: did you mean {words}?"
        return _not_found(message, hint, best, len(of_type) - len(best))
    others = (ask.others(ask.index.named(form)) for form in ask.index.near_names(ask.form))
    best = tuple(near for namesakes in others for near in _best(ask, namesakes))[:MAX_SHOWN]
    if best:
        return _not_found(message, f"Did you mean {' or '.join(_selector(near) for near in best)}?", best)
    return _not_found(message, _broken_rule(ask.to) + _LOOK)


def _broken_rule(to: str) -> str:
    """The rule that keeps a target from being anybody's name, so that nobody goes on looking; else empty."""
    try:
        check_name(to, lead=True)
    except InvalidName as error:
        return f"{error.message} "
    return ""
