"""`open --settings` with what cannot be used: nothing is opened and nothing is left behind (03.25, 10.8).

What can be used is in test_holds_by_command, and what becomes of a file that is edited later in test_settings_live.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.desk import Desk
from tests.strangers import private_desk, snapshot

UNUSABLE = {
    # what is wrong → what --settings is given
    "a word that is none": '{"crossSessionInbound": "maybe"}',
    "half of it": '{"crossSessionInbound": "accept"',
    "a file that is not there": "no-such-file.json",
    "a broken file": "broken.json",
    "a file of a wrong value": "wrong.json",
    "a file that others may write": "open.json",
    "nothing": "",
}


FILES = {
    # name → what it says, and its mode
    "broken.json": ("{", 0o600),
    "wrong.json": (json.dumps({"crossSessionInbound": "maybe", "nats": {"token": "s3cret"}}), 0o600),
    "open.json": (json.dumps({"crossSessionInbound": "accept"}), 0o666),
}


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk with some files that no session can be opened with, on which one session was opened and is gone."""
    with private_desk() as desk:
        for name, (content, mode) in FILES.items():
            (desk.folder / name).write_text(content)
            (desk.folder / name).chmod(mode)
        desk.open("before", "--settings", '{"crossSessionInbound": "hold"}')
        desk.ok("--session", "before", "close")
        yield desk


@pytest.mark.rule("03.25", "10.8", "01.28", "10.37")
@pytest.mark.parametrize("wrong", UNUSABLE)
def test_settings_that_cannot_be_used_open_nothing(desk: Desk, wrong: str) -> None:
    """Exit code 1, one word on stderr, and no session, record, folder or socket is left behind."""
    before = snapshot(desk.folder / "state", desk.folder / "run")
    error = desk.refused("open", "--name", "never", "--detach", "--settings", UNUSABLE[wrong])
    assert error["code"] == "setting_invalid"
    assert "Nothing was opened." in error["hint"]
    assert "s3cret" not in str(error)
    assert snapshot(desk.folder / "state", desk.folder / "run") == before


@pytest.mark.rule("03.25", "10.8", "10.37")
def test_settings_that_cannot_be_used_start_no_command_and_no_foreground_session(desk: Desk) -> None:
    before = snapshot(desk.folder / "state", desk.folder / "run")
    wrong = ("open", "--name", "never", "--settings", "wrong.json")
    for more in ((), ("--", "touch", "ran")):
        done = desk.run(*wrong, *more)
        assert (done.code, done.out, done.err.splitlines()[0]) == (1, "", "setting_invalid")
        assert "s3cret" not in done.err
    assert not (desk.folder / "ran").exists()
    assert snapshot(desk.folder / "state", desk.folder / "run") == before
