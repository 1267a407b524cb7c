"""What the tools answer a model: texts, documents, refusals, and the messages that a result carries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postroom import Agent, Agents, Batch, Session, open_in_memory, tools
from postroom.core import contract
from postroom.core.envelope import PREFACE, unframe
from postroom.core.message import Lease, Receipt
from postroom.core.settings import Settings
from postroom.opening import Gathering
from postroom.tools import MAX_CARRIED, Answer, answer
from tests.desk import SECONDS


@asynccontextmanager
async def two(**options: Any) -> AsyncGenerator[tuple[Session, Session]]:
    """alice and bob, in memory."""
    here = Gathering()
    async with open_in_memory("alice", here, **options) as alice, open_in_memory("bob", here) as bob:
        yield alice, bob


def run(work: Callable[[Session, Session], Awaitable[None]], **options: Any) -> None:
    """Runs work with alice and bob."""

    async def all_of_it() -> None:
        async with asyncio.timeout(SECONDS), two(**options) as (alice, bob):
            await work(alice, bob)

    asyncio.run(all_of_it())


async def mail(sender: Session, to: str, text: str, **more: Any) -> str:
    """Sends one message; returns its id."""
    receipt = await sender.send(to, text, summary="a summary", **more)
    assert isinstance(receipt, Receipt), receipt
    return receipt.msg_id


def say(text: str = "hello", to: str = "bob", **more: Any) -> dict[str, Any]:
    """The arguments of a send."""
    return {"to": to, "message": text, "summary": "a summary", **more}


# ── send_message ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.31")
def test_a_send_says_what_is_known_as_text_and_as_a_document() -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "send_message", say())
        assert not said.failed
        assert said.text.startswith("queued: In bob's inbox. Not read yet;")
        assert said.document is not None
        assert said.document["status"] == "queued"
        assert said.document["to"] == {"name": "bob", "ref": bob.ref, "kind": "session"}
        assert said.document["msg_id"] in said.text
        assert said.document["pin"] == {"name": "bob", "identity": bob.id}
        assert "hello" not in json.dumps(said.document) + said.text

    run(work)


@pytest.mark.rule("01.30", "01.33")
def test_a_refusal_has_its_code_and_what_to_do_and_whom_it_may_have_meant() -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "send_message", say(to="bobb"))
        assert said.failed
        assert said.text.startswith("not_found: ")
        assert f"bob [{bob.ref}] · session" in said.text
        nobody = await answer(alice, "send_message", say(to="zzz"))
        assert nobody.document is not None
        for words in (nobody.text, nobody.document["error"]["hint"]):  # what a model has, and no command
            assert "list_agents" in words
            assert "postroom list" not in words
        assert said.document is not None
        assert said.document["error"]["code"] == "not_found"
        assert said.document["error"]["candidates"][0]["name"] == "bob"

    run(work)


def test_report_37_an_optional_field_that_is_null_is_absent() -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "send_message", say(in_reply_to=None, notify_when_idle=None), msg_id=None)
        assert not said.failed
        for tool, fields in (("list_agents", "filter kind limit"), ("read_messages", "wait")):
            assert not (await answer(alice, tool, dict.fromkeys(fields.split()))).failed

    run(work)


def test_report_37_the_same_call_made_again_has_one_effect() -> None:
    async def work(alice: Session, bob: Session) -> None:
        first = await answer(alice, "send_message", say(), msg_id="call-1")
        again = await answer(alice, "send_message", say(), msg_id="call-1")
        assert first.document is not None
        assert again.document is not None
        assert (first.document["status"], again.document["status"]) == ("queued", "queued")
        assert first.document["msg_id"] == again.document["msg_id"] == "call-1"
        assert [message.text for message in bob.drain()] == ["hello"]

    run(work)


@pytest.mark.rule("09.9")
def test_the_trace_of_a_call_stands_in_the_journal_beside_its_message() -> None:
    async def work(alice: Session, bob: Session) -> None:
        await answer(alice, "send_message", say(), msg_id="call-1", trace="00-abc-def-01")
        with alice.reading() as store:
            steps = {step.state: step.detail for step in store.steps("call-1")}
        assert steps["traced"] == "00-abc-def-01"

    run(work)


@pytest.mark.rule("01.31")
def test_a_send_of_which_nothing_is_known_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command exits with 1: the model is told not to take it for sent, nor to write it anew."""

    async def work(alice: Session, bob: Session) -> None:
        receipt = await alice.send("bob", "hello", summary="s")
        assert isinstance(receipt, Receipt)
        unknown = Receipt(status="unknown", msg_id="m", to=receipt.to, note="It is not known.", waiting=1)

        async def not_known(raw: Mapping[str, object], *, msg_id: str | None = None) -> Receipt:
            return unknown

        monkeypatch.setattr(alice, "send_call", not_known)
        said = await answer(alice, "send_message", say())
        assert said.failed
        assert said.text.startswith("unknown: It is not known.")

    run(work)


