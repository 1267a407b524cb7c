"""What results look like: documents with their keys, and lines in which a peer's words stay a peer's words."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import present
from postroom.core.listing import Listing, Row
from postroom.core.message import (
    Message,
    Near,
    Notice,
    Origin,
    Party,
    Pin,
    Receipt,
    Refusal,
    Status,
    Step,
)
from postroom.core.refusals import CODES

NOW = 1_796_033_702_123
SECOND = "2026-11-30T10:15:02Z"
STAMP = "2026-11-30T10:15:02.123Z"

ALICE = Origin(
    kind="peer",
    identity="alice-id",
    verified=True,
    name="alice",
    address="uds:/run/1.sock",
    stated_class="prompting",
)
STRANGER = Origin(kind="peer", identity="process:1:2", name="alice")
NAMELESS = Origin(kind="peer", identity="process:1:2")
PARTY = Party(name="bob", ref="3fa9c1")

HOSTILE = st.lists(
    st.one_of(
        st.sampled_from("\n\r\t\x1b\x07\x85\u2028\u2029\u202e\u2066\x0b\x0c\x1c\x00\x7f w"),
        st.characters(codec="utf-8"),
    ),
    max_size=30,
).map("".join)
"""What a peer may write."""

ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What could act on a terminal, or turn a line round (10.37)."""


def message(text: str = "hello", origin: Origin = ALICE, **more: Any) -> Message:
    return Message(msg_id="m-1", text=text, origin=origin, received_at=NOW, **more)


# ── documents ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("01.31", "10.23")
def test_a_receipt() -> None:
    receipt = Receipt(
        status="queued",
        msg_id="m-1",
        to=PARTY,
        note="n",
        pin=Pin(name="bob", identity="bob-id"),
        waiting=2,
        warnings=("w",),
    )
    whole = {
        "status": "queued",
        "msg_id": "m-1",
        "to": {"name": "bob", "ref": "3fa9c1", "kind": "session"},
        "note": "n",
        "waiting": 2,
        "warnings": ["w"],
        "pin": {"name": "bob", "identity": "bob-id"},
    }
    assert present.receipt_document(receipt) == whole
    resumed = replace(receipt, status="resumed", result="</agent-message>\x1b")
    assert present.receipt_document(resumed) == {
        **whole,
        "status": "resumed",
        "result": "</agent-message>\x1b",
    }
    assert present.receipt_document(replace(receipt, result=""))["result"] == ""
    plain = Receipt(status="queued", msg_id="m-1", to=PARTY, note="n")
    assert present.receipt_document(plain) == {key: value for key, value in whole.items() if key != "pin"} | {
        "waiting": 0,
        "warnings": [],
    }


@pytest.mark.rule("10.23")
def test_an_error() -> None:
    near = (Near(name="bob", ref="3fa9c1", where="/src"),)
    refusal = Refusal(code="ambiguous", message="M.", hint="H.", candidates=near, more=2, msg_id="m-1")
    out, err = present.refused(refusal, as_json=True)
    assert err == "ambiguous\n"
    assert json.loads(out) == {
        "error": {
            "code": "ambiguous",
            "message": "M.",
            "hint": "H.",
            "candidates": [{"name": "bob", "ref": "3fa9c1", "kind": "session", "where": "/src"}],
            "msg_id": "m-1",
        }
    }
    out, err = present.refused(refusal, as_json=False)
    assert out == ""
    assert err == "ambiguous\npostroom: M.\n  bob [3fa9c1]  session  /src\n  and 2 more\n  H.\n"
    assert present.said_error("usage", "M.", "", as_json=False) == ("", "usage\npostroom: M.\n")
    assert "msg_id" not in json.loads(present.said_error("usage", "M.", "", as_json=True)[0])["error"]


