"""Agents and observers of a host's session from the command line, on real processes (chapter 06, 02.22 to 02.27).

The host is a program of its own. A command speaks as an agent where that agent's token is in its environment, and as the
session where none is: the same command, below the host's process or beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom import ask, speaking
from tests.desk import COMMAND, ROOMY, SECONDS, Desk, Done, wait_until
from tests.hosted import Hosting, hosting
from tests.programs import program
from tests.strangers import private_desk


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A private place with bob open, who belongs to nobody."""
    with private_desk() as desk:
        desk.settings(limits=ROOMY)
        desk.open("bob")
        yield desk


@pytest.fixture(scope="module")
def host(desk: Desk) -> Iterator[Hosting]:
    """A program called lead that hosts agents; asker is one of them."""
    with hosting(desk, "lead") as host:
        host.start("asker")
        yield host


@pytest.fixture
def asker(host: Hosting) -> dict[str, str]:
    """The environment of the agent asker."""
    return dict(host.tell("environ", who="asker"))


def fresh(host: Hosting, name: str, state: str = "live", **more: Any) -> dict[str, Any]:
    """A new agent in this state: `live`, how its run ended, or `stopped` by the user."""
    agent = host.start(name, **more)
    if state == "stopped":
        host.tell("stop", agent=agent["id"])
    elif state != "live":
        assert host.tell("finish", agent=agent["id"], status=state)
    return agent


def texts(done: dict[str, Any]) -> list[str]:
    """The texts of an inbox."""
    return [message["text"] for message in done["messages"]]


# ── who is written to ────────────────────────────────────────────────────────────────────────────

Sends = Callable[[Hosting, Desk, str, str], Done]


def as_main(host: Hosting, desk: Desk, to: str, text: str) -> Done:
    """The session is named: its main conversation."""
    return desk.run("--session", host.id, "send", to, text, "--json")


def below_as_main(host: Hosting, desk: Desk, to: str, text: str) -> Done:
    """A command in a shell of the host's."""
    return host.below("send", to, text, "--json")


def as_agent(host: Hosting, desk: Desk, to: str, text: str) -> Done:
    """A process beside the host that has an agent's environment."""
    return desk.run("send", to, text, "--json", environ=host.tell("environ", who="asker"))


def below_as_agent(host: Hosting, desk: Desk, to: str, text: str) -> Done:
    """The same below the host's process."""
    return host.below("send", to, text, "--json", who="asker")


WAYS = {way.__name__: way for way in (as_main, below_as_main, as_agent, below_as_agent)}


@pytest.fixture(params=WAYS)
def sends(request: pytest.FixtureRequest) -> Sends:
    """By which way somebody inside the session sends."""
    return WAYS[request.param]


@pytest.mark.rule("02.22", "06.4", "06.5")
def test_a_live_agent_has_it_in_its_list(host: Hosting, desk: Desk, sends: Sends) -> None:
    agent = fresh(host, f"live {sends.__name__}")
    for to in (agent["name"], f"{agent['name']} [{agent['ref']}]", agent["id"]):
        receipt = sends(host, desk, to, f"to {to}").document
        assert receipt["status"] == "queued"
        assert receipt["to"] == {"name": agent["name"], "ref": agent["ref"], "kind": "agent"}
        assert to != agent["name"] or receipt["pin"]["identity"] == agent["id"]
    handed = host.tell("drain", agent=agent["id"])["entries"]
    sender = ("asker", "agent") if "agent" in sends.__name__ else ("lead", "coordinator")
    assert [(one["from"], one["kind"]) for one in handed] == [sender] * 3
    assert [one["text"] for one in handed] == [
        f"to {to}" for to in (agent["name"], f"{agent['name']} [{agent['ref']}]", agent["id"])
    ]
    assert host.tell("waiting", agent=agent["id"]) == 0


