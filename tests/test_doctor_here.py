"""`postroom doctor` on settings files and on the shell it runs in: each finding is provoked for real (10.16, 03.35, 10.38)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.console import doctor
from tests.clinic import clinic, diagnosed
from tests.desk import COMMAND, SECONDS, Desk
from tests.strangers import OTHER_UID, needs_root


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A clinic."""
    with clinic() as desk:
        yield desk


def project(desk: Desk, content: object, name: str = "settings.json") -> Path:
    """Writes a project's settings into the desk's working folder; returns the file."""
    file = desk.folder / "work/.postroom" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "03.34", "03.35")
@pytest.mark.parametrize("how", ["garbage", "writable", "large", "list"])
def test_a_settings_file_that_cannot_be_read(desk: Desk, how: str) -> None:
    """Named with its scope and reason; what it does to a session that is opened here is said too."""
    file = desk.settings(crossSessionInbound="accept")
    match how:
        case "garbage":
            file.write_text('{"crossSessionInbound": ')
            reason = "it is no JSON"
        case "list":
            file.write_text("[]")
            reason = "it holds a list and no object of settings"
        case "large":
            file.write_text(json.dumps({"x": "y" * 1_100_000}))
            reason = "it is larger than 1,048,576 bytes"
        case _:
            file.chmod(0o666)
            reason = "others may write to it (mode 0666)"
    [unread] = diagnosed(desk, "settings-unread")
    assert f"The user settings, {file}, cannot be read: {reason}" in unread["what"]
    assert f"Mend {file}" in unread["mend"]
    assert "one that is opened now holds everything that comes in" in unread["what"]


@pytest.mark.rule("10.16", "03.11", "03.23", "03.35")
def test_values_that_do_not_do_what_was_meant(desk: Desk) -> None:
    """Each with the file, in the words that `status` has for it, once, though a session says it too."""
    file = desk.settings(
        crossSessionInbound="holdd", limits={"maxUnread": 9}, desktopNotice=True, crossMachine="open"
    )
    desk.open("alice")
    findings = diagnosed(
        desk,
        *("settings-invalid", "settings-clamped", "settings-other", "settings-inbound", "inbound-hold"),
        *(() if "crossMachine" not in _not_built() else ("settings-other",)),
    )
    by_id = {each["id"]: each for each in findings}
    assert (
        f'{file}: crossSessionInbound is "holdd", which is none of accept, hold, refuse'
        in by_id["settings-invalid"]["what"]
    )
    assert (
        f"{file}: limits.maxUnread is 9, outside 10 to 5,000; 10 counts." in by_id["settings-clamped"]["what"]
    )
    others = [each["what"] for each in findings if each["id"] == "settings-other"]
    assert any('"desktopNotice" is no known key; the nearest is desktopNotices' in one for one in others)
    desk.settings(crossSessionInbound="accept")
    assert diagnosed(desk) == []


def _not_built() -> frozenset[str]:
    from postroom.core.keys import NOT_BUILT

    return NOT_BUILT


@pytest.mark.rule("10.16", "03.29")
@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_an_accept_in_a_projects_file(desk: Desk, name: str) -> None:
    """It does nothing, and costs people days."""
    file = project(desk, {"crossSessionInbound": "accept"}, name)
    assert diagnosed(desk) == []  # from elsewhere it is nobody's
    [finding] = diagnosed(desk, "settings-accept-ignored", cwd=str(desk.folder / "work"))
    assert f'{file}: crossSessionInbound "accept" does nothing in a project\'s file' in finding["what"]
    assert "into your user settings" in finding["mend"]


@pytest.mark.rule("10.16", "03.27", "03.32")
def test_the_settings_of_every_sessions_folder_are_looked_at(desk: Desk) -> None:
    """The session works in a project whose file refuses; the doctor runs elsewhere."""
    file = project(desk, {"crossSessionInbound": "nope", "readReceipts": True})
    desk.open("alice", cwd=desk.folder / "work")
    invalid, other, hold = diagnosed(desk, "settings-invalid", "settings-other", "inbound-hold")
    assert str(file) in invalid["what"]
    assert "readReceipts does nothing in a project's file" in other["what"]
    assert "a project setting" in hold["what"]


@needs_root
@pytest.mark.rule("10.16", "03.34")
def test_a_projects_file_that_another_user_put_there(desk: Desk) -> None:
    work = desk.folder / "work"
    file = project(desk, {"crossSessionInbound": "refuse"})
    work.chmod(0o1777)
    for path in (file.parent, file):
        os.chown(path, OTHER_UID, 0)
    [finding] = diagnosed(desk, "settings-left-alone", cwd=str(work))
    assert f"The project settings, {file}, are left alone" in finding["what"]
    assert f"uid {OTHER_UID} has put" in finding["what"]


@pytest.mark.rule("10.16", "03.33")
def test_tools_that_are_denied_here(desk: Desk) -> None:
    project(desk, {"permissions": {"deny": ["SendMessage", "ListAgents"]}})
    [finding] = diagnosed(desk, "tool-denied", cwd=str(desk.folder / "work"))
    assert "Settings deny ListAgents and SendMessage" in finding["what"]
    assert "permissions.deny" in finding["mend"]