# ── list_agents ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.29")
def test_a_list_begins_with_the_own_name() -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "list_agents", {})
        own, other = said.text.splitlines()
        assert own == f"This session is alice [{alice.ref}]."
        assert other.startswith(f"bob [{bob.ref}]")
        assert said.document is not None
        assert said.document["self"]["name"] == "alice"
        assert [row["name"] for row in said.document["rows"]] == ["bob"]
        assert not {"pid", "session_id"} & set(said.document["rows"][0])
        assert said.document["left_out"] == 0

    run(work)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"filter": "BO"}, "bob"),
        ({"filter": "nobody"}, "Nobody here is like that."),
        ({"kind": "agent"}, "Nobody here is like that."),
        ({"limit": "1"}, "bob"),
    ],
)
@pytest.mark.rule("01.29")
def test_a_list_can_be_narrowed(arguments: dict[str, Any], says: str) -> None:
    async def work(alice: Session, bob: Session) -> None:
        assert says in (await answer(alice, "list_agents", arguments)).text

    run(work)


@pytest.mark.parametrize(
    "arguments",
    [
        *({"filter": 7}, {"kind": "robot"}, {"kind": 3}, {"limit": 0}, {"limit": 1.5}, {"limit": True}),
        *({"limit": "many"}, {"limit": []}, {"limit": 10**400}, {"limit": -1}),
    ],
    ids=str,
)
def test_what_a_list_cannot_be_asked_is_said(arguments: dict[str, Any]) -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "list_agents", arguments)
        assert said.failed
        assert said.text.startswith("invalid_record: `")

    run(work)


def test_a_list_says_what_it_left_out_and_who_is_alone() -> None:
    async def work() -> None:
        here = Gathering()
        async with open_in_memory("alice", here) as alice:
            assert "Nobody else is here." in (await answer(alice, "list_agents", {})).text
            async with open_in_memory("bob", here), open_in_memory("carol", here):
                said = await answer(alice, "list_agents", {"limit": 1})
                assert "1 more; `filter` or `limit` shows them." in said.text

    asyncio.run(work())


def test_a_long_list_has_no_document_because_a_client_would_cut_it() -> None:
    async def work() -> None:
        here = Gathering()
        async with open_in_memory("alice", here) as alice:
            assert (await answer(alice, "list_agents", {})).document is not None
            names = [f"worker-{number:03}" for number in range(50)]
            async with _all_of(here, names):
                said = await answer(alice, "list_agents", {})
        assert said.document is None
        assert all(name in said.text for name in names)
        assert len(said.text.encode()) < MAX_CARRIED

    asyncio.run(work())


@asynccontextmanager
async def _all_of(here: Gathering, names: list[str]) -> AsyncGenerator[None]:
    if not names:
        yield
        return
    async with open_in_memory(names[0], here), _all_of(here, names[1:]):
        yield