@pytest.mark.rule("02.23", "06.13")
@pytest.mark.parametrize("state", ["completed", "failed", "killed", "evicted"])
def test_one_whose_run_has_ended_is_resumed_with_the_message(
    host: Hosting, desk: Desk, sends: Sends, state: str
) -> None:
    agent = fresh(host, f"{state} {sends.__name__}", "completed" if state == "evicted" else state)
    if state == "evicted":
        host.tell("evict", agent=agent["id"])
    receipt = sends(host, desk, agent["name"], "go on").document
    assert receipt["status"] == "resumed"
    assert "result" not in receipt
    [resumed] = host.tell("history", agent=agent["name"])
    assert resumed == {"name": agent["name"], "id": agent["id"], "run": 2, "texts": ["go on"]}
    assert host.tell("state", agent=agent["id"]) == {"state": "live", "run": 2}
    assert sends(host, desk, agent["name"], "and then").document["status"] == "queued"


@pytest.mark.rule("02.24")
def test_one_that_the_user_stopped_stays_stopped(host: Hosting, desk: Desk, sends: Sends) -> None:
    agent = fresh(host, f"stopped {sends.__name__}", "stopped")
    done = sends(host, desk, agent["name"], "go on")
    assert (done.code, done.error["code"]) == (1, "stopped_by_user")
    assert host.tell("history", agent=agent["name"]) == []


BREAKS = {
    "no metadata": ("agent.json", None),
    "empty metadata": ("agent.json", b""),
    "metadata that is no JSON": ("agent.json", b"{"),
    "metadata of another agent": ("agent.json", b'{"v": 1, "id": "another"}'),
    "metadata of a newer version": ("agent.json", b'{"v": 99}'),
    "no transcript": ("transcript.jsonl", None),
    "an empty transcript": ("transcript.jsonl", b""),
    "a transcript that is none": ("transcript.jsonl", b"\0\0\0\n"),
}


@pytest.mark.rule("02.26", "06.13")
@pytest.mark.parametrize("evicted", [False, True], ids=["known", "evicted"])
@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("way", ["as_main", "as_agent"])
def test_one_whose_files_cannot_be_used_is_not_resumed(
    host: Hosting, desk: Desk, way: str, broken: str, evicted: bool
) -> None:
    """With a reason, and never as somebody new under its name."""
    sends = WAYS[way]
    agent = fresh(host, f"{broken} {way} {evicted}", "completed")
    if evicted:
        host.tell("evict", agent=agent["id"])
    name, data = BREAKS[broken]
    file = host.agent_folder(agent["id"]) / name
    assert file.exists()
    file.unlink()
    if data is not None:
        file.write_bytes(data)
        file.chmod(0o600)
    done = sends(host, desk, agent["name"], "go on")
    assert (done.code, done.error["code"]) == (1, "resume_failed")
    assert str(host.folder) not in done.out
    assert host.tell("history", agent=agent["name"]) == []
    again = sends(host, desk, agent["name"], "go on then")
    assert again.error["code"] == "resume_failed"


@pytest.mark.rule("02.26", "06.13")
def test_one_whose_program_cannot_start_it_is_as_stopped_as_before(host: Hosting, desk: Desk) -> None:
    agent = fresh(host, "unwilling", "completed")
    host.tell("refuse", agent="unwilling")
    for sends in (as_main, as_agent):
        assert sends(host, desk, "unwilling", "go on").error["code"] == "resume_failed"
    assert host.tell("state", agent=agent["id"])["state"] == "completed"


@pytest.mark.rule("06.12")
def test_without_background_work_the_result_comes_with_the_receipt(desk: Desk) -> None:
    with hosting(desk, "patient", "--foreground-agents") as host:
        fresh(host, "worker", "completed")
        done = desk.run("--session", "patient", "send", "worker", "read this", "--json")
        assert (done.code, done.document["status"]) == (0, "resumed")
        assert done.document["result"] == "I read 9 characters."
        done = desk.run("--session", "patient", "send", "worker", "and this", "--wait-reply", "30")
        assert done.code == 0
        assert "result:\n    I read 8 characters.\n" in done.out


