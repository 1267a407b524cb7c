"""Who is behind a connection, and what is kept ready of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from postroom.core import wire
from postroom.core.message import Origin
from postroom.origins import AGAIN_MS, REMEMBERED, Answerable, Origins
from postroom.state.memory_store import MemoryStore
from postroom.transport import Evidence
from tests.room import NOW, frame_of

ADDRESS = "uds:/run/postroom/100.sock"
ALICE = Evidence("uds", 100, "start-100")


@dataclass
class Registry:
    """A directory that knows one session, counts the looks, and can be changed."""

    session: tuple[str, str] | None = ("alice-id", "alice")
    changes: int = 0
    looks: list[str] = field(default_factory=list[str])

    def mark(self) -> object:
        return self.changes

    def verify(self, address: str, pid: int, start: str) -> tuple[str, str] | None:
        self.looks.append(address)
        return self.session if (address, pid, start) == (ADDRESS, 100, "start-100") else None

    def doubt(self, address: str, pid: int, start: str) -> str:
        return "another process is there"


def said(address: str | None = ADDRESS, name: str | None = "alice") -> wire.Claims:
    """What a sender says of itself."""
    return wire.claims(frame_of(address=address, name=name))


def origins_of(registry: Registry) -> Origins:
    return Origins(registry, (1, "own"))  # pyright: ignore[reportArgumentType]


@pytest.mark.rule("04.15")
def test_a_known_process_at_its_own_address_is_verified() -> None:
    """The registry's name counts and not the one that it says; any class is a claim."""
    origin = origins_of(Registry()).of(said(name="root"), ALICE)
    assert origin == Origin(
        kind="peer",
        identity="alice-id",
        verified=True,
        name="alice",
        address=ADDRESS,
        transport="uds",
        reply_path=f"100:start-100 {ADDRESS}",
    )


@pytest.mark.rule("04.15", "05.19")
@pytest.mark.parametrize(
    ("address", "evidence"),
    [
        (ADDRESS, Evidence("uds", 101, "start-101")),  # another process
        (ADDRESS, Evidence("uds", 100, "later")),  # the same pid, used again
        (ADDRESS, Evidence("uds")),  # no evidence at all
        ("uds:/run/postroom/7.sock", ALICE),  # somebody else's address
        (None, ALICE),  # none
    ],
)
def test_anybody_else_only_claims(address: str | None, evidence: Evidence) -> None:
    """Known by its process, its name a claim, and answered by nobody: the address might be another's."""
    origin = origins_of(Registry()).of(said(address), evidence)
    assert not origin.verified
    assert origin.identity == f"process:{evidence.pid}:{evidence.start}"
    assert (origin.name, origin.address) == ("alice", None)


@pytest.mark.rule("03.5")
@pytest.mark.parametrize(
    ("mode", "stated"), [("bypass", "bypassing"), ("prompting", "prompting"), (None, None)]
)
def test_the_class_is_what_the_sender_states(mode: str | None, stated: str | None) -> None:
    content = f"<cross-session-message{f' from-mode={chr(34)}{mode}{chr(34)}' if mode else ''}>\nx\n</cross-session-message>"
    claims = wire.claims(wire.UserFrame(wire.Content(content)))
    assert origins_of(Registry()).of(claims, ALICE).stated_class == stated


def test_a_sender_is_looked_at_once_until_the_registry_changes() -> None:
    """A session that closed, and another of the same name at the same address, are two."""
    registry = Registry()
    origins = origins_of(registry)
    for _ in range(3):
        assert origins.of(said(), ALICE).identity == "alice-id"
    assert len(registry.looks) == 1
    registry.session = ("another-id", "alice")
    registry.changes += 1
    assert origins.of(said(), ALICE).identity == "another-id"
    registry.session = None
    registry.changes += 1
    assert not origins.of(said(), ALICE).verified
    assert len(registry.looks) == 3


def test_another_name_or_address_is_looked_at_anew() -> None:
    registry = Registry()
    origins = origins_of(registry)
    origins.of(said(), ALICE)
    origins.of(said(name="alicia"), ALICE)
    origins.of(said(address="uds:/x.sock"), ALICE)
    assert registry.looks == [ADDRESS, ADDRESS, "uds:/x.sock"]


@pytest.mark.rule("11.10")
def test_what_is_kept_ready_is_bounded() -> None:
    registry = Registry()
    origins = origins_of(registry)
    for number in range(REMEMBERED + 1):
        origins.of(said(name=f"name {number}"), ALICE)
    looks = len(registry.looks)
    origins.of(said(name=f"name {REMEMBERED}"), ALICE)
    assert len(registry.looks) == looks
    origins.of(said(name="name 0"), ALICE)
    assert len(registry.looks) == looks + 1


# ── whom a `from` stands for ─────────────────────────────────────────────────────────────────────

VERIFIED = Origin(kind="peer", identity="alice-id", verified=True, name="alice", address=ADDRESS)


class CountingStore(MemoryStore):
    """Counts what is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[str, int]] = []

    def remember(self, shown: str, identity: str, address: str, at: int) -> None:
        self.writes.append((shown, at))
        super().remember(shown, identity, address, at)


@pytest.mark.rule("02.8")
def test_a_sender_is_remembered_by_the_from_that_is_shown_and_by_its_address() -> None:
    store = CountingStore()
    Answerable(store).remember(VERIFIED, NOW)
    assert [shown for shown, _ in store.writes][1] == ADDRESS
    assert store.known(store.writes[0][0]) == ("alice-id", ADDRESS)
    assert store.writes[0][0].startswith("alice [")


@pytest.mark.rule("02.8", "04.15")
@pytest.mark.parametrize(
    "origin",
    [
        Origin(kind="peer", identity="process:1:2", name="alice", address=ADDRESS),
        Origin(kind="peer", identity="alice-id", verified=True, name="alice"),
        Origin(kind="system", identity="system", verified=True, address=ADDRESS),
    ],
)
def test_who_cannot_be_answered_is_not_remembered(origin: Origin) -> None:
    store = CountingStore()
    Answerable(store).remember(origin, NOW)
    assert store.writes == []


@pytest.mark.rule("11.10")
def test_it_is_written_once_and_again_after_half_a_day() -> None:
    store = CountingStore()
    answerable = Answerable(store)
    for at in (NOW, NOW + 1, NOW + AGAIN_MS - 1):
        answerable.remember(VERIFIED, at)
    assert len(store.writes) == 2
    answerable.remember(VERIFIED, NOW + AGAIN_MS)
    assert len(store.writes) == 4
    answerable.clear()
    answerable.remember(VERIFIED, NOW + AGAIN_MS)
    assert len(store.writes) == 6


@pytest.mark.rule("11.10")
def test_only_so_many_senders_are_kept_ready() -> None:
    store = CountingStore()
    answerable = Answerable(store)
    for number in range(REMEMBERED + 1):
        answerable.remember(
            Origin(kind="peer", identity=f"id-{number}", verified=True, name="x", address=ADDRESS), NOW
        )
    writes = len(store.writes)
    answerable.remember(Origin(kind="peer", identity="id-0", verified=True, name="x", address=ADDRESS), NOW)
    assert len(store.writes) == writes + 2
