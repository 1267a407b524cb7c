"""What a person reads inside the client of a message that is held (09.9)."""

from __future__ import annotations

import asyncio
import time
from typing import Any, get_args

import pytest

from postroom.clients.asking import SCHEMA, clock, question
from postroom.core.inbound import ReceiverClass
from tests.room import Room


async def asked(mode: str, sender: str, **more: Any) -> str:
    """The question about a message of a session in one mode to one in another."""
    room = Room()
    async with room.open("bob", mode=mode, **more) as bob, room.open("alice", mode=sender) as alice:
        await alice.send("bob", "let me in", summary="s")
        [hold] = bob.held()
        return question(hold, bob).replace(alice.ref, "REF")


@pytest.mark.rule("09.9")
@pytest.mark.parametrize(
    ("mode", "sender", "says"),
    [
        ("default", "yolo", "its sender acts without asking anybody, and this session asks before it acts"),
        ("yolo", "default", "its sender asks before it acts, and this session acts without asking anybody"),
        (
            "yolo",
            "odd",
            "its sender does not say whether it asks before it acts, and this session acts without",
        ),
        ("odd", "default", "the permission mode of this session is not known"),
    ],
)
def test_it_says_who_wrote_what_and_why_it_waits_in_plain_words(mode: str, sender: str, says: str) -> None:
    text = asyncio.run(asked(mode, sender))
    lines = text.splitlines()
    assert lines[0] == "From alice [REF] (verified):"
    assert lines[1].strip() == "let me in"
    assert lines[2].startswith(f"It waits for you because {says}")
    assert len(lines) == 4
    assert max(map(len, lines)) < 140  # Claude Code cuts what its window does not hold
    for word in get_args(ReceiverClass):
        assert word not in text.replace("is not known", "")


@pytest.mark.rule("09.9")
def test_the_time_is_the_clocks_so_that_it_stays_true_while_nobody_answers() -> None:
    noon = round(time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1)) * 1000)
    assert clock(noon + 300_000, noon) == "12:05"
    assert clock(noon + 86_400_000, noon) == "2026-12-01 12:00"
    text = asyncio.run(asked("default", "yolo"))
    assert "Without a choice it stays held until " in text
    assert " left" not in text


def test_the_form_is_a_question() -> None:
    decision: Any = SCHEMA["properties"]
    assert decision["decision"]["title"].endswith("?")
