"""The default rule, every cell of its table, between real processes over real sockets (03.19 to 03.22).

Three receivers: bold never asks for permission, calm does, and odd reports a mode that no file of ours has. Each has a
child that speaks by hand. The senders: carol never asks, alice does, and what states nothing is an outsider's command, a
bare text by hand, and odd itself. A word that is no class comes by hand, from nobody and from a registered process.

Everything is sent once, looked at while it waits, and looked at again once the receivers have ended: by then every
notice about it has left. What is expected is written down here, cell by cell, as the chapter has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.desk import COMMAND, SECONDS, Desk, wait_until
from tests.looking import looked
from tests.strangers import Raw, enveloped, frame, private_desk

PARTIES = Path(__file__).with_name("parties")
SPEAKER = str(PARTIES / "speaker.py")

RECEIVERS = {"bold": "bypassing", "calm": "prompting", "odd": "unknown"}
SENDERS = ("carol", "alice", "outsider", "bare", "odd", "nobody's odd word", "odd's odd word")
CHILDREN = ("child: bypass", "child: prompting", "child: nothing", "child: odd word")
TOKEN = "child: by its token"
"""A process of another family that shows what bold has given to its own (05.25)."""

BYPASS, PROMPTING, ODD_WORD = (f' from-mode="{word}"' for word in ("bypass", "prompting", "acceptEdits"))

SAYS = {
    "carol": "bypassing",
    "alice": "prompting",
    "outsider": "nothing",
    "bare": "nothing",
    "odd": "nothing",
    "nobody's odd word": "nothing",
    "odd's odd word": "nothing",
}
"""Who sends → what it says of its class, in the words of the table; a word that is none counts as nothing (03.5)."""

ACCEPT, HOLD = "accepted", "held"

# receiver, what the sender says → what becomes of it, by which rung, and why it is held
TABLE: dict[tuple[str, str], tuple[str, str, str | None]] = {
    ("bypassing", "bypassing"): (ACCEPT, "class", None),
    ("bypassing", "prompting"): (HOLD, "class", "mode-mismatch"),
    ("bypassing", "nothing"): (HOLD, "default", "no-mode-asserted"),
    ("prompting", "bypassing"): (HOLD, "class", "mode-mismatch"),
    ("prompting", "prompting"): (ACCEPT, "class", None),
    ("prompting", "nothing"): (ACCEPT, "default", None),
    ("unknown", "bypassing"): (HOLD, "mode-unknown", "mode-unknown"),
    ("unknown", "prompting"): (HOLD, "mode-unknown", "mode-unknown"),
    ("unknown", "nothing"): (HOLD, "mode-unknown", "mode-unknown"),
}
OWN_CHILD = (ACCEPT, "own-child", None)

WHY = {
    "mode-mismatch": "that session has another permission class than its sender states",
    "no-mode-asserted": "its sender states no permission class, and that session never asks for permission",
    "mode-unknown": "the permission mode of that session is not known",
}
"""How the notice to the sender says a cause in words."""

CELLS = [
    *((receiver, sender) for receiver in RECEIVERS for sender in SENDERS if not sender.startswith(receiver)),
    *((receiver, child) for receiver in RECEIVERS for child in CHILDREN),
    ("bold", TOKEN),
]
"""Nobody sends to itself."""


@dataclass
class Told:
    """What was seen.

    Attributes:
        ids: (receiver, sender) → the message's id.
        held, inbox: receiver → id → the row that `held` and `inbox` have of it.
        explained: id → what `explain` says.
        supposed: (receiver, what a sender would state) → what `explain` says of that.
        status: receiver → its status.
        notices: sender → what it was told, in order, all of it.
    """

    ids: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    held: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    inbox: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    explained: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    supposed: dict[tuple[str, str], dict[str, Any]] = field(
        default_factory=dict[tuple[str, str], dict[str, Any]]
    )
    status: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    notices: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])


@contextmanager
def party(desk: Desk, *words: str) -> Generator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A program that a test speaks to line by line, and its first line; it ends with its standard input."""
    with subprocess.Popen(
        words, env=desk.environ, cwd=desk.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
            process.communicate(timeout=SECONDS)
            assert process.returncode == 0
        finally:
            process.kill()


def ask(process: subprocess.Popen[str], **told: Any) -> dict[str, Any]:
    """Tells such a program to speak; returns the acknowledgement that it got."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(told) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def by_hand(text: str, attributes: str, **more: Any) -> dict[str, Any]:
    """A frame in an envelope with these attributes."""
    return frame("", message=enveloped(text, attributes), **more)


def children_speak(seen: Told, receiver: str, child: subprocess.Popen[str], path: str) -> None:
    """A receiver's own child says each of the four things to it."""
    for who, attributes in zip(CHILDREN, (BYPASS, PROMPTING, "", ODD_WORD), strict=True):
        said = ask(child, by="child", path=path, frame=by_hand(f"{who} to {receiver}", attributes))
        assert said["status"] == "queued"
        seen.ids[receiver, who] = said["msg_id"]


def show_token(seen: Told, receiver: str, known: dict[str, str]) -> None:
    """Somebody who descends from no session shows a receiver's child token."""
    with Raw(known["socket"]) as raw:
        raw.say({"type": "auth", "token": known["token"]})
        said = raw.post(f"with the token of {receiver}")
        assert said["status"] == "queued"
        seen.ids[receiver, TOKEN] = said["msg_id"]


def strangers_write(desk: Desk, seen: Told, receiver: str, path: str) -> None:
    """Everybody but odd and the children writes to a receiver, whose acknowledgement is always the same."""
    for sender in ("carol", "alice"):
        said = desk.send(sender, receiver, f"{sender} to {receiver}")
        assert said["status"] == "queued"
        seen.ids[receiver, sender] = said["msg_id"]
    said = desk.ok("send", receiver, f"an outsider to {receiver}")
    assert said["status"] == "queued"
    seen.ids[receiver, "outsider"] = said["msg_id"]
    with Raw(path) as raw:
        for sender, written in (
            ("bare", frame(f"bare to {receiver}")),
            ("nobody's odd word", by_hand(f"odd word to {receiver}", ODD_WORD)),
        ):
            raw.say(written)
            assert raw.hear() == {"type": "ack", "msg_id": written["msg_id"], "status": "queued"}
            seen.ids[receiver, sender] = written["msg_id"]


def odd_writes(desk: Desk, seen: Told, receiver: str, path: str, odd: Any, address: str) -> None:
    """odd writes by the command, and by hand from its registered process."""
    said = desk.send("odd", receiver, f"odd to {receiver}")
    seen.ids[receiver, "odd"] = said["msg_id"]
    said = ask(
        odd, by="host", path=path, frame=by_hand(f"odd's word to {receiver}", ODD_WORD, **{"from": address})
    )
    assert said["status"] == "queued"
    seen.ids[receiver, "odd's odd word"] = said["msg_id"]


def look(desk: Desk, seen: Told, receiver: str, path: str) -> None:
    """Everything that the commands say of what came to a receiver."""
    own = ("--session", receiver)
    seen.status[receiver] = desk.ok(*own, "status")
    seen.held[receiver] = {one["msg_id"]: one for one in desk.ok(*own, "held")["held"]}
    seen.inbox[receiver] = {one["msg_id"]: one for one in desk.ok(*own, "inbox")["messages"]}
    there = {**seen.status[receiver], "socket": path}
    for (to, _), msg_id in seen.ids.items():
        if to == receiver:
            seen.explained[msg_id] = looked(desk, there, "explain", msg_id)
    for stated in ("bypassing", "prompting", "none"):
        seen.supposed[receiver, stated] = looked(desk, there, "explain", "--mode", stated)


def listen(desk: Desk, seen: Told, sender: str, receivers: tuple[str, ...]) -> None:
    """Takes what a sender is told, until it has heard of the end of everything that these receivers held of it."""
    heard = seen.notices[sender] = []
    held = {
        msg_id
        for (receiver, who), msg_id in seen.ids.items()
        if who == sender and receiver in receivers and msg_id in seen.held[receiver]
    }

    def ended() -> bool:
        heard.extend(desk.ok("--session", sender, "inbox", "--take")["notices"])
        return held <= {one["msg_id"] for one in heard if one["kind"] == "expired"}

    wait_until(ended)


@pytest.fixture(scope="module")
def seen() -> Iterator[Told]:
    """Everything sent, and everything that was seen of it."""
    seen = Told()
    with private_desk() as desk:
        desk.open("alice")
        desk.open("carol", "--mode", "bypassPermissions")
        with party(
            desk, sys.executable, "-P", str(PARTIES / "host.py"), "odd", "someNewMode", SPEAKER
        ) as odd:
            with ExitStack() as stack:
                paths = {"odd": str(odd[1]["address"]).removeprefix("uds:")}
                for name, mode in (("bold", "bypassPermissions"), ("calm", "default")):
                    command = (COMMAND, "open", "--name", name, "--mode", mode, "--", sys.executable, "-P")
                    child, known = stack.enter_context(party(desk, *command, SPEAKER))
                    paths[name] = known["socket"]
                    children_speak(seen, name, child, known["socket"])
                    odd_writes(desk, seen, name, paths[name], odd[0], odd[1]["address"])
                    if name == "bold":
                        show_token(seen, name, known)
                children_speak(seen, "odd", odd[0], paths["odd"])
                for receiver, path in paths.items():
                    strangers_write(desk, seen, receiver, path)
                    look(desk, seen, receiver, path)
            listen(desk, seen, "odd", ("bold", "calm"))
        for sender in ("alice", "carol"):
            listen(desk, seen, sender, ("bold", "calm", "odd"))
        yield seen


def expected(receiver: str, sender: str) -> tuple[str, str, str | None]:
    """What the chapter says of a cell."""
    return OWN_CHILD if sender.startswith("child") else TABLE[RECEIVERS[receiver], SAYS[sender]]


def test_every_cell_of_the_table_is_sent(seen: Told) -> None:
    """And nothing else came: what a cell does not explain would be in no receiver's hands."""
    assert set(seen.ids) == set(CELLS)
    assert {(RECEIVERS[receiver], SAYS[sender]) for receiver, sender in CELLS if sender in SAYS} == set(TABLE)
    for receiver in RECEIVERS:
        there = {*seen.held[receiver], *seen.inbox[receiver]}
        assert there == {msg_id for (to, _), msg_id in seen.ids.items() if to == receiver}


@pytest.mark.rule("03.1", "03.3", "03.4", "10.27", "10.8")
def test_each_receiver_has_the_class_of_its_mode(seen: Told) -> None:
    assert {name: status["class"] for name, status in seen.status.items()} == RECEIVERS
    assert seen.status["odd"]["mode"] == "someNewMode"
    warned = {name for name, status in seen.status.items() if "never asks" in str(status["problems"])}
    assert warned == {"bold"}


@pytest.mark.rule("03.5", "03.15", "03.16", "03.17", "03.19", "03.20", "03.21", "03.22", "10.5", "10.26")
@pytest.mark.parametrize(("receiver", "sender"), CELLS, ids=lambda word: word.replace(" ", "-"))
def test_what_becomes_of_it(seen: Told, receiver: str, sender: str) -> None:
    """It is held, with its cause and a deadline, or in the inbox, and never both."""
    outcome, _, cause = expected(receiver, sender)
    msg_id = seen.ids[receiver, sender]
    held, taken = seen.held[receiver].get(msg_id), seen.inbox[receiver].get(msg_id)
    assert (held is not None, taken is not None) == (outcome == HOLD, outcome == ACCEPT)
    if held is not None:
        assert (held["cause"], held["expires_at"] is not None) == (cause, True)
        assert held["from"]["class"] == {"carol": "bypassing", "alice": "prompting"}.get(sender)
    row = held or taken
    assert row is not None
    registered = sender in ("alice", "carol", "odd", "odd's odd word")
    assert row["from"]["verified"] is (registered or sender.startswith("child"))
    if registered:
        assert row["from"]["name"] == sender.split("'")[0]


@pytest.mark.rule("03.6", "10.10", "10.29")
@pytest.mark.parametrize(("receiver", "sender"), CELLS, ids=lambda word: word.replace(" ", "-"))
def test_explain_names_the_rung_that_decided(seen: Told, receiver: str, sender: str) -> None:
    outcome, rung, cause = expected(receiver, sender)
    said = seen.explained[seen.ids[receiver, sender]]
    assert [said[key] for key in ("outcome", "rung", "scope", "cause")] == [outcome, rung, "default", cause]
    assert said["then"] == f"{outcome}: {cause or rung}"


@pytest.mark.rule("03.6", "10.10")
@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("says", ["bypassing", "prompting", "nothing"])
def test_explain_says_beforehand_what_would_become_of_it(seen: Told, receiver: str, says: str) -> None:
    outcome, rung, cause = TABLE[RECEIVERS[receiver], says]
    said = seen.supposed[receiver, "none" if says == "nothing" else says]
    assert (said["outcome"], said["rung"], said["cause"]) == (outcome, rung, cause)


@pytest.mark.rule("03.49", "03.50", "03.51", "03.53", "03.46")
@pytest.mark.parametrize(
    ("receiver", "sender"),
    [cell for cell in CELLS if cell[1] in ("alice", "carol", "odd")],
)
def test_what_a_sender_that_can_be_told_is_told(seen: Told, receiver: str, sender: str) -> None:
    """Of what is held: why, that nobody is asked there, when it ends; then that the session ended. Else nothing."""
    outcome, _, cause = expected(receiver, sender)
    msg_id = seen.ids[receiver, sender]
    told = [one for one in seen.notices[sender] if one["msg_id"] == msg_id]
    if outcome == ACCEPT:
        assert told == []
        return
    held, ended = told
    assert cause is not None
    assert [(one["kind"], one["about"]) for one in told] == [("held", receiver), ("expired", receiver)]
    expires_at = seen.held[receiver][msg_id]["expires_at"]
    begins = f"It says: “Held because {WHY[cause]}; nobody can approve it there; it ends at "
    assert held["detail"].startswith(begins)
    assert held["detail"].endswith(f"{expires_at[11:16]}Z unless its owner does.”")
    assert "ended before anybody decided" in ended["detail"]


@pytest.mark.rule("03.49", "03.22")
def test_nobody_is_told_of_what_others_sent(seen: Told) -> None:
    """Neither of an outsider's message nor of a child's, nor of what its session did not send; and of nothing twice."""
    for sender, notices in seen.notices.items():
        own = {msg_id for (_, who), msg_id in seen.ids.items() if who == sender}
        assert {one["msg_id"] for one in notices} <= own
        assert len({(one["msg_id"], one["kind"]) for one in notices}) == len(notices)


@pytest.mark.rule("03.5", "04.15")
def test_a_word_that_is_no_class_is_no_envelope_either(seen: Told) -> None:
    """What stands around the text is then text: nothing that it claims counts."""
    msg_id = seen.ids["calm", "nobody's odd word"]
    row = seen.inbox["calm"][msg_id]
    assert row["from"]["class"] is None
    assert row["text"] == (
        '<cross-session-message from-mode="acceptEdits">\nodd word to calm\n</cross-session-message>'
    )