# ── denied, unknown, observed ────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.21", "01.33")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("send_message", say()), ("list_agents", {}), ("read_messages", {})],
    ids=["send", "list", "read"],
)
def test_a_tool_that_is_denied_by_either_name_says_so(tool: str, arguments: dict[str, Any]) -> None:
    own = next(own for own, name in contract.TOOL_NAMES.items() if name == tool)
    for denied in (own, tool):

        async def work(alice: Session, bob: Session) -> None:
            said = await answer(alice, tool, arguments)
            assert said.failed
            assert said.text.startswith("denied_by_settings: ")

        run(work, settings=Settings(denied=frozenset({denied})))


@pytest.mark.rule("09.9")
def test_only_an_observer_reports() -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "report_observation", {"report": "x", "severity": "info"})
        assert said.failed
        assert "Only an observer reports observations" in said.text

    run(work)


def test_a_tool_that_there_is_not_is_no_tool() -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "delete_everything", {})
        assert said.failed
        assert said.text.startswith("usage: There is no tool delete_everything.")

    run(work)


def test_a_session_that_has_ended_says_so() -> None:
    async def work() -> None:
        async with two() as (alice, _):
            await alice.close()
            said = await answer(alice, "send_message", say())
            assert said.failed
            assert said.text.startswith("session_closed: ")

    asyncio.run(work())


# ── what waits ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.9", "09.6")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("send_message", say()), ("send_message", say(to="nobody")), ("list_agents", {}), ("read_messages", {})],
    ids=["send", "refusal", "list", "read"],
)
def test_any_result_carries_what_waits_and_then_has_no_document(tool: str, arguments: dict[str, Any]) -> None:
    """Where a client shows its model the document alone, the messages would be consumed unseen."""

    async def work(alice: Session, bob: Session) -> None:
        plain = await answer(alice, tool, arguments)
        msg_id = await mail(bob, "alice", "the column is tenant_id")
        fresh = {"message": "another text"} if "message" in arguments else {}
        said = await answer(alice, tool, arguments | fresh)
        assert said.failed == plain.failed
        assert said.document is None
        if tool != "read_messages":
            assert said.text.startswith(plain.text.splitlines()[0])
        (block,) = unframe(said.text)
        assert dict(block.attributes)["msg-id"] == msg_id
        assert dict(block.attributes)["from"] == f"bob [{bob.ref}]"
        assert block.text == "the column is tenant_id"
        assert said.text.count(PREFACE) == 1
        assert [message.msg_id for message in said.lease.messages] == [msg_id]
        assert alice.store.waiting_count == 0
        alice.release(said.lease)
        assert alice.store.waiting_count == 1

    run(work)


def test_what_waits_stays_where_it_is_not_wanted() -> None:
    async def work(alice: Session, bob: Session) -> None:
        await mail(bob, "alice", "hello")
        said = await answer(alice, "list_agents", {}, piggyback=False)
        assert said.lease == Lease("", ())
        assert alice.store.waiting_count == 1

    run(work)


def test_what_is_for_later_comes_when_it_is_asked_for() -> None:
    """06.2: a loop that is in the middle of something is not handed what can wait."""

    async def work(alice: Session, bob: Session) -> None:
        await mail(bob, "alice", "no hurry", priority="later")
        assert not (await answer(alice, "list_agents", {})).lease
        said = await answer(alice, "read_messages", {})
        assert [message.text for message in said.lease.messages] == ["no hurry"]

    run(work)


def test_notices_come_first_and_by_themselves_too() -> None:
    async def work(alice: Session, bob: Session) -> None:
        await bob.send("alice", notify_when_idle=True)
        await alice.send("bob", notify_when_idle=True)
        assert await alice.wait(SECONDS)
        said = await answer(alice, "list_agents", {})
        assert [block.name for block in unframe(said.text)] == ["delivery-notice"]
        assert PREFACE not in said.text
        assert said.lease.notices

    run(work)


