"""One session's record: what we write, what a neighbour writes, and every other file that may lie there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import BadFrame
from postroom.state.record import MAX_FORMER, FormerName, Record, from_json, is_session_id, pid_of

FULL = Record(
    pid=4711,
    proc_start="290312",
    boot_id="148b9d41-9a9a-4fbc-8f94-11da3477cf63",
    pid_domain="linux:3d1219c7c4c5404aaa1f6d2a48adfda4:pid:[4026531836]",
    session_id="0b0e7e9e-1d0c-4f6e-9d55-000000000001",
    name="reviewer",
    name_source="user",
    former_names=(FormerName(name="app-0b", until=5),),
    cwd="/home/me/größe",
    started_at=1,
    updated_at=2,
    kind="interactive",
    entrypoint="postroom mcp",
    version="0.1.0",
    peer_features=("postroom_ack", "notify_idle"),
    messaging_socket_path="/run/user/1000/postroom/4711.sock",
    status="busy",
    status_updated_at=3,
    machine="laptop",
    opened_by="opener",
    confirms="accepted",
    wakes=False,
    client_pid=4000,
    client_start="100",
)
LEAST = {"pid": 7, "sessionId": "s", "name": "n"}


def written(**changes: Any) -> bytes:
    """The least record with some fields changed; None leaves one out."""
    fields = {key: value for key, value in {**LEAST, **changes}.items() if value is not None}
    return json.dumps(fields).encode()


@pytest.mark.rule("05.29")
def test_the_file_has_the_neighbours_names_for_the_fields() -> None:
    assert json.loads(FULL.to_json()) == {
        "schemaVersion": 1,
        "pid": 4711,
        "procStart": "290312",
        "bootId": "148b9d41-9a9a-4fbc-8f94-11da3477cf63",
        "pidDomain": "linux:3d1219c7c4c5404aaa1f6d2a48adfda4:pid:[4026531836]",
        "sessionId": "0b0e7e9e-1d0c-4f6e-9d55-000000000001",
        "name": "reviewer",
        "nameSource": "user",
        "formerNames": [{"name": "app-0b", "until": 5}],
        "cwd": "/home/me/größe",
        "startedAt": 1,
        "updatedAt": 2,
        "kind": "interactive",
        "entrypoint": "postroom mcp",
        "version": "0.1.0",
        "peerProtocol": 1,
        "peerFeatures": ["postroom_ack", "notify_idle"],
        "messagingSocketPath": "/run/user/1000/postroom/4711.sock",
        "status": "busy",
        "statusUpdatedAt": 3,
        "machine": "laptop",
        "openedBy": "opener",
        "confirms": "accepted",
        "wakes": False,
        "clientPid": 4000,
        "clientStart": "100",
    }


@pytest.mark.rule("05.29")
def test_what_was_written_is_read_back() -> None:
    assert from_json(FULL.to_json()) == FULL
    bare = Record(pid=1, session_id="s", name="n")
    assert from_json(bare.to_json()) == bare
    assert b"messagingSocketPath" not in bare.to_json()  # absent: listed, but not reachable


def test_a_working_directory_that_is_no_text_is_shown_as_far_as_it_is() -> None:
    record = replace(FULL, cwd="/home/me/\udcff")
    assert from_json(record.to_json()).cwd == "/home/me/\ufffd"


@pytest.mark.rule("05.1", "05.29")
def test_unknown_fields_are_ignored() -> None:
    assert from_json(written(tmux="x", needs={"a": [1]}, schemaVersion=1)) == from_json(written())


@pytest.mark.rule("05.29")
def test_who_states_no_protocol_speaks_none() -> None:
    assert from_json(written()).peer_protocol == 0


@pytest.mark.rule("05.29")
def test_words_that_a_later_version_may_bring_are_read_as_the_widest() -> None:
    record = from_json(written(kind="daemon", status="shell"))
    assert (record.kind, record.status) == ("external", "busy")


@pytest.mark.rule("05.11")
def test_a_newer_format_is_left_to_who_understands_it() -> None:
    with pytest.raises(BadFrame, match="newer version"):
        from_json(written(schemaVersion=2))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (FULL.to_json()[:-20], "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"{}{}", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'{"pid":' + b"9" * 5000 + b"}", "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "pid is missing"),
        (written(pid=None), "pid is missing"),
        (written(sessionId=None), "sessionId is missing"),
        (written(name=None), "name is missing"),
    ],
)
def test_what_is_no_record(data: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        from_json(data)


@pytest.mark.rule("05.29")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pid", 0),
        ("pid", -1),
        ("pid", True),
        ("pid", "7"),
        ("pid", 7.0),
        ("pid", 2**31),
        ("startedAt", "2026-11-30T00:00:00Z"),
        ("startedAt", -1),
        ("updatedAt", 2**60),
        ("procStart", 290312),
        ("cwd", "x" * 5000),
        ("cwd", "a\0b"),
        ("name", ""),
        ("name", "\ud800"),
        ("sessionId", ""),
        ("sessionId", "../../etc"),
        ("sessionId", "a/b"),
        ("sessionId", ".."),
        ("sessionId", "client-1-2"),
        ("sessionId", "x" * 81),
        ("messagingSocketPath", "uds:/tmp/7.sock"),
        ("messagingSocketPath", ""),
        ("peerFeatures", "postroom_ack"),
        ("peerFeatures", [1]),
        ("formerNames", {"name": "x"}),
        ("formerNames", ["x"]),
        ("formerNames", [{"until": 1}]),
        ("formerNames", [{"name": "x", "until": "y"}]),
        ("kind", 1),
        ("clientPid", 0),
        ("openedBy", "../x"),
        ("schemaVersion", "1"),
    ],
)
def test_a_field_of_the_wrong_kind_rejects_the_record(key: str, value: object) -> None:
    with pytest.raises(BadFrame, match=f"{key} is not what it should be|newer version"):
        from_json(written(**{key: value}))


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        from_json(data)
    except BadFrame:
        return


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(json.loads(FULL.to_json()))


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_no_values_raise_anything_else_and_what_is_read_can_be_written(changes: dict[str, Any]) -> None:
    try:
        record = from_json(json.dumps({**LEAST, **changes}).encode())
    except BadFrame:
        return
    assert from_json(record.to_json()) == record


def test_lists_are_cut_where_nobody_needs_more() -> None:
    many = [{"name": f"n{number}", "until": number} for number in range(50)]
    record = from_json(written(formerNames=many, peerFeatures=[f"f{number}" for number in range(50)]))
    assert len(record.former_names) == MAX_FORMER
    assert len(record.peer_features) == 16


@pytest.mark.rule("02.4")
def test_renaming_keeps_the_old_name_as_a_former_one() -> None:
    renamed = FULL.renamed("auditor", 100)
    assert renamed.name == "auditor"
    assert renamed.updated_at == 100
    assert renamed.former_names == (
        FormerName(name="reviewer", until=100),
        FormerName(name="app-0b", until=5),
    )
    back = renamed.renamed("reviewer", 200)
    assert [former.name for former in back.former_names] == ["auditor", "app-0b"]
    assert back.renamed("reviewer", 300) is back
    for number in range(40):
        back = back.renamed(f"n{number}", number)
    assert len(back.former_names) == MAX_FORMER


def test_a_record_of_a_listening_busy_attached_session() -> None:
    record = Record(pid=7, session_id="s", name="n").listening("/x/7.sock", ("postroom_ack",), 1)
    assert (record.messaging_socket_path, record.peer_features) == ("/x/7.sock", ("postroom_ack",))
    record = record.attached(9, "5").doing("waiting", 2)
    assert (record.client_pid, record.client_start) == (9, "5")
    reached = record.reached("written", False, 3).attended("interactive", 4)
    assert (reached.confirms, reached.wakes, reached.kind, reached.updated_at) == (
        "written",
        False,
        "interactive",
        4,
    )
    assert (record.status, record.status_updated_at, record.updated_at) == ("waiting", 2, 2)
    assert repr(record) == "<Record 'n' s pid 7 waiting>"


@pytest.mark.rule("05.3", "05.5")
@pytest.mark.parametrize(
    ("path", "stem"),
    [
        (None, "7"),
        ("/x/7.sock", "7"),
        ("/x/7-0a1b2c3d.sock", "7-0a1b2c3d"),
        ("/x/8.sock", "7"),
        ("/x/7-xyz.sock", "7"),
    ],
)
def test_the_file_is_called_like_the_socket_where_that_fits(path: str | None, stem: str) -> None:
    assert Record(pid=7, session_id="s", name="n", messaging_socket_path=path).stem == stem


@pytest.mark.rule("05.3")
@pytest.mark.parametrize(
    ("stem", "pid"),
    [
        ("1", 1),
        ("4711-0a1b2c3d", 4711),
        ("007", None),
        ("0", None),
        ("", None),
        ("-1", None),
        ("1-", None),
        ("1-0A1B2C3D", None),
        ("1-0a1b2c3", None),
        ("1-0a1b2c3d-1", None),
        ("x", None),
        ("１", None),
        ("99999999999", None),
        ("2147483648", None),
    ],
)
def test_only_a_plain_pid_is_read_off_a_name(stem: str, pid: int | None) -> None:
    assert pid_of(stem) == pid


@given(st.text(max_size=20))
def test_a_session_id_can_name_nothing_outside_its_folder(text: str) -> None:
    if is_session_id(text):
        assert "/" not in text
        assert "\0" not in text
        assert not text.startswith(".")


@pytest.mark.rule("09.16")
def test_what_can_be_confirmed_is_never_believed_to_be_more() -> None:
    """A word of a later version counts as nothing; a record without one is that of a session whose loop confirms."""
    assert from_json(written(confirms="proven")).confirms == "nothing"
    assert from_json(written()).confirms == "consumed"
    with pytest.raises(BadFrame, match="wakes is not what it should be"):
        from_json(written(wakes="yes"))