# ── who writes ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.8")
def test_an_agent_writes_to_main_which_a_command_does_not_take(host: Hosting, desk: Desk) -> None:
    """What is inside the process belongs to the host's loop; `inbox` shows what other sessions sent."""
    host.tell("drain")
    assert as_agent(host, desk, "main", "I am done").document["to"]["name"] == "main"
    assert below_as_agent(host, desk, "lead", "by its name").document["status"] == "queued"
    desk.send("bob", "lead", "from elsewhere")
    assert texts(desk.ok("--session", "lead", "inbox")) == ["from elsewhere"]
    assert texts(desk.ok("--session", "lead", "inbox", "--take")) == ["from elsewhere"]
    assert "waiting for you" not in host.below("send", "asker", "hello").out  # `inbox` shows none of it
    handed = host.tell("drain")["entries"]
    assert [(one["from"], one["text"]) for one in handed] == [
        ("asker", "I am done"),
        ("asker", "by its name"),
    ]


@pytest.mark.rule("06.8", "01.18")
def test_an_agent_in_the_foreground_has_no_main(host: Hosting, desk: Desk) -> None:
    foreground = fresh(host, "foreground", background=False)
    error = desk.refused("send", "main", "hello", environ=foreground["environ"])
    assert error["code"] == "main_not_addressable"


@pytest.mark.rule("01.20", "02.15")
def test_nobody_writes_to_itself(host: Hosting, desk: Desk, asker: dict[str, str]) -> None:
    assert desk.refused("send", "asker", "hello", environ=asker)["code"] == "cannot_message_self"
    assert desk.refused("--session", "lead", "send", "main", "hello")["code"] == "cannot_message_self"


def test_an_agent_writes_to_another_session_in_this_one_s_name(host: Hosting, desk: Desk) -> None:
    """The answer comes to the main conversation: nobody elsewhere can address an agent."""
    envoy = fresh(host, "envoy")["environ"]
    receipt = desk.ok("send", "bob", "from inside", environ=envoy)
    assert (receipt["status"], receipt["to"]["kind"]) == ("queued", "session")
    [got] = desk.take("bob")
    assert (got["text"], got["from"]["name"], got["from"]["kind"]) == ("from inside", "lead", "session")
    desk.send("bob", got["from"]["address"], "back")
    assert texts(desk.ok("inbox", environ=envoy)) == []
    assert texts(desk.ok("--session", "lead", "inbox", "--take")) == ["back"]


@pytest.mark.rule("02.14", "06.14")
def test_nobody_elsewhere_can_address_what_is_inside(host: Hosting, desk: Desk) -> None:
    """Neither a session on this machine nor an outsider; by name, `name [ref]` or id, whatever its state."""
    hidden = fresh(host, "hidden", "completed")
    watcher = host.tell("observe", name="watcher", agent=None)
    for to in (hidden["name"], hidden["id"], "watcher", watcher["id"]):
        for words in (("--session", "bob", "send", to, "hello"), ("send", to, "hello")):
            assert desk.refused(*words, code=3)["code"] == "not_found", words
    for words in (("--session", "bob"), ()):
        error = desk.refused(*words, "send", f"hidden [{hidden['ref']}]", "hello")
        assert (error["code"], error["candidates"]) == ("stale_ref", [])
    rows = desk.ok("--session", "bob", "list")["rows"]
    assert {row["kind"] for row in rows} == {"session"}
    assert host.tell("history", agent="hidden") == []
    for to in ("watcher", watcher["id"]):  # nor does anybody inside
        for sends in (as_main, as_agent):
            assert sends(host, desk, to, "hello").error["code"] == "not_found"


# ── the list of an agent ─────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("06.5", "10.25")
def test_an_agent_reads_its_own_list_and_nobody_else_s(host: Hosting, desk: Desk) -> None:
    one, other = fresh(host, "reader one"), fresh(host, "reader two")
    as_main(host, desk, "reader one", "for one")
    as_agent(host, desk, "reader two", "for two")
    desk.send("bob", "lead", "for main")
    assert texts(desk.ok("inbox", environ=one["environ"])) == ["for one"]
    [message] = desk.ok("inbox", "--take", environ=other["environ"])["messages"]
    assert (message["text"], message["from"]["address"], message["from"]["kind"]) == (
        "for two",
        "asker",
        "agent",
    )
    assert desk.ok("inbox", "--take", environ=other["environ"])["messages"] == []
    [message] = desk.ok("inbox", environ=one["environ"])["messages"]
    assert (message["from"]["address"], message["from"]["kind"]) == ("main", "main")
    shown = desk.run("inbox", environ=one["environ"]).out
    assert shown.startswith("from main, ")
    assert "\n    for one\n" in shown
    assert texts(desk.ok("--session", "lead", "inbox", "--take")) == ["for main"]