def test_report_28_what_is_not_read_is_still_there() -> None:
    """A peek takes nothing; what was handed out and not confirmed is handed out again, marked."""

    async def work(alice: Session, bob: Session) -> None:
        await mail(bob, "alice", "hello")
        first = await answer(alice, "read_messages", {})
        assert (await answer(alice, "read_messages", {})).text == "Nothing waits."
        alice.release(first.lease)
        again = await answer(alice, "list_agents", {})
        assert dict(unframe(again.text)[0].attributes)["redelivered"] == "yes"
        alice.confirm(again.lease)
        assert (await answer(alice, "read_messages", {})).text == "Nothing waits."

    run(work)


def test_report_25_a_message_that_comes_in_the_middle_of_a_turn_is_not_read_before_it_is_handed_out() -> None:
    async def work(alice: Session, bob: Session) -> None:
        alice.began_turn()
        msg_id = await mail(bob, "alice", "hello")

        def state() -> str:
            with alice.reading() as store:
                return store.steps(msg_id)[-1].state

        assert state() == "accepted"
        said = await answer(alice, "list_agents", {})
        assert state() == "leased"
        alice.confirm(said.lease)
        assert state() == "consumed"

    run(work)


def test_report_33_two_readers_of_one_inbox_get_each_message_once() -> None:
    async def work(alice: Session, bob: Session) -> None:
        for number in range(6):
            await mail(bob, "alice", f"text {number}")
        both = await asyncio.gather(
            *(answer(alice, "read_messages", {}) for _ in range(2)),
            answer(alice, "list_agents", {}),
        )
        texts = [message.text for said in both for message in said.lease.messages]
        assert sorted(texts) == [f"text {number}" for number in range(6)]

    run(work)


# ── how much at once ─────────────────────────────────────────────────────────────────────────────


def test_a_result_carries_as_many_as_fit_and_says_how_many_are_left() -> None:
    async def work(alice: Session, bob: Session) -> None:
        for letter in "abcde":
            await mail(bob, "alice", letter * 3_000)
        seen: list[str] = []
        for rest in ("3 more wait: call", "1 more waits: call", None):
            said = await answer(alice, "list_agents", {})
            alice.confirm(said.lease)
            seen += [message.text[0] for message in said.lease.messages]
            assert (rest is None) == ("more wait" not in said.text)
            assert rest is None or rest in said.text
        assert seen == list("abcde")

    run(work)


def test_characters_count_by_their_bytes() -> None:
    async def work(alice: Session, bob: Session) -> None:
        for letter in "€‰":
            await mail(bob, "alice", letter * 2_000)  # 6,000 bytes each
        assert len((await answer(alice, "read_messages", {})).lease.messages) == 1

    run(work)


def test_a_message_that_fits_nowhere_comes_alone_and_only_where_it_is_asked_for() -> None:
    async def work(alice: Session, bob: Session) -> None:
        await mail(bob, "alice", "x" * (MAX_CARRIED + 1))
        await mail(bob, "alice", "short")
        passed = await answer(alice, "list_agents", {})
        assert not passed.lease
        assert passed.text.endswith("[Postroom] 2 more wait: call read_messages.")
        said = await answer(alice, "read_messages", {})
        assert said.text.startswith("[Postroom] A message of 8,001 characters follows;")
        assert [len(message.text) for message in said.lease.messages] == [MAX_CARRIED + 1]
        alice.confirm(said.lease)
        rest = await answer(alice, "list_agents", {})
        assert [message.text for message in rest.lease.messages] == ["short"]

    run(work)


def test_a_message_that_just_fits_is_carried() -> None:
    async def work(alice: Session, bob: Session) -> None:
        await mail(bob, "alice", "x" * MAX_CARRIED)
        said = await answer(alice, "list_agents", {})
        assert len(said.lease.messages) == 1
        assert "your client may cut it" not in said.text

    run(work)


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("09.7", "09.9")
def test_a_read_waits_for_what_comes() -> None:
    async def work(alice: Session, bob: Session) -> None:
        reading = asyncio.create_task(answer(alice, "read_messages", {"wait": SECONDS}))
        while not alice.waiters:
            await asyncio.sleep(0)
        await mail(bob, "alice", "hello")
        said = await reading
        assert [message.text for message in said.lease.messages] == ["hello"]

    run(work)