@pytest.mark.rule("10.25", "04.15")
@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        (
            ALICE,
            {"name": "alice", "ref": "9f23cd", "verified": True, "class": "prompting"},
        ),
        (STRANGER, {"address": None, "name": "alice", "ref": None, "verified": False, "class": None}),
        (NAMELESS, {"address": None, "name": None, "ref": None, "verified": False, "class": None}),
    ],
)
def test_a_message(origin: Origin, shown: dict[str, Any]) -> None:
    """An address only for those who can be answered; a socket path for nobody."""
    document = present.message_document(
        message("x\x1b", origin, summary="s", sent_at="then", in_reply_to="m-0", redelivered=True)
    )
    assert document == {
        "msg_id": "m-1",
        "from": document["from"],
        "summary": "s",
        "text": "x\x1b",
        "in_reply_to": "m-0",
        "sent_at": "then",
        "received_at": SECOND,
        "state": "received",
        "redelivered": True,
        "held": False,
        "approved_by": None,
    }
    expected = {"kind": "session", **shown}
    if origin is ALICE:
        expected |= {"ref": document["from"]["ref"], "address": f"alice [{document['from']['ref']}]"}
        assert re.fullmatch("[0-9a-f]{6}", document["from"]["ref"])
    assert document["from"] == expected
    assert "/run/1.sock" not in json.dumps(document)


@pytest.mark.rule("10.25")
def test_an_inbox() -> None:
    notice = Notice(kind="held", at=NOW, msg_id="m-2", about="bob", detail="d")
    document = present.inbox_document([message()], [notice])
    assert [one["msg_id"] for one in document["messages"]] == ["m-1"]
    assert document["notices"] == [
        {"kind": "held", "at": SECOND, "msg_id": "m-2", "about": "bob", "detail": "d"}
    ]
    assert present.inbox_document(()) == {"messages": [], "notices": []}


STATUS = Status(
    name="bob",
    ref="3fa9c1",
    session_id="bob-id",
    program="codex",
    peer_address="uds:/run/2.sock",
    queued=3,
    problems=("The disk is tired.",),
    counts={"bad-frame": 2, "a": 1},
)


@pytest.mark.rule("10.27", "10.29", "10.30")
def test_a_status() -> None:
    document = present.status_document(STATUS)
    assert document == {
        "name": "bob",
        "ref": "3fa9c1",
        "session_id": "bob-id",
        "program": "codex",
        "peer_address": "uds:/run/2.sock",
        "class": "prompting",
        "mode": "default",
        "inbound": {"value": None, "scope": "default"},
        "queued": 3,
        "held": 0,
        "off": [],
        "counts": {"bad-frame": 2, "a": 1},
        "problems": ["The disk is tired."],
    }
    assert present.opened_document(STATUS, 7, None) == {**document, "pid": 7, "socket": None}
    shut = replace(STATUS, inbound="refuse", inbound_scope="user", off=("send", "receive"))
    assert present.status_document(shut)["inbound"] == {"value": "refuse", "scope": "user"}
    assert present.status_document(shut)["off"] == ["send", "receive"]


ROW = Row(
    identity="bob-id",
    name="bob",
    aliases=("old",),
    ref="3fa9c1",
    presence="bg",
    cwd="/src",
    machine="here",
    pid=7,
    seen_at=NOW - 8000,
    condition="offline",
    confirms="written",
    wakes=False,
    warnings=("w",),
)


@pytest.mark.rule("10.24")
def test_a_listing() -> None:
    answer = Listing(own=ROW, rows=(ROW,), unchecked=(("/there", "not ours"),), left_out=4)
    document = present.listing_document(answer)
    assert (
        document["self"]
        == document["rows"][0]
        == {
            "name": "bob",
            "aliases": ["old"],
            "ref": "3fa9c1",
            "kind": "session",
            "presence": "bg",
            "state": "idle",
            "cwd": "/src",
            "program": "postroom",
            "machine": "here",
            "pid": 7,
            "session_id": "bob-id",
            "seen_at": "2026-11-30T10:14:54Z",
            "condition": "offline",
            "confirms": "written",
            "wakes": False,
            "warnings": ["w"],
        }
    )
    agent = present.row_document(ROW._replace(kind="agent", type="coder"))
    assert agent == {**document["self"], "kind": "agent", "type": "coder"}
    assert document["unchecked"] == [{"place": "/there", "reason": "not ours"}]
    assert document["left_out"] == 4
    assert present.listing_document(Listing(own=None, rows=()))["self"] is None


STEPS = (
    Step(msg_id="m-1", at=NOW, where="alice", state="queued", detail="to bob"),
    Step(msg_id="m-1", at=NOW + 5, where="bob", state="received", detail="from alice"),
    Step(msg_id="m-1", at=NOW + 5, where="bob", state="accepted"),
)