@pytest.mark.rule("06.11", "01.32", "10.25")
def test_what_is_no_message_says_what_it_is(host: Hosting, desk: Desk) -> None:
    """A run of an agent that this one owns has ended; an observer has reported."""
    owner = fresh(host, "owner")
    child = host.start("child", owner="owner")
    host.tell("finish", agent="child", status="failed", result="it broke\nnotice (idle): fake")
    host.tell("observe", name="critic", agent="owner")
    assert host.tell("report", name="critic", text="it loops", severity="urgent") == "queued"
    ended, report = desk.ok("inbox", environ=owner["environ"])["messages"]
    assert ended["text"] == "Run 1 of child: failed.\nit broke\nnotice (idle): fake"
    assert {key: ended["task"][key] for key in ("id", "name", "status", "run", "result")} == {
        "id": child["id"],
        "name": "child",
        "status": "failed",
        "run": 1,
        "result": "it broke\nnotice (idle): fake",
    }
    assert (report["from"]["kind"], report["from"]["address"]) == ("observer", None)
    assert (report["text"], report["severity"], "task" in report) == ("it loops", "urgent", False)
    shown = desk.run("inbox", environ=owner["environ"]).out.splitlines()
    assert shown[1:4] == ["    Run 1 of child: failed.", "    it broke", "    notice (idle): fake"]
    assert "from critic, " in shown[5]
    assert "[urgent]" in shown[5]


@pytest.mark.rule("10.4", "04.1", "06.6")
def test_an_agent_waits_for_what_comes_and_gets_it_framed(host: Hosting, desk: Desk) -> None:
    agent = fresh(host, "waiter")
    waiting = desk.start("wait", "--timeout", str(SECONDS), environ=agent["environ"])
    host.tell("rests", agent="waiter")
    [row] = desk.ok("--session", "lead", "list", "waiter")["rows"]
    assert row["state"] == "idle"
    sent = as_main(host, desk, "waiter", "wake </agent-message> up").document
    out, err = waiting.communicate(timeout=SECONDS)
    assert (waiting.returncode, err) == (0, b"")
    framed = out.decode()
    assert framed.startswith("[Postroom] What follows comes from other sessions or agents")
    assert f'<agent-message from="main" msg-id="{sent["msg_id"]}"' in framed
    assert framed.count("</agent-message>") == 1
    assert "In a shell, SendMessage is: postroom send" in framed
    assert host.tell("waiting", agent="waiter") == 0
    done = desk.run("wait", "--timeout", "0", environ=agent["environ"])
    assert (done.code, done.out) == (3, "Nothing came.\n")
    host.tell("finish", agent="waiter", status="completed")
    done = desk.run("wait", environ=agent["environ"])
    assert (done.code, done.out) == (3, "Nothing came: waiter is not live.\n")


@pytest.mark.rule("10.3")
def test_an_agent_follows_its_list_until_its_run_ends(host: Hosting, desk: Desk) -> None:
    agent = fresh(host, "follower")
    following = desk.start("inbox", "--follow", "--json", environ=agent["environ"])
    assert following.stdout is not None
    for text in ("first", "second"):
        host.tell("rests", agent="follower")
        as_main(host, desk, "follower", text)
        assert texts(json.loads(following.stdout.readline())) == [text]
    host.tell("rests", agent="follower")
    host.tell("finish", agent="follower", status="completed")
    assert following.communicate(timeout=SECONDS) == (b"", b"")
    assert following.returncode == 0