def test_a_read_whose_message_another_reader_took_goes_on_waiting() -> None:
    async def work(alice: Session, bob: Session) -> None:
        reads = [asyncio.create_task(answer(alice, "read_messages", {"wait": SECONDS})) for _ in range(2)]
        while alice.waiters < 2:
            await asyncio.sleep(0)
        await mail(bob, "alice", "first")
        done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        alice.confirm(done.pop().result().lease)
        await mail(bob, "alice", "second")
        texts = [message.text for read in reads for message in (await read).lease.messages]
        assert sorted(texts) == ["first", "second"]

    run(work)


def test_a_read_that_gets_nothing_says_so() -> None:
    async def work(alice: Session, bob: Session) -> None:
        assert (
            await answer(alice, "read_messages", {"wait": 0.01})
        ).text == "Nothing came within 0.01 seconds."
        assert (await answer(alice, "read_messages", {"wait": "0"})).text == "Nothing waits."
        await alice.close()

    run(work)


def test_a_read_ends_with_its_session() -> None:
    async def work(alice: Session, bob: Session) -> None:
        reading = asyncio.create_task(answer(alice, "read_messages", {"wait": SECONDS}))
        while not alice.waiters:
            await asyncio.sleep(0)
        await alice.close()
        assert "Nothing came" in (await reading).text

    run(work)


def test_a_read_that_is_taken_back_holds_nothing() -> None:
    async def work(alice: Session, bob: Session) -> None:
        reading = asyncio.create_task(answer(alice, "read_messages", {"wait": SECONDS}))
        while not alice.waiters:
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await mail(bob, "alice", "hello")
        assert alice.store.waiting_count == 1

    run(work)


@pytest.mark.rule("09.9")
@pytest.mark.parametrize("wait", [600.5, -1, "soon", True, [], float("nan"), float("inf")], ids=str)
def test_a_read_waits_ten_minutes_at_most(wait: Any) -> None:
    async def work(alice: Session, bob: Session) -> None:
        said = await answer(alice, "read_messages", {"wait": wait})
        assert said.failed
        assert said.text.startswith("invalid_record: `wait` is no number of seconds up to 600.")

    run(work)


def test_a_read_that_finds_nothing_does_not_say_that_the_loop_is_idle() -> None:
    """The model that calls it is in the middle of its turn (05.31)."""

    async def work(alice: Session, bob: Session) -> None:
        await mail(bob, "alice", "hello")
        alice.confirm((await answer(alice, "read_messages", {})).lease)
        await bob.send("alice", notify_when_idle=True)
        await answer(alice, "read_messages", {})
        await answer(alice, "list_agents", {})
        assert not bob.peek_notices()
        reading = asyncio.create_task(answer(alice, "read_messages", {"wait": SECONDS}))
        assert await bob.wait(SECONDS)
        assert [notice.kind for notice in bob.peek_notices()] == ["idle"]
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    run(work)


