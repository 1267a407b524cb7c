"""What holds, decisions, explanations and rules look like; and that no word of a peer's acts or passes for ours."""

from __future__ import annotations

import json
import re
import shlex
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import arguments, verdicts
from postroom.core import inbound
from postroom.core.address import ref_of
from postroom.core.holds import Hold
from postroom.core.message import Decided, Explanation, Message, Origin, Rule, Status
from postroom.core.settings import Cause
from tests.test_present import ACTS, HOSTILE

NOW = 1_796_033_702_123
"""2026-11-30T10:15:02.123Z."""

ALICE = Origin(
    kind="peer",
    identity="alice-id",
    verified=True,
    name="alice",
    address="uds:/run/1.sock",
    stated_class="prompting",
)
REF = ref_of("alice-id")
CLAIMED = Origin(kind="peer", identity="process:1:2", name="alice [3fa9c1]")
NAMELESS = Origin(kind="peer", identity="process:1:2", stated_class="bypassing")

STATUS = Status(
    name="bob",
    ref="3fa9c1",
    session_id="bob-id",
    peer_address=None,
    permission_class="bypassing",
    mode="bypassPermissions",
    held=1,
)


def hold(
    text: str = "hello",
    origin: Origin = ALICE,
    *,
    msg_id: str = "0197ab-1",
    cause: Cause = "mode-mismatch",
    scope: str = "default",
    expires_at: int | None = NOW + 300_000,
) -> Hold:
    """A message that is held."""
    message = Message(msg_id=msg_id, text=text, origin=origin, received_at=NOW, state="held")
    return Hold(row=1, message=message, cause=cause, scope=scope, rung="class", expires_at=expires_at)