@pytest.mark.rule("10.28", "10.29")
def test_steps() -> None:
    document = json.loads(present.trace_text("m-1", STEPS, as_json=True, mermaid=True))
    assert document["msg_id"] == "m-1"
    assert document["steps"][0] == {"at": STAMP, "where": "alice", "state": "queued", "detail": "to bob"}
    rows = json.loads(present.log_text(STEPS, as_json=True))["rows"]
    assert rows[0] == {"msg_id": "m-1", "at": STAMP, "where": "alice", "state": "queued", "detail": "to bob"}
    assert json.loads(present.log_text((), as_json=True)) == {"rows": []}


@given(HOSTILE)
def test_a_document_is_one_line_and_reads_back(text: str) -> None:
    """Whatever is in it, half a surrogate pair apart, which no text of a message has."""
    said = present.dumps({"text": text})
    assert said.endswith("\n")
    assert said.count("\n") == 1
    assert present.loads(said) == {"text": text}


# ── for people ───────────────────────────────────────────────────────────────────────────────────


def test_the_command_line_speaks_of_its_own_options() -> None:
    """A refusal or a warning that is written for the tool names no field that a command has not."""
    for code, row in CODES.items():
        said = "".join(
            present.refused(Refusal(code=code, message=row.sentence, hint=row.hint), as_json=False)
        )
        assert not re.search(r"`message`|`summary`|in_reply_to|notify_when_idle", said), said
    warned = Receipt(
        status="queued",
        msg_id="m",
        to=PARTY,
        note="n",
        warnings=("in_reply_to was sent", "`summary` was ignored: it belongs to a text."),
    )
    words = ["--in-reply-to was sent", "`--summary` was ignored: it belongs to a text."]
    assert present.receipt_document(warned)["warnings"] == words
    assert all(f"warning: {word}\n" in present.receipt_text(warned) for word in words)
    assert present.spoken("Send it without `notify_when_idle`.") == "Send it without `--notify-when-idle`."


def test_a_receipt_in_words() -> None:
    receipt = Receipt(
        status="queued", msg_id="m-1", to=PARTY, note="In bob's inbox.", waiting=2, warnings=("Beware.",)
    )
    assert present.receipt_text(receipt) == (
        "queued: In bob's inbox.\nid m-1, to bob [3fa9c1]\nwarning: Beware.\n2 waiting for you: `postroom inbox`.\n"
    )


@pytest.mark.rule("06.12")
def test_a_result_stands_on_lines_of_its_own() -> None:
    """Set in, so that what an agent wrote passes for nothing that is said of it."""
    receipt = Receipt(
        status="resumed", msg_id="m-1", to=PARTY, note="n", result="Done.\nid m-2\x1b", waiting=1
    )
    assert present.receipt_text(receipt, "bob").splitlines() == [
        "resumed: n",
        "id m-1, to bob [3fa9c1]",
        "result:",
        "    Done.",
        "    id m-2\\x1b",
        "1 waiting for you: `postroom --session bob inbox`.",
    ]
    assert present.receipt_text(replace(receipt, result="", waiting=0)).endswith("\nresult: empty\n")
    assert "result" not in present.receipt_text(replace(receipt, result=None))


@pytest.mark.rule("04.15")
def test_a_message_in_words_says_how_sure_the_sender_is() -> None:
    """Verified by `name [ref]`; a claim is called one before the name, which may look like anything."""
    assert re.match(
        r"from alice \[[0-9a-f]{6}\], 2026-11-30T10:15:02Z, id m-1\n    hello\n",
        present.message_text(message()),
    )
    forged = Origin(kind="peer", identity="process:1:2", name="alice [3fa9c1]")
    assert present.message_text(message(origin=forged)).startswith(
        "from somebody who claims to be alice [3fa9c1], "
    )
    assert present.message_text(message(origin=NAMELESS)).startswith("from somebody without a name, ")
    child = Origin(kind="own_child", identity="process:1:2", verified=True, name="a process of this session")
    assert present.message_text(message(origin=child)).startswith("from a process of this session, ")


