"""What a session learns from the hooks of its client: its turns, its mode, its name, its conversation (09.12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.core.envelope import PREFACE
from tests.hooking import TALK, Hooked, hooked


@pytest.mark.rule("09.12", "05.31")
def test_the_turn_is_reported_busy_and_idle(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        session = at.session
        assert session.turn == "unknown"
        await at.hook("UserPromptSubmit")
        assert (session.turn, session.record.status) == ("busy", "busy")
        await at.hook("Notification", notification_type="permission_prompt")
        assert (session.turn, session.record.status) == ("busy", "waiting")
        await at.hook("PostToolUse")
        assert session.record.status == "busy"
        await at.hook("Stop", last_assistant_message="all done")
        assert (session.turn, session.record.status) == ("idle", "idle")
        assert session._activity.words == "all done"  # pyright: ignore[reportPrivateUsage]
        await at.hook("PostToolUse")  # a turn that nobody's prompt began
        assert session.turn == "busy"
        await at.hook("Notification", notification_type="idle_prompt")
        assert session.turn == "idle"
        await at.hook("UserPromptSubmit")
        await at.hook("StopFailure")
        assert session.turn == "idle"
        await at.hook("UserPromptSubmit")
        await at.hook("SessionEnd")
        assert session.turn == "idle"

    hooked(tmp_path, work)


@pytest.mark.rule("03.66", "09.12")
@pytest.mark.parametrize(
    ("client", "end", "start", "fields"),
    [
        ("gemini-cli", "AfterAgent", "BeforeAgent", {}),
        ("qwen-code", "Stop", "UserPromptSubmit", {"prompt_id": "p-1"}),
    ],
)
def test_a_turn_that_goes_on_keeps_its_chain(
    tmp_path: Path, client: str, end: str, start: str, fields: dict[str, str]
) -> None:
    """Some clients call so a new turn what a hook has kept going; an answer in it still carries the chain of its cause."""

    async def work(at: Hooked) -> None:
        async with at.desk.room.open("alice") as alice:
            await at.hook(start, **fields)
            await alice.send("bob", "one", summary="s")
            (message,) = at.session.peek()
            assert message.hop_chain
            assert await at.given(end, **fields)
            await at.hook(start, **fields)
            if fields:
                await at.hook(start, **fields)  # after a tool call, too
            turns_of = at.session._turns  # pyright: ignore[reportPrivateUsage]
            assert turns_of.chain(at.session.now()) == message.hop_chain
            await at.hook(end, **fields)
            await at.hook(start, **({"prompt_id": "p-2"} if fields else {}))
            assert turns_of.chain(at.session.now()) == ()

    hooked(tmp_path, work, client)


@pytest.mark.rule("09.12", "03.43")
def test_the_mode_is_reported_and_releases_nothing(tmp_path: Path) -> None:
    """A hook is a child, as any command in an agent's shell: what is held stays held until a person or the client speaks."""

    async def work(at: Hooked) -> None:
        async with at.desk.room.open("alice", mode="bypassPermissions") as alice:
            await alice.send("bob", "do it", summary="s")
            assert len(at.session.held()) == 1
            await at.hook("UserPromptSubmit", permission_mode="bypassPermissions")
            assert at.session.standing.mode == "bypassPermissions"
            assert at.session.standing.permission_class == "bypassing"
            assert len(at.session.held()) == 1
            await alice.send("bob", "and this", summary="s")
            assert len(at.session.held()) == 1

    hooked(tmp_path, work)


@pytest.mark.rule("09.12", "03.4")
def test_a_mode_that_is_not_known_makes_the_class_unknown(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        await at.hook("UserPromptSubmit", permission_mode="hyperdrive")
        assert at.session.standing.permission_class == "unknown"
        await at.hook("UserPromptSubmit")
        assert at.session.standing.mode == "hyperdrive"

    hooked(tmp_path, work)


@pytest.mark.rule("09.12")
def test_what_the_client_calls_the_session_is_taken_on(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        await at.hook("SessionStart", session_title="fix-the-parser", source="startup")
        assert at.session.name == "fix-the-parser"
        at.session.rename("chosen")
        await at.hook("SessionStart", session_title="another", source="clear")
        assert at.session.name == "chosen"

    hooked(tmp_path, work)


class Attendant:
    """A presence that writes down what it learns."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []

    def learned(self, conversation: str, cwd: str = "", title: str = "") -> None:
        self.heard.append((conversation, cwd, title))


@pytest.mark.rule("09.9", "09.12")
def test_the_presence_learns_which_conversation_it_is(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        at.session.attendant = attendant = Attendant()
        await at.hook("SessionStart", cwd="/proj", session_title="parser")
        await at.hook("PostToolUse", cwd="/proj/deeper")
        await at.hook("UserPromptSubmit", session_id="after-clear", cwd="/proj")
        assert attendant.heard == [(TALK, "/proj", "parser"), ("after-clear", "/proj", "")]

    hooked(tmp_path, work)


@pytest.mark.rule("11.1", "09.16")
def test_a_prompt_that_holds_passed_mail_says_that_it_was_read(tmp_path: Path) -> None:
    async def work(at: Hooked) -> None:
        msg_id = at.mail("by another door")
        lease = at.session.take()
        at.session.pass_on(lease, "codex-queue")
        text = f'{PREFACE}\n\n<cross-session-message msg-id="{msg_id}">\nby another door\n</cross-session-message>'
        await at.hook("UserPromptSubmit", prompt="what is msg-id= about?")
        assert at.states(msg_id)[-1] == "passed"
        await at.hook("UserPromptSubmit", prompt=text)
        assert at.states(msg_id)[-1] == "consumed"

    hooked(tmp_path, work, "codex")