@pytest.mark.rule("10.16", "03.10")
@pytest.mark.parametrize(("value", "says"), [("refuse", "refuses everything"), ("hold", "holds everything")])
def test_what_comes_in_is_not_let_in_here(desk: Desk, value: str, says: str) -> None:
    desk.settings(crossSessionInbound=value)
    [finding] = diagnosed(desk, "settings-inbound")
    assert (
        f"A session that is opened in {desk.folder} {says} that comes in: the user settings"
        in finding["what"]
    )


# ── this shell ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("10.16", "10.38")
def test_a_variable_that_names_nobody(desk: Desk) -> None:
    [finding] = diagnosed(desk, "env-session-unknown", environ={"POSTROOM_SESSION": "nobody"})
    assert 'POSTROOM_SESSION is "nobody", and no session of that name or id is known' in finding["what"]
    assert "unset POSTROOM_SESSION POSTROOM_SOCKET POSTROOM_TOKEN" in finding["mend"]
    assert desk.refused("inbox", environ={"POSTROOM_SESSION": "nobody"})["code"] == "no_session"


@pytest.mark.rule("10.16", "10.38")
def test_variables_of_a_session_that_has_ended(desk: Desk) -> None:
    alice = desk.open("alice")
    desk.ok("--session", "alice", "close")
    environ = {"POSTROOM_SESSION": alice["session_id"]}
    [finding] = diagnosed(desk, "env-session-ended", environ=environ)
    assert "POSTROOM_SESSION names alice, which has ended" in finding["what"]
    assert f"postroom open --resume {alice['session_id']}" in finding["mend"]
    gone = {"POSTROOM_SOCKET": alice["socket"], "POSTROOM_TOKEN": "t"}
    [finding] = diagnosed(desk, "env-socket-gone", environ=gone)
    assert f'POSTROOM_SOCKET is "{alice["socket"]}", and nothing lies there' in finding["what"]


@pytest.mark.rule("10.16", "10.38", "05.26")
def test_variables_that_a_shell_has_kept_from_a_session_in_which_it_does_not_run(desk: Desk) -> None:
    """As a server of terminals that was started inside one."""
    alice = desk.open("alice")
    environ = {
        "POSTROOM_SESSION": alice["session_id"],
        "POSTROOM_TOKEN": "t",
        "POSTROOM_SOCKET": alice["socket"],
    }
    [finding] = diagnosed(desk, "env-session-leftover", environ=environ)
    assert "left over from alice, in which this shell does not run" in finding["what"]
    # Who names a session and has no token means it: a person does.
    assert diagnosed(desk, environ={"POSTROOM_SESSION": "alice"}) == []


def run_inside(desk: Desk, name: str, script: str) -> list[dict[str, str]]:
    """The findings of a doctor that runs inside a session; `script` goes before it."""
    out, ask = desk.folder / "out", desk.folder / "bin/ask"
    ask.write_text(f"#!/bin/sh\n{script}\n{COMMAND} doctor --json > {out}\n")
    ask.chmod(0o700)
    assert desk.run("open", "--name", name, "--", str(ask)).code in (0, 1)
    return [one for one in json.loads(out.read_text())["findings"] if one["id"] != "container"]


@pytest.mark.rule("10.16", "10.38", "05.26")
def test_a_shell_inside_one_session_whose_variables_name_another(desk: Desk) -> None:
    desk.open("alice")
    assert [one["id"] for one in run_inside(desk, "bob", ":")] == ["session-not-yours"]
    findings = {one["id"]: one for one in run_inside(desk, "bob", "export POSTROOM_SESSION=alice")}
    assert set(findings) == {"session-not-yours", "env-session-leftover"}
    what = findings["env-session-leftover"]["what"]
    assert "POSTROOM_SESSION names alice, and this shell runs in bob" in what
    assert "not_your_session" in what


@pytest.mark.rule("10.16")
def test_a_name_for_every_session_and_a_variable_that_means_nothing(desk: Desk) -> None:
    name, unknown = diagnosed(
        desk, "env-name", "env-unknown", environ={"POSTROOM_NAME": "alice", "POSTROOM_HOM": "/secret"}
    )
    assert 'POSTROOM_NAME is "alice"' in name["what"]
    assert (
        "POSTROOM_HOM is set and means nothing to Postroom; the nearest that does is POSTROOM_HOME"
        in unknown["what"]
    )
    assert "/secret" not in unknown["what"]


@pytest.mark.rule("10.16")
def test_another_postroom_comes_first(desk: Desk) -> None:
    """Of another installation; not a link to this one."""
    other = desk.folder / "bin/postroom"
    other.symlink_to(COMMAND)
    assert diagnosed(desk) == []
    other.unlink()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    [finding] = diagnosed(desk, "postroom-other")
    assert f"another Postroom than this one first: {other}" in finding["what"]
    assert "PATH" in finding["mend"]


@pytest.mark.rule("10.16")
def test_a_library_that_is_missing(desk: Desk) -> None:
    """The interpreter cannot load it: the command still runs, and says what to install."""
    broken = desk.folder / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise ImportError('no such library here')")
    source = Path(doctor.__file__).parents[2]
    program = (
        f"import sys; sys.path[:0] = [{str(broken)!r}, {str(source)!r}]; sys.argv = ['postroom', 'doctor', '--json'];"
        "from postroom.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=desk.environ,
        cwd=desk.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    [finding] = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "dependency-missing"]
    assert "The library msgspec cannot be loaded (no such library here)" in finding["what"]
    assert "-m pip install msgspec" in finding["mend"]