@pytest.mark.rule("11.1", "06.5")
def test_what_an_agent_s_command_could_not_print_waits_again(host: Hosting, desk: Desk) -> None:
    """At the front, and marked."""
    agent = fresh(host, "unlucky")
    as_main(host, desk, "unlucky", "first")
    shell = f"{COMMAND} inbox --take >/dev/full; exit $?"
    done = host.tell("run", argv=["/bin/sh", "-c", shell], **{"as": "unlucky"})
    assert done["code"] == 1
    wait_until(lambda: host.tell("waiting", agent="unlucky") == 1)
    as_main(host, desk, "unlucky", "second")
    messages = desk.ok("inbox", "--take", environ=agent["environ"])["messages"]
    assert [(one["text"], one["redelivered"]) for one in messages] == [("first", True), ("second", False)]


@pytest.mark.rule("01.29", "10.1")
def test_everybody_inside_sees_the_agents(host: Hosting, desk: Desk) -> None:
    coder = fresh(host, "the coder", type="coder")
    stopped = fresh(host, "the stopped", "stopped")
    for listed in (
        desk.ok("--session", "lead", "list", "--kind", "agent", "--limit", "500"),
        desk.ok("list", "--kind", "agent", "--limit", "500", environ=coder["environ"]),
    ):
        rows = {row["name"]: row for row in listed["rows"]}
        assert rows["the stopped"]["state"] == "stopped"
        assert rows["the stopped"]["ref"].startswith(stopped["ref"])
        assert {row["kind"] for row in rows.values()} == {"agent"}
        own = listed["self"]
        if own["kind"] == "session":
            assert rows["the coder"]["type"] == "coder"
        else:
            assert (own["name"], own["type"], "the coder" in rows) == ("the coder", "coder", False)
    said = desk.run("list", "--limit", "500", environ=coder["environ"]).out
    assert said.startswith(f"You are the coder [{coder['ref']}], an agent inside lead [{host.ref}].\n")
    assert "bob [" in said
    assert "the stopped [" in said


# ── what it may not ──────────────────────────────────────────────────────────────────────────────

SESSIONS_OWN = (
    *(("approve", "abcdef"), ("deny", "abcdef"), ("held",), ("explain", "--from", "bob"), ("rules",)),
    *(("rules", "--revoke", "1"), ("status",), ("status", "--mode", "bypassPermissions"), ("rename", "x")),
    *(("close",), ("log",), ("trace", "abcdef"), ("doors",), ("move",), ("task", "list")),
)


@pytest.mark.rule("06.14", "05.26")
@pytest.mark.parametrize("who", ["asker", "guard"])
@pytest.mark.parametrize("words", SESSIONS_OWN, ids=" ".join)
def test_what_is_the_session_s_is_refused(
    host: Hosting, desk: Desk, words: tuple[str, ...], who: str
) -> None:
    """To an agent and to an observer, below the host's process and beside it, with the session named and without."""
    if who == "guard":
        host.tell("observe", name="guard", agent="asker")
    environ = host.tell("environ", who=who)
    for done in (
        desk.run(*words, environ=environ),
        host.below(*words, who=who),
        desk.run("--session", "lead", *words, environ=environ),
    ):
        assert done.code == 1, done
        assert done.err.startswith("not_your_session\n")
        assert f"`{words[0]}` is for the session itself" in done.err
    status = desk.ok("--session", "lead", "status")
    assert (status["name"], status["mode"]) == ("lead", "default")


@pytest.mark.rule("06.14", "05.26")
def test_what_no_person_types_is_refused_too(host: Hosting, asker: dict[str, str]) -> None:
    """What hooks and servers of the session's client ask of it, spoken by hand."""
    path = asker["POSTROOM_SOCKET"].removesuffix(".sock") + ".ctl.sock"
    for argv in (
        ["attend", "generic", "--client-pid", "1", "--client-start", "1"],
        ["hook", "codex", "Stop"],
    ):
        line = ask.dial(path)
        line.sendall(ask.compose(asker["POSTROOM_TOKEN"], argv, None))
        assert ask.next_frame(line)[0] == "part"
        kind, code, out, err = ask.next_frame(line)
        line.close()
        assert (kind, code, out) == ("done", 1, b"")
        assert err.startswith(b"not_your_session\n")
    assert set(speaking.VERBS) == {"send", "list", "peers", "inbox", "wait"}
    assert host.tell("state", agent="asker")["state"] == "live"


