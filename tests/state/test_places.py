"""Where the state and the sockets lie: the first candidate that passes, and what is said of the others."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from postroom.errors import UnfitPath
from postroom.state import files, places

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")

OTHER = 54321


@pytest.fixture
def tmp(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /tmp of the test's own, sticky and open to all like the real one."""
    folder = home / "t"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(places, "TMP", str(folder))
    return folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ── state ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.2")
def test_the_state_folder_is_the_first_of_three(home: Path) -> None:
    environ = {"HOME": str(home / "me")}
    assert places.state_folder(environ) == places.Place(path=f"{home}/me/.local/state/postroom")
    environ["XDG_STATE_HOME"] = str(home / "xdg")
    assert places.state_folder(environ) == places.Place(path=f"{home}/xdg/postroom")
    environ["POSTROOM_HOME"] = str(home / "given" / "") + "//"
    assert places.state_folder(environ) == places.Place(path=f"{home}/given")
    for folder in ("me/.local/state/postroom", "xdg/postroom", "given"):
        assert mode_of(home / folder) == 0o700


@pytest.mark.rule("05.2")
def test_an_empty_variable_is_as_none(home: Path) -> None:
    environ = {"POSTROOM_HOME": "", "XDG_STATE_HOME": "", "HOME": str(home)}
    assert places.state_folder(environ).path == f"{home}/.local/state/postroom"


@pytest.mark.rule("05.7", "11.11")
@pytest.mark.parametrize("given", ["loose", "relative", "link"])
def test_a_given_state_folder_that_is_unfit_is_not_passed_over(home: Path, given: str) -> None:
    (home / "loose").mkdir(mode=0o700)
    (home / "loose").chmod(0o755)
    (home / "link").symlink_to("me")
    environ = {"POSTROOM_HOME": given if given == "relative" else str(home / given), "HOME": str(home / "me")}
    with pytest.raises(UnfitPath):
        places.state_folder(environ)
    assert not (home / "me").exists()


@pytest.mark.rule("05.6")
def test_a_state_candidate_that_fails_is_skipped_with_its_reason(home: Path) -> None:
    (home / "xdg").mkdir()
    (home / "xdg").chmod(0o777)
    place = places.state_folder({"XDG_STATE_HOME": str(home / "xdg"), "HOME": str(home)})
    assert place.path == f"{home}/.local/state/postroom"
    ((candidate, reason),) = place.skipped
    assert candidate == f"{home}/xdg/postroom"
    assert reason.startswith(f"{home}/xdg: others may write in it")


@pytest.mark.rule("05.6")
def test_where_no_state_folder_passes_all_reasons_are_given(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "me").write_text("no folder")
    place = places.state_folder({"XDG_STATE_HOME": "here", "HOME": str(home / "me")})
    assert place.path is None
    assert [reason for _, reason in place.skipped] == ["not an absolute path", f"{home}/me: not a folder"]
    monkeypatch.setattr(places, "_home", lambda: "")
    assert places.state_folder({}).skipped == (("~", "no home folder is known for this user"),)