# ── documents ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.26")
def test_what_is_held() -> None:
    document = verdicts.held_document([hold("x\x1b"), hold(cause="explicit-setting", expires_at=None)])
    first, second = document["held"]
    assert first == {
        "msg_id": "0197ab-1",
        "call": "0197ab-1#1",
        "from": {
            "address": f"alice [{REF}]",
            "name": "alice",
            "ref": REF,
            "kind": "session",
            "verified": True,
            "class": "prompting",
        },
        "cause": "mode-mismatch",
        "text": "x\x1b",
        "cut": 0,
        "since": "2026-11-30T10:15:02Z",
        "expires_at": "2026-11-30T10:20:02Z",
    }
    assert (second["cause"], second["expires_at"]) == ("explicit-setting", None)
    assert verdicts.held_document(()) == {"held": []}
    # More than an answer holds is cut, and said to be: nothing else is.
    large = [hold("x" * (verdicts.HELD_CHARACTERS // 2)), hold("y" * (verdicts.HELD_CHARACTERS // 2 + 1))]
    texts = [(len(one["text"]), one["cut"]) for one in verdicts.held_document(large)["held"]]
    assert texts == [(verdicts.HELD_CHARACTERS // 2, 0), (verdicts.HELD_CHARACTERS // 2, 1)]


@pytest.mark.rule("10.29")
def test_a_decision_an_explanation_and_rules() -> None:
    assert verdicts.decided_document(Decided(msg_id="m", state="denied")) == {
        "msg_id": "m",
        "state": "denied",
    }
    explanation = Explanation(outcome="held", rung="class", scope="default", cause="mode-mismatch")
    assert verdicts.explanation_document(explanation) == {
        "outcome": "held",
        "rung": "class",
        "scope": "default",
        "cause": "mode-mismatch",
        "then": None,
        "state": None,
    }
    accepted = Explanation(outcome="accepted", rung="default", scope="default", cause="", then="accepted")
    assert verdicts.explanation_document(accepted)["cause"] is None
    assert verdicts.explanation_document(accepted)["then"] == "accepted"
    rule = Rule(id="3", identity="alice-id", name="alice", since=NOW)
    assert verdicts.rules_document([rule]) == {
        "rules": [
            {
                "id": "3",
                "from": {"name": "alice", "ref": REF, "identity": "alice-id"},
                "since": "2026-11-30T10:15:02Z",
            }
        ]
    }


# ── for people ───────────────────────────────────────────────────────────────────────────────────


HEAD = (
    "1 held by bob [3fa9c1], whose class is bypassing (mode bypassPermissions). A person decides; until then"
    " nothing of it is delivered."
)


@pytest.mark.rule("10.5")
def test_what_is_held_in_words() -> None:
    """Sender and how sure it is, the class of both sides, the cause, the time left, the text, what to type."""
    assert verdicts.held_text([hold("one\ntwo")], STATUS, NOW + 47_000).splitlines() == [
        HEAD,
        "",
        f"0197ab-1, from alice [{REF}] (verified), which states prompting",
        f"  held because {verdicts.CAUSES['mode-mismatch']} (mode-mismatch, decided by default)",
        "  since 2026-11-30T10:15:02Z, 4 min 13 s left",
        "    one",
        "    two",
        "  postroom --session bob approve 0197ab-1",
        "  postroom --session bob deny 0197ab-1",
    ]
    assert verdicts.held_text([], STATUS, NOW) == "Nothing is held.\n"
    two = verdicts.held_text([hold(), hold(cause="repo-setting", scope="project")], STATUS, NOW)
    assert two.startswith("2 held by ")
    assert "(repo-setting, decided by project)" in two
    assert "this session is" not in two
    assert "; this session is bypassing\n" in verdicts.hold_text(hold(), "bob", NOW, receiver="bypassing")


@pytest.mark.rule("10.5", "04.15")
@pytest.mark.parametrize(
    ("origin", "says"),
    [
        (ALICE, f"alice [{REF}] (verified), which states prompting"),
        (CLAIMED, "somebody who claims to be alice [3fa9c1] (not verified), which states no class"),
        (NAMELESS, "somebody without a name (not verified), which states bypassing"),
        (
            Origin(kind="own_child", identity="alice-id", verified=True, name="alice"),
            f"alice [{REF}] (verified), which states no class",
        ),
        (
            Origin(kind="peer", identity="alice-id", verified=True),
            f"a session [{REF}] (verified), which states no class",
        ),
    ],
)
def test_who_a_held_message_is_from(origin: Origin, says: str) -> None:
    assert verdicts.sender_text(origin) == says


@pytest.mark.rule("03.18", "10.5")
@pytest.mark.parametrize("cause", get_args(Cause))
def test_every_cause_is_said_in_words(cause: Cause) -> None:
    assert set(verdicts.CAUSES) == set(get_args(Cause))
    line = verdicts.hold_text(hold(cause=cause), "bob", NOW).splitlines()[1]
    assert line == f"  held because {verdicts.CAUSES[cause]} ({cause}, decided by default)"


@pytest.mark.rule("10.5")
@pytest.mark.parametrize(
    ("milliseconds", "says"),
    [
        (None, "no deadline"),
        (-5, "0 s left"),
        (0, "0 s left"),
        (999, "0 s left"),
        (1000, "1 s left"),
        (60_000, "1 min left"),
        (299_999, "4 min 59 s left"),
        (3_600_000, "1 h left"),
        (7_265_000, "2 h 1 min left"),
    ],
)
def test_the_time_that_is_left(milliseconds: int | None, says: str) -> None:
    assert verdicts.left_text(milliseconds) == says


@pytest.mark.rule("10.5")
@given(st.text(alphabet="ab\n", max_size=40).map(lambda text: text * 60))
def test_a_preview_is_short_and_says_how_much_it_leaves_out(text: str) -> None:
    begins, more = verdicts.preview(text)
    lines = begins.split("\n")
    assert len(lines) <= 10
    shown = "\n".join(line.removeprefix("    ") for line in lines)
    assert len(shown) <= 600
    assert text.startswith(shown)
    assert len(shown) + more == len(text)
    said = verdicts.hold_text(hold(text), "bob", NOW)
    assert (f"… and {more:,} characters more: `postroom --session bob held --json`" in said) is (more > 0)


ids = st.text(alphabet=[chr(code) for code in range(33, 127)], min_size=1, max_size=40)


@pytest.mark.rule("10.5", "10.37", "11.7")
@given(ids, st.sampled_from(["approve", "deny"]))
def test_the_command_that_is_shown_decides_about_that_message_and_does_nothing_else(
    msg_id: str, verb: str
) -> None:
    """An id is its sender's word: a shell that is given the line sees one harmless word."""
    words = shlex.split(verdicts.deciding(verb, msg_id, "my app"))
    assert words[:3] == ["postroom", "--session", "my app"]
    assert arguments.parse(words[3:]).id == msg_id
    assert words[3] == verb
    bare = shlex.shlex(verdicts.deciding(verb, msg_id, "bob"), posix=True, punctuation_chars=True)
    bare.whitespace_split = True
    assert set(bare) - set(words) <= {"bob"}


def test_a_decision_in_words() -> None:
    accepted, denied = Decided(msg_id="m-1", state="accepted"), Decided(msg_id="m-1", state="denied")
    assert verdicts.decided_text(accepted, hold(), always=False) == (
        f"accepted: m-1, from alice [{REF}] (verified). It is in the inbox.\n"
    )
    assert "From now on its sender is accepted" in verdicts.decided_text(accepted, hold(), always=True)
    assert verdicts.decided_text(denied, None, always=False) == (
        "denied: m-1. It is dropped, and its sender cannot be told.\n"
    )


@pytest.mark.rule("03.6", "10.10")
@pytest.mark.parametrize("outcome", get_args(inbound.Outcome))
@pytest.mark.parametrize("rung", get_args(inbound.Rung))
def test_an_explanation_names_outcome_rung_and_scope(outcome: str, rung: inbound.Rung) -> None:
    explanation = Explanation(outcome=outcome, rung=rung, scope="user", cause="")
    assert verdicts.explanation_text("Message m-1", explanation).splitlines() == [
        f"Message m-1 {verdicts.OUTCOMES[outcome]}, as things are now.",
        f"  decided by the rung `{rung}`, scope user. {inbound.RUNGS[rung]}",
    ]


@pytest.mark.rule("10.10")
def test_an_explanation_says_why_it_is_held_and_what_was_decided_then() -> None:
    held = Explanation(
        outcome="held", rung="class", scope="default", cause="mode-mismatch", then="accepted: at first"
    )
    lines = verdicts.explanation_text("A message from alice that states bypassing", held).splitlines()
    assert lines[0] == (
        "A message from alice that states bypassing is held for a person (mode-mismatch), as things are now."
    )
    assert lines[2:] == ["  when it came: accepted: at first"]


@pytest.mark.rule("10.11")
def test_rules_in_words() -> None:
    rule = Rule(id="3", identity="alice-id", name="alice", since=NOW)
    assert verdicts.rules_text([rule], "bob").splitlines() == [
        f"3  alice [{REF}]  since 2026-11-30T10:15:02Z",
        "Always accepted; `postroom --session bob rules --revoke ID` ends it.",
    ]
    assert verdicts.rules_text([], "bob") == "No sender is always accepted.\n"
    assert verdicts.revoked_text(rule) == f"alice [{REF}] is no longer accepted by rule.\n"
    assert verdicts.rules_text([], "bob", alone=False) == "No sender is now always accepted.\n"


# ── a peer's words ───────────────────────────────────────────────────────────────────────────────


def everything(words: str) -> list[str]:
    """Every text for people, with a peer's words wherever a peer's words can come; a message's text last."""
    claimed = Origin(kind="peer", identity="process:1:2", name=words)
    verified = Origin(kind="peer", identity="x", verified=True, name=words, address="uds:/x.sock")
    rule = Rule(id="1", identity="x", name=words, since=NOW)
    explanation = Explanation(outcome="held", rung="class", scope="user", cause="mode-mismatch", then=words)
    return [
        verdicts.decided_text(Decided(msg_id="m", state="accepted"), hold(origin=verified), always=True),
        verdicts.decided_text(Decided(msg_id="m", state="denied"), hold(origin=claimed), always=False),
        verdicts.explanation_text(f"A message from {words} that states no class", explanation),
        verdicts.rules_text([rule], "bob"),
        verdicts.revoked_text(rule),
        verdicts.held_text([hold(words, claimed)], STATUS, NOW),
        verdicts.held_text([hold(words, verified), hold(words, claimed)], STATUS, NOW),
    ]


@pytest.mark.rule("10.37")
@given(HOSTILE)
def test_nothing_of_a_peers_acts_on_a_terminal(words: str) -> None:
    for text in everything(words):
        assert not ACTS.search(text.replace("\n", ""))


@pytest.mark.rule("10.37", "11.7")
@given(HOSTILE)
def test_no_line_of_a_peers_text_can_pass_for_one_of_ours(words: str) -> None:
    """Whatever it holds: as many lines of our own as with harmless words; what is cut off is said on one more."""
    for text, harmless in zip(everything(words), everything("w"), strict=True):
        ours = [line for line in text.splitlines() if not line.startswith("    ")]
        cut = [line for line in ours if re.match(r"  … and [\d,]+ characters more: ", line)]
        assert len(ours) - len(cut) <= len(
            [line for line in harmless.splitlines() if not line.startswith("    ")]
        )


@given(HOSTILE)
def test_a_document_keeps_a_held_text_as_it_came(words: str) -> None:
    [one] = json.loads(json.dumps(verdicts.held_document([hold(words)])))["held"]
    assert one["text"] == words