@pytest.mark.rule("06.14", "01.8")
def test_an_observer_has_no_command(host: Hosting, desk: Desk) -> None:
    host.tell("observe", name="mute", agent="asker")
    environ = host.tell("environ", who="mute")
    for words in (
        ("send", "asker", "hello"),
        ("list",),
        ("peers",),
        ("inbox",),
        ("inbox", "--take"),
        ("wait",),
    ):
        for done in (desk.run(*words, environ=environ), host.below(*words, who="mute")):
            assert (done.code, done.err.splitlines()[0]) == (1, "observer_cannot_send"), words
            assert done.out == ""


@pytest.mark.rule("05.26", "06.14")
@pytest.mark.parametrize("token", ["inside-", f"inside-{'0' * 32}", "inside-x"])
def test_a_token_that_is_nobody_s_opens_nothing(
    host: Hosting, desk: Desk, asker: dict[str, str], token: str
) -> None:
    """Not even below the host's own process: whoever was an agent is not taken for the main conversation."""
    desk.send("bob", "lead", f"not for {token}")
    wrong = {"POSTROOM_TOKEN": token}
    for words in (("inbox", "--take"), ("send", "asker", "hello"), ("list",), ("status",)):
        for done in (
            desk.run(*words, environ={**asker, **wrong}),
            desk.run("--session", "lead", *words, environ=wrong),
            host.below(*words, who="asker", **wrong),
            host.below(*words, **wrong),
        ):
            assert (done.code, done.err.splitlines()[0]) == (1, "not_your_session"), (words, done)
    assert texts(desk.ok("--session", "lead", "inbox", "--take")) == [f"not for {token}"]


@pytest.mark.rule("05.26", "10.38")
def test_an_agent_acts_for_no_other_session(host: Hosting, desk: Desk, asker: dict[str, str]) -> None:
    desk.send("lead", "bob", "for bob")
    for done in (
        desk.run("--session", "bob", "inbox", "--take", environ=asker),
        desk.run("inbox", "--take", environ={**asker, "POSTROOM_SESSION": "bob"}),
        desk.run("--session", "bob", "send", "lead", "hello", environ=asker),
    ):
        assert (done.code, done.err.splitlines()[0]) == (1, "not_your_session")
    assert texts(desk.ok("--session", "bob", "inbox", "--take")) == ["for bob"]


@pytest.mark.rule("10.38")
def test_the_socket_and_the_token_are_enough_for_an_agent(
    host: Hosting, desk: Desk, asker: dict[str, str]
) -> None:
    """As in a place that does not see this user's folders, or with an older word for the session."""
    bare = {key: asker[key] for key in ("POSTROOM_SOCKET", "POSTROOM_TOKEN")}
    nowhere = {"POSTROOM_HOME": str(desk.folder / "nowhere")}
    for environ in (bare, {**bare, **nowhere}, {**bare, "POSTROOM_SESSION": "of yesterday"}):
        assert desk.run("list", environ=environ).out.startswith("You are asker [")


@pytest.mark.rule("10.22")
def test_an_agent_does_not_wait_for_a_reply_with_its_send(
    host: Hosting, desk: Desk, asker: dict[str, str]
) -> None:
    fresh(host, "replier")
    error = desk.refused("send", "replier", "hello", "--wait-reply", "1", code=2, environ=asker)
    assert "postroom wait" in error["hint"]
    assert host.tell("waiting", agent="replier") == 0


@pytest.mark.rule("10.22")
def test_the_answer_of_an_agent_is_not_waited_for(host: Hosting, desk: Desk) -> None:
    """It goes to the host's own loop, so the command says so at once."""
    fresh(host, "answerer")
    done = desk.run("--session", "lead", "send", "answerer", "hello?", "--wait-reply", str(10 * SECONDS))
    assert done.code == 3
    assert done.out.endswith("Its answer goes to this session's own loop, and is not waited for here.\n")
    document = desk.run(
        "--session", "lead", "send", "answerer", "and?", "--wait-reply", "600", "--json"
    ).document
    assert (document["status"], document["reply"]) == ("queued", None)