@pytest.mark.rule("11.1")
def test_the_marks_of_a_message() -> None:
    head = present.message_text(message(redelivered=True, held=True, in_reply_to="m-0")).splitlines()[0]
    assert head.endswith(f", {SECOND}, id m-1, answers m-0 [again] [held, let in later]")


def test_an_inbox_in_words() -> None:
    notice = Notice(kind="idle", at=NOW, about="bob")
    assert present.inbox_text((), taken=True) == "Nothing waits.\n"
    text = present.inbox_text([message(), message("two")], [notice], taken=False)
    assert text.startswith("notice (idle): bob has ended its turn")
    assert text.endswith("2 waiting; `postroom inbox --take` takes them.\n")
    assert "takes them" not in present.inbox_text([message()], taken=True)
    assert present.inbox_text((), [notice], taken=False).count("\n") == 1


def test_a_status_in_words() -> None:
    text = present.status_text(present.status_document(STATUS))
    rows = [re.split(" {2,}", line) for line in text.splitlines()]
    assert rows == [
        ["name", "bob [3fa9c1]"],
        ["session", "bob-id"],
        ["program", "codex"],
        ["peer address", "uds:/run/2.sock"],
        ["class", "prompting (mode default)"],
        ["inbound", "by class (set by default)"],
        ["waiting", "3"],
        ["held", "0"],
        ["ignored", "a 1"],
        ["ignored", "bad-frame 2"],
        ["problem", "The disk is tired."],
    ]
    busy = replace(STATUS, held=2, inbound="hold", inbound_scope="managed", off=("send",))
    text = present.status_text(present.status_document(busy))
    assert re.search(r"held +2; `postroom --session bob held` shows them\n", text)
    assert re.search(r"inbound +hold \(set by managed\)\n", text)
    assert re.search(r"off +send: turned off by settings\n", text)
    gone = Status(name="bob", ref="3fa9c1", session_id="i", peer_address=None)
    assert re.search(r"peer address +unavailable\n", present.status_text(present.status_document(gone)))


def test_what_open_says() -> None:
    text = present.opened_text(present.opened_document(STATUS, 7, "/run/2.sock"))
    assert text.splitlines() == [
        "bob [3fa9c1] is open, id bob-id.",
        "problem: The disk is tired.",
        "Take its mail with `postroom --session bob inbox --take`; end it with `postroom --session bob close`.",
    ]
    spaced = Status(name="my app", ref="3fa9c1", session_id="i", peer_address=None)
    assert '--session "my app" ' in present.opened_text(present.opened_document(spaced, 7, None))


@pytest.mark.rule("01.29")
def test_a_listing_in_words() -> None:
    """Its own name first, what the limit cut, and what could not be checked last."""
    answer = Listing(own=ROW, rows=(ROW,), unchecked=(("/there", "not ours"),), left_out=4)
    lines = present.listing_text(answer, NOW).splitlines()
    assert lines[0] == "This session is bob [3fa9c1]."
    assert (
        lines[1]
        == "bob [3fa9c1] · was old · bg · idle · /src · active 8s ago · never says that it read a message · reads at its next turn · offline · w"
    )
    assert lines[2] == "1 of 5 shown; `--limit` shows more."
    assert lines[3] == "Could not be checked: /there (not ours)."
    assert present.listing_text(Listing(own=None, rows=()), NOW).startswith("Nobody else is here.")


def test_a_trace_in_words() -> None:
    assert present.trace_text("m-1", STEPS, as_json=False, mermaid=False).splitlines() == [
        f"{STAMP}  alice  queued    to bob",
        "2026-11-30T10:15:02.128Z  bob    received  from alice",
        "2026-11-30T10:15:02.128Z  bob    accepted",
    ]
    assert present.log_text(STEPS[:1], as_json=False) == f"{STAMP}  m-1  queued  to bob\n"
    assert present.log_text((), as_json=False) == "Nothing found.\n"


@pytest.mark.rule("10.12")
def test_a_trace_as_a_diagram() -> None:
    assert present.trace_text("m-1", STEPS, as_json=False, mermaid=True).splitlines() == [
        "sequenceDiagram",
        "    participant S0 as alice",
        "    participant S1 as bob",
        "    S0->>S1: m-1",
        "    Note over S0: 10:15:02.123Z queued to bob",
        "    Note over S1: 10:15:02.128Z received from alice",
        "    Note over S1: 10:15:02.128Z accepted",
    ]
    alone = present.steps_mermaid(STEPS[1:])
    assert "->>" not in alone