def test_without_HOME_the_user_database_is_asked(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    import pwd

    class Entry:
        pw_dir = str(home)

    def entry(uid: int) -> Entry:
        assert uid == os.geteuid()
        return Entry()

    monkeypatch.setattr(pwd, "getpwuid", entry)
    assert places.state_folder({}).path == f"{home}/.local/state/postroom"

    def unknown(uid: int) -> Entry:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert places.state_folder({}).path is None


# ── sockets ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("05.5")
def test_sockets_lie_in_the_runtime_folder_else_in_tmp(home: Path, tmp: Path) -> None:
    place = places.socket_folder({"XDG_RUNTIME_DIR": str(home / "run")})
    assert place == places.Place(path=f"{home}/run/postroom")
    place = places.socket_folder({})
    assert place == places.Place(path=f"{tmp}/postroom-{os.geteuid()}")
    assert mode_of(home / "run" / "postroom") == 0o700
    assert mode_of(tmp / f"postroom-{os.geteuid()}") == 0o700


@pytest.mark.rule("05.6")
def test_an_open_runtime_folder_is_skipped_with_its_reason(home: Path, tmp: Path) -> None:
    """As WSLg makes it, 0777 and not sticky."""
    (home / "run").chmod(0o777)
    place = places.socket_folder({"XDG_RUNTIME_DIR": str(home / "run")})
    assert place.path == f"{tmp}/postroom-{os.geteuid()}"
    assert place.skipped[0][0] == f"{home}/run/postroom"
    assert "others may write" in place.skipped[0][1]


@as_root
@pytest.mark.rule("05.6")
def test_report_21_a_runtime_folder_of_an_unmapped_user_is_skipped_aloud(home: Path, tmp: Path) -> None:
    """Needs root."""
    os.chown(home / "run", 65534, -1)
    place = places.socket_folder({"XDG_RUNTIME_DIR": str(home / "run")})
    assert place.path == f"{tmp}/postroom-{os.geteuid()}"
    assert "65534, whom this user namespace does not map" in place.skipped[0][1]


@pytest.mark.rule("05.7")
def test_a_missing_runtime_folder_is_not_made(home: Path, tmp: Path) -> None:
    place = places.socket_folder({"XDG_RUNTIME_DIR": str(home / "nowhere")})
    assert place.path == f"{tmp}/postroom-{os.geteuid()}"
    assert place.skipped == ((f"{home}/nowhere/postroom", f"{home}/nowhere: does not exist"),)
    assert not (home / "nowhere").exists()


@pytest.mark.rule("05.7")
def test_a_folder_whose_control_path_is_over_103_bytes_is_never_used(home: Path, tmp: Path) -> None:
    room = files.CONTROL_PATH_LIMIT - len(f"{home}//postroom/1234567-00000000.ctl.sock")
    fits, long = home / ("x" * room), home / ("y" * (room + 1))
    wide = home / ("é" * (room // 2 + 1))  # fewer characters, more bytes
    for folder in (fits, long, wide):
        folder.mkdir()
    assert places.socket_folder({"XDG_RUNTIME_DIR": str(fits)}, 1234567).path == f"{fits}/postroom"
    for folder in (long, wide):
        place = places.socket_folder({"XDG_RUNTIME_DIR": str(folder)}, 1234567)
        assert place.path == f"{tmp}/postroom-{os.geteuid()}"
        assert "103 is the limit" in place.skipped[0][1]
    assert places.socket_folder({"XDG_RUNTIME_DIR": str(long)}, 123456).path == f"{long}/postroom"


@pytest.mark.rule("05.8", "11.11")
@pytest.mark.parametrize("how", ["loose", "link", "file", pytest.param("foreign", marks=as_root)])
def test_a_fallback_that_somebody_made_first_is_passed_over_for_a_new_one(
    home: Path, tmp: Path, how: str
) -> None:
    """Another user took the name; making it `foreign` needs root."""
    base = tmp / f"postroom-{os.geteuid()}"
    if how == "link":
        (home / "elsewhere").mkdir(mode=0o700)
        base.symlink_to(home / "elsewhere")
    elif how == "file":
        base.write_text("")
    else:
        base.mkdir(mode=0o700)
        if how == "loose":
            base.chmod(0o755)
        else:
            os.chown(base, OTHER, -1)
    found = {places.socket_folder({}).path for _ in range(2)}
    assert len(found) == 2  # each its own: whose an old one is cannot be known
    for path in found:
        assert path is not None
        stem, _, end = path.rpartition("-")
        assert stem == str(base)
        assert len(end) == 8
        assert int(end, 16) >= 0
        files.check_folder(path)
        (Path(path) / "1.sock").write_text("")
        places.leave_socket_folder(path)
        assert Path(path).exists()
        (Path(path) / "1.sock").unlink()
        places.leave_socket_folder(path)
        assert not Path(path).exists()
    (skipped,) = places.socket_folder({}).skipped
    assert skipped[0] == str(base)


@pytest.mark.rule("05.8")
def test_an_ordinary_socket_folder_is_never_removed(home: Path, tmp: Path) -> None:
    for environ in ({}, {"XDG_RUNTIME_DIR": str(home / "run")}):
        path = places.socket_folder(environ).path
        assert path is not None
        places.leave_socket_folder(path)
        assert Path(path).is_dir()


@pytest.mark.rule("05.6")
def test_where_no_socket_folder_passes_the_session_has_none(tmp: Path) -> None:
    """/tmp itself cannot be trusted: every candidate below it says so."""
    tmp.chmod(0o777)
    place = places.socket_folder({})
    assert place.path is None
    assert len(place.skipped) == 1
    tmp.chmod(0o1777)
    (tmp / f"postroom-{os.geteuid()}").write_text("")
    tmp.chmod(0o777)
    place = places.socket_folder({})
    assert place.path is None
    assert all("others may write" in reason for _, reason in place.skipped)
    assert len(place.skipped) == 1 + places.FRESH_TRIES