@pytest.mark.rule("01.9", "01.12", "01.19", "01.13", "10.2")
def test_an_agent_s_call_is_checked_as_any_other(host: Hosting, desk: Desk, asker: dict[str, str]) -> None:
    fresh(host, "checked")
    large = "x" * 1_000_001
    for words, stdin, code in (
        (("send", "", "hello"), None, "empty_target"),
        (("send", "checked", " "), None, "message_missing"),
        (("send", "checked", "-"), large, "message_too_large"),
        (("send", "checked", "-"), "x" * 5_000_000, "message_too_large"),
        (("send", "checked", "hello", "--summary", "x" * 201), None, "summary_too_long"),
        (("send", "@checked", "hello"), None, "at_sign_in_target"),
        (("send", "checked", "hello", "--notify-when-idle"), None, "notify_not_allowed"),
    ):
        assert desk.refused(*words, stdin=stdin, environ=asker)["code"] == code
    assert host.tell("waiting", agent="checked") == 0
    assert desk.ok("send", "checked", "-", stdin="from a pipe\n", environ=asker)["status"] == "queued"
    assert host.tell("drain", agent="checked")["entries"][0]["text"] == "from a pipe"


@pytest.mark.rule("01.21")
def test_what_settings_deny_is_denied_inside_too(desk: Desk) -> None:
    denied = json.dumps({"permissions": {"deny": ["SendMessage", "ListAgents"]}})
    with hosting(desk, "denied", "--settings", denied) as host:
        fresh(host, "worker")
        host.tell("observe", name="seer", agent=None)
        for who in ("worker", "seer"):
            environ = host.tell("environ", who=who)
            for words in (("send", "main", "hello"), ("list",)):
                assert desk.refused(*words, environ=environ)["code"] == "denied_by_settings"


# ── after the host ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.26")
def test_an_agent_whose_host_has_come_back_is_a_stranger(desk: Desk) -> None:
    """Its token was the other life's: it does not become the main conversation."""
    with hosting(desk, "phoenix") as first:
        worker = fresh(first, "worker")
        first.kill()
    with hosting(desk, "phoenix", "--resume", first.id) as second:
        desk.send("bob", "phoenix", "for main")
        done = desk.run("inbox", "--take", environ=worker["environ"])
        assert (done.code, done.err.splitlines()[0]) == (1, "not_your_session")
        assert "the program that ran this agent has ended" in done.err
        assert texts(desk.ok("--session", "phoenix", "inbox", "--take")) == ["for main"]
        receipt = desk.ok("--session", "phoenix", "send", "worker", "are you there?")
        assert (receipt["status"], receipt["pin"]["identity"]) == ("resumed", worker["id"])
        environ = second.tell("environ", who="worker")
        assert desk.run("list", environ=environ).out.startswith("You are worker [")


ALL = (
    *(("list",), ("peers",), ("inbox",), ("inbox", "--take"), ("inbox", "--follow"), ("wait",)),
    *(("send", "bob", "hello"), ("send", "bob", "-", "--json"), *SESSIONS_OWN),
)