# ── a peer's words ───────────────────────────────────────────────────────────────────────────────


def everything(words: str) -> list[str]:
    """Every text for people, with a peer's words wherever a peer's words can come."""
    origin = Origin(kind="peer", identity="process:1:2", name=words)
    verified = Origin(kind="peer", identity="x", verified=True, name=words, address="uds:/x.sock")
    row = Row(
        identity="i",
        name=words,
        aliases=(words,),
        ref="3fa9c1",
        cwd=words,
        program=words,
        condition=words,
        type=words,
    )
    step = Step(msg_id="m-1", at=NOW, where=words, state="received", detail=words)
    near = Near(name=words, ref="3fa9c1", where=words)
    return [
        present.message_text(message(words, origin, in_reply_to="m-0")),
        present.message_text(message(words, verified)),
        present.notice_text(Notice(kind="held", at=NOW, about=words, detail=words)),
        present.receipt_text(
            Receipt(
                status="resumed",
                msg_id="m",
                to=Party(name=words, ref="3fa9c1"),
                note="n",
                warnings=(words,),
                result=words,
            )
        ),
        present.error_text("M.", "H.", [near]),
        present.listing_text(Listing(own=None, rows=(row,), unchecked=((words, words),)), NOW),
        present.steps_text([step]),
        present.steps_mermaid([step]),
        present.log_text([step], as_json=False),
    ]


@pytest.mark.rule("10.37")
@given(HOSTILE)
def test_nothing_of_a_peers_acts_on_a_terminal(words: str) -> None:
    for text in everything(words):
        assert not ACTS.search(text.replace("\n", ""))
        assert "\t" not in text or text.startswith(("from ", "resumed: ")), "but in a text that is set in"


@pytest.mark.rule("10.37")
@given(HOSTILE)
def test_no_line_of_a_peers_text_can_pass_for_one_of_ours(words: str) -> None:
    """As many lines of our own as with harmless words: a text is set in, everything else stays on its line.

    A line ends where any program would end one.
    """
    for text, harmless in zip(everything(words), everything("w"), strict=True):
        ours = [line for line in text.splitlines() if not line.startswith("    ")]
        assert len(ours) <= len([line for line in harmless.splitlines() if not line.startswith("    ")])


@pytest.mark.rule("10.37")
@given(HOSTILE)
def test_what_is_harmless_in_a_text_is_printed_as_it_is(words: str) -> None:
    """Character by character: an escape for what acts, and nothing else is touched."""
    lines = present.message_text(message(words, NAMELESS)).split("\n")[1:-1]
    assert all(line.startswith("    ") for line in lines)
    printed = "\n".join(line[4:] for line in lines)
    kept = "".join(c for c in words if not ACTS.match(c) and c not in "\u2028\u2029")
    assert all(c in printed for c in kept)
    if not ACTS.search(words) and not {"\u2028", "\u2029"} & set(words):
        assert printed == words


@given(HOSTILE)
def test_a_diagram_cannot_be_written_by_a_detail(words: str) -> None:
    """Every line of it is one of the four kinds; what is no letter or plain sign is a code."""
    diagram = present.steps_mermaid([Step(msg_id="m", at=NOW, where=words, state="received", detail=words)])
    assert diagram.count("\n") == 3
    for line in diagram.split("\n")[1:-1]:
        assert re.match(r" {4}(participant S0 as |Note over S0: )", line)
        assert not re.search(r"[<>{}\"'`|\\%&*$]", line)
        assert all(unicodedata.category(c)[0] not in "CZ" or c == " " for c in line)


# ── exit codes ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.37")
def test_exit_codes() -> None:
    """2 usage, 3 not found, 4 ambiguous, 1 everything else."""
    expected = {"usage": 2, "ambiguous": 4}
    expected |= dict.fromkeys(("not_found", "unknown_message", "not_held", "unknown_rule"), 3)
    for code in CODES:
        assert present.exit_code(code) == expected.get(code, 1), code
    assert present.exit_code("whatever") == 1