def test_a_send_goes_on_where_its_caller_was_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What became of it is written down all the same."""

    async def work(alice: Session, bob: Session) -> None:
        began, may_end = asyncio.Event(), asyncio.Event()
        send = alice.send_call

        async def slow(raw: Mapping[str, object], *, msg_id: str | None = None) -> Any:
            began.set()
            await may_end.wait()
            return await send(raw, msg_id=msg_id)

        monkeypatch.setattr(alice, "send_call", slow)
        sending = asyncio.create_task(answer(alice, "send_message", say(), msg_id="call-1"))
        await began.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        may_end.set()
        assert await bob.wait(SECONDS)
        assert [message.msg_id for message in bob.drain()] == ["call-1"]

    run(work)


# ── for an agent inside the session ──────────────────────────────────────────────────────────────


@pytest.mark.rule("02.27")
def test_what_a_resume_was_begun_for_is_in_no_result() -> None:
    """It is the resume that hands it over; what came later is in the next result."""

    async def work(alice: Session, bob: Session) -> None:
        may_start, began = asyncio.Event(), asyncio.Event()

        async def resume(agent: Agent, messages: Batch) -> None:
            began.set()
            await may_start.wait()

        agents = Agents(alice, resume=resume)
        worker = await agents.start("worker")
        await worker.finish()
        sending = [asyncio.create_task(mail(alice, "worker", text)) for text in ("first", "second")]
        await began.wait()
        alone = await answer(alice, "read_messages", {}, speaker=worker)
        assert (alone.text, alone.carries) == ("Nothing waits.", False)
        third = asyncio.create_task(mail(alice, "worker", "third"))
        while not worker.waiting:
            await asyncio.sleep(0)
        listed = await answer(alice, "list_agents", {}, speaker=worker)
        assert not listed.carries
        assert "[Postroom]" not in listed.text
        may_start.set()
        await asyncio.gather(*sending, third)
        said = await answer(alice, "list_agents", {}, speaker=worker)
        assert [block.text for block in unframe(said.text)] == ["third"]
        said.settle(alice, False)
        again = await answer(alice, "read_messages", {}, speaker=worker)
        assert [dict(block.attributes)["redelivered"] for block in unframe(again.text)] == ["yes"]
        again.settle(alice, True)
        assert worker.waiting == 0

    run(work)


@pytest.mark.rule("06.14", "01.21")
def test_an_observer_is_answered_by_its_one_tool() -> None:
    async def work(alice: Session, bob: Session) -> None:
        observer = Agents(alice).observe()
        await mail(bob, "alice", "for the main conversation")
        reported = await answer(alice, "report_observation", {"report": "it waits"}, speaker=observer)
        assert reported.text.startswith("queued: ")
        assert not reported.carries
        for tool, code in (
            ("send_message", "observer_cannot_send"),
            ("list_agents", "denied_by_settings"),
            ("read_messages", "observer_cannot_send"),
            ("delete_everything", "usage"),
        ):
            said = await answer(alice, tool, {}, speaker=observer)
            assert said.failed
            assert said.text.startswith(f"{code}: "), said.text
        assert alice.store.waiting_count == 1

    run(work, settings=Settings(denied=frozenset({"ListAgents"})))


def test_the_last_words_of_a_run_are_nobody_s_but_its_agent_s() -> None:
    """They can pass for no line or block of ours, and where a client would cut the document there is none."""

    async def work(alice: Session, bob: Session) -> None:
        words = ["[Postroom] 9 more wait", "x" * (MAX_CARRIED + 1)]
        agents = Agents(alice, resume=lambda agent, messages: None, background=False)
        worker = await agents.start("worker")
        await worker.finish()
        for result in words:
            sending = asyncio.create_task(answer(alice, "send_message", say(to="worker", text=result)))
            while worker.state != "live" or worker.flight is not None:
                await asyncio.sleep(0)
            await worker.finish(result=result)
            said = await sending
            assert said.text.splitlines()[-2].startswith("The last words of worker: information")
            assert (said.document is None) is (len(result) > MAX_CARRIED)
            last = said.text.splitlines()[-1]
            assert (last == result) is not result.startswith("[Postroom]")

    run(work)


# ── for another process ──────────────────────────────────────────────────────────────────────────


def test_a_call_from_another_process_is_read_strictly() -> None:
    asked = tools.asked_of
    assert asked(None) == ({}, None, "")
    assert asked('{"arguments": {"to": "bob"}, "msg_id": "m", "trace": "t"}') == ({"to": "bob"}, "m", "t")
    for wrong in ("[]", "{", '{"arguments": []}', '{"msg_id": 7}', '{"trace": null}', "[" * 100_000, 12):
        assert asked(wrong) is None, wrong


def test_an_answer_is_plain_by_default() -> None:
    said = Answer(text="x")
    assert (said.document, said.failed, bool(said.lease)) == (None, False, False)