@pytest.mark.rule("05.26", "06.14", "10.38")
@pytest.mark.parametrize("how", ["ended", "killed"])
def test_an_agent_whose_program_has_ended_is_nobody(desk: Desk, how: str) -> None:
    """It is no outsider, sees nobody, and is told nothing that takes the session away from its program."""
    with hosting(desk, f"gone {how}") as host:
        environ = fresh(host, "orphan")["environ"]
        host.tell("observe", name="watcher", agent=None)
        watcher = host.tell("environ", who="watcher")
        if how == "killed":
            host.kill()
    bare = {key: environ[key] for key in ("POSTROOM_SOCKET", "POSTROOM_TOKEN")}
    token = {"POSTROOM_TOKEN": environ["POSTROOM_TOKEN"]}
    for words in ALL:
        for done in (
            desk.run(*words, environ=environ),
            desk.run(*words, environ=watcher),
            desk.run(*words, environ=bare),
            desk.run(*words, environ=token),
            desk.run("--session", host.id, *words, environ=environ),
            desk.run("--session", f"gone {how}", *words, environ=environ),
        ):
            assert (done.code, done.err.splitlines()[0]) == (1, "not_your_session"), (words, done)
            assert "The program that ran this agent has ended." in done.err + done.out, (words, done)
            assert "resume" not in done.err + done.out
            assert "--json" in words or done.out == ""
        done = desk.run("--session", "bob", *words, environ=environ)
        assert (done.code, done.err.splitlines()[0]) == (1, "not_your_session"), (words, done)
        assert "the program that ran this agent has ended" in done.err + done.out
    assert texts(desk.ok("--session", "bob", "inbox", "--take")) == []


@pytest.mark.rule("05.26", "10.38")
def test_an_agent_acts_for_no_session_that_is_not_there(desk: Desk, asker: dict[str, str]) -> None:
    """Its own program runs, and it is not said that it has ended."""
    for words in (("inbox",), ("list",), ("send", "bob", "hello"), ("log",), ("trace", "abcdef"), ("close",)):
        error = desk.refused("--session", "nobody at all", *words, environ=asker)
        assert error["code"] == "not_your_session"
        assert error["hint"] == "Leave out --session."


@pytest.mark.rule("01.29", "06.13")
def test_no_agent_s_id_and_no_stray_file_is_in_the_way_of_a_listing(desk: Desk) -> None:
    """An id may be one that no session could have; what lies among the agents and is none is said, and nobody."""
    with hosting(desk, "untidy") as first:
        for identity in ("-x", "client-1", "talk-1"):
            first.start(f"agent {identity}", id=identity)
        names = {"agent -x", "agent client-1", "agent talk-1"}
        environ = first.tell("environ", who="-x")
        rows = desk.ok("list", "--kind", "agent", environ=environ)["rows"]
        assert {row["name"] for row in rows} == names - {"agent -x"}
        assert {
            row["name"] for row in desk.ok("--session", "untidy", "list", "--kind", "agent")["rows"]
        } == names
        folder = first.folder / "agents"
        (folder / ".DS_Store").write_bytes(b"")
        (folder / "client-2").write_bytes(b"")
        (folder / "notes.txt").write_bytes(b"")
        (folder / "a folder").mkdir()
        (folder / "client-3").mkdir(mode=0o700)
        first.kill()
    with hosting(desk, "untidy", "--resume", first.id) as second:
        rows = desk.ok("--session", "untidy", "list", "--kind", "agent")["rows"]
        assert {row["name"] for row in rows} == {*names, "client-3"}
        assert (
            desk.refused("--session", "untidy", "send", "notes.txt", "hello", code=3)["code"] == "not_found"
        )
        [said] = [
            each
            for each in desk.ok("--session", "untidy", "status")["problems"]
            if "passed over in this session's folder of agents" in each
        ]
        assert said.endswith("'.DS_Store', 'a folder', 'client-2', 'notes.txt'.")
        assert second.start("client-2")["name"] == "client-2"
        receipt = desk.ok("--session", "untidy", "send", "agent client-1", "go on")
        assert receipt["status"] == "resumed"


@pytest.mark.rule("09.11")
def test_the_hook_of_a_client_that_is_an_agent_opens_no_session(
    host: Hosting, desk: Desk, asker: dict[str, str]
) -> None:
    before = {row["session_id"] for row in desk.ok("--session", "bob", "list")["rows"]}

    with program("claude", Desk(desk.folder, {**desk.environ, **asker})) as claude:
        for event in ("SessionStart", "UserPromptSubmit", "Stop"):
            done = claude.run("hook", "claude-code", event, stdin='{"session_id": "c-1"}')
            assert done == {"code": 0, "out": "", "err": ""}
    assert {row["session_id"] for row in desk.ok("--session", "bob", "list")["rows"]} == before
    assert not (desk.folder / "state" / "hooks.log").exists()
