"""Where settings files lie, which of them are read, and the JSON in them: real files, hostile ones, other users' ones."""

from __future__ import annotations

import grp
import json
import os
import pwd
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.state import scopes
from postroom.state.scopes import (
    REPOSITORY_MARKS,
    SETTINGS_BYTES,
    Found,
    Senseless,
    Source,
    config_folder,
    find,
    parsed,
    repository_root,
    sources_of,
)
from tests.strangers import OTHER_UID, as_user, needs_root

SECRET = "s3cret"
GOOD = b'{"crossSessionInbound": "hold"}'


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of ours that every user may pass, in one where nobody but us may write apart from /tmp itself."""
    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def file(open_folder: Path) -> Path:
    """A settings file that can be read."""
    path = open_folder / "settings.json"
    path.write_bytes(GOOD)
    path.chmod(0o644)
    return path


def user(path: Path | str) -> Source:
    """The user's own file."""
    return Source(scope="user", path=str(path), guarded=True)


def managed(path: Path | str) -> Source:
    """The managed file."""
    return Source(scope="managed", path=str(path), follow=False, guarded=True)


def project(path: Path | str) -> Source:
    """A project's file."""
    return Source(scope="project", path=str(path), shared=True)


EVERY: tuple[Callable[[Path | str], Source], ...] = (managed, user, project)


def reason(source: Source) -> str:
    """Why a file is not read."""
    found = find(source)
    assert found.what == "unreadable"
    assert found.data == b""
    return found.reason


# ── where ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.24", "03.25", "03.26", "03.27", "03.28")
def test_each_scope_has_its_place(open_folder: Path) -> None:
    here = str(open_folder)
    found = sources_of(here, {"XDG_CONFIG_HOME": "/c"}, scopes.MANAGED, "/flag.json")
    assert [(source.scope, source.path) for source in found] == [
        ("managed", "/etc/postroom/settings.json"),
        ("flag", "/flag.json"),
        ("user", "/c/postroom/settings.json"),
        ("project", f"{here}/.postroom/settings.json"),
        ("local", f"{here}/.postroom/settings.local.json"),
    ]
    assert [source.follow for source in found] == [False, True, True, True, True]


@pytest.mark.rule("03.26")
@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/c/postroom"),
        ({"HOME": "/h"}, "/h/.config/postroom"),
        ({"XDG_CONFIG_HOME": "", "HOME": "/h"}, "/h/.config/postroom"),
        ({"XDG_CONFIG_HOME": "rel", "HOME": "/h"}, "/h/.config/postroom"),
        ({"HOME": "rel"}, None),
    ],
)
def test_the_users_folder(environ: dict[str, str], folder: str | None) -> None:
    assert config_folder(environ) == folder
    told = [source.scope for source in sources_of("/", environ, "/m", None)]
    assert ("user" in told) is (folder is not None)


@pytest.mark.rule("03.26")
def test_without_a_home_the_user_database_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_folder({}) == f"{pwd.getpwuid(os.geteuid()).pw_dir}/.config/postroom"

    def unknown(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert config_folder({}) is None


@pytest.mark.rule("03.27", "03.28", "03.32")
@pytest.mark.parametrize("mark", REPOSITORY_MARKS)
def test_the_working_directory_and_its_repositorys_root_are_both_read(open_folder: Path, mark: str) -> None:
    deep = open_folder / "a" / "b"
    deep.mkdir(parents=True)
    assert repository_root(str(deep)) is None
    (open_folder / mark).mkdir()
    assert repository_root(str(deep)) == str(open_folder)
    found = [source.path for source in sources_of(str(deep), {"HOME": "x"}, "/m", None)]
    assert found == [
        "/m",
        *(f"{folder}/.postroom/settings.json" for folder in (deep, open_folder)),
        *(f"{folder}/.postroom/settings.local.json" for folder in (deep, open_folder)),
    ]
    (open_folder / "a" / mark).write_text("gitdir: elsewhere")  # a worktree or a submodule has a file there
    assert repository_root(str(deep)) == str(open_folder / "a")


@pytest.mark.rule("03.27")
def test_the_root_itself_is_read_once(open_folder: Path) -> None:
    (open_folder / ".git").mkdir()
    (open_folder.parent / f"{open_folder.name}-link").symlink_to(open_folder)
    try:
        for folder in (str(open_folder), f"{open_folder}-link"):
            assert len(sources_of(folder, {"HOME": "x"}, "/m", None)) == 3
    finally:
        (open_folder.parent / f"{open_folder.name}-link").unlink()


# ── what is read ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.34")
@pytest.mark.parametrize("of", EVERY)
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o444, 0o755])
def test_a_file_of_ours_is_read(file: Path, of: Callable[[Path], Source], mode: int) -> None:
    file.chmod(mode)
    assert find(of(file)) == Found("bytes", data=GOOD)


@pytest.mark.parametrize("of", EVERY)
def test_where_nothing_lies_nothing_is_set(open_folder: Path, of: Callable[[Path], Source]) -> None:
    (open_folder / "file").write_text("")
    for path in ("settings.json", "no/folder/settings.json", "file/settings.json"):
        assert find(of(open_folder / path)) == Found("nothing")


@pytest.mark.rule("03.34", "03.35", "11.28")
@pytest.mark.parametrize("of", EVERY)
def test_what_is_no_file_cannot_be_read(open_folder: Path, of: Callable[[Path], Source]) -> None:
    """And never waits: a FIFO has no writer here, so that opening it like a file would never end."""
    (open_folder / "folder").mkdir()
    assert reason(of(open_folder / "folder")) == "it is a folder"
    os.mkfifo(open_folder / "fifo", 0o600)
    assert reason(of(open_folder / "fifo")) == "it is not a regular file"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(open_folder / "socket"))
        assert reason(of(open_folder / "socket")) == "it is not a regular file"
    assert reason(of(Path("/dev/null"))) == "it is not a regular file"


@pytest.mark.rule("03.34")
def test_the_managed_file_may_be_no_symlink_and_the_others_may(file: Path, open_folder: Path) -> None:
    link = open_folder / "link"
    link.symlink_to(file)
    assert "a symlink" in reason(managed(link))
    assert find(user(link)) == find(project(link)) == Found("bytes", data=GOOD)
    file.chmod(0o606)
    assert "others may write to it" in reason(user(link)), "what it points to is judged"


@pytest.mark.rule("03.34", "11.28")
def test_a_symlink_to_a_fifo_or_a_device_is_not_waited_for(open_folder: Path) -> None:
    os.mkfifo(open_folder / "fifo", 0o600)
    for number, target in enumerate((open_folder / "fifo", Path("/dev/zero"))):
        (open_folder / f"link{number}").symlink_to(target)
        assert reason(user(open_folder / f"link{number}")) == "it is not a regular file"


@pytest.mark.rule("03.35")
def test_a_symlink_to_nothing_is_not_gone(open_folder: Path) -> None:
    link = open_folder / "link"
    link.symlink_to("missing.json")
    assert reason(user(link)) == f"{link} is a symlink to nothing"
    link.unlink()
    link.symlink_to("link")
    assert "leads to itself" in reason(user(link))
    (open_folder / "conf").symlink_to("missing-folder")
    assert reason(user(open_folder / "conf" / "settings.json")).endswith("conf is a symlink to nothing")


@pytest.mark.rule("03.34", "11.11")
@pytest.mark.parametrize("of", EVERY)
@pytest.mark.parametrize("mode", [0o602, 0o646, 0o666, 0o777])
def test_a_file_that_others_may_write_is_not_read(
    file: Path, of: Callable[[Path], Source], mode: int
) -> None:
    file.chmod(mode)
    assert reason(of(file)) == f"others may write to it (mode {mode:04o})"


@needs_root
@pytest.mark.rule("03.34")
def test_a_group_is_others_unless_nobody_else_is_in_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems give each user a group of the same name, and make files that it may write."""
    me = pwd.getpwuid(os.geteuid())
    file.chmod(0o664)
    members: list[str] = []

    def group(gid: int) -> grp.struct_group:
        return grp.struct_group((me.pw_name if gid == me.pw_gid else "wheel", "x", gid, members))

    monkeypatch.setattr(grp, "getgrgid", group)
    assert find(user(file)).what == "bytes"
    members.append(me.pw_name)
    assert find(user(file)).what == "bytes"
    members.append("somebody")
    assert "others may write to it" in reason(user(file))
    members.clear()
    os.chown(file, -1, me.pw_gid + 1)
    assert "others may write to it" in reason(user(file))

    def unknown(gid: int) -> Any:
        raise KeyError(gid)

    monkeypatch.setattr(grp, "getgrgid", unknown)
    assert "others may write to it" in reason(user(file))


@needs_root
@pytest.mark.rule("03.34", "11.11")
@pytest.mark.parametrize("of", EVERY)
def test_another_users_file_is_not_read(file: Path, of: Callable[[Path], Source]) -> None:
    os.chown(file, OTHER_UID, -1)
    assert reason(of(file)) == f"it belongs to uid {OTHER_UID}"


@needs_root
@pytest.mark.rule("03.34")
def test_roots_file_is_read_by_everybody(file: Path) -> None:
    assert as_user(OTHER_UID, lambda: find(managed(file)).what) == "bytes"


@needs_root
@pytest.mark.rule("03.35", "11.28")
@pytest.mark.parametrize("of", EVERY)
def test_a_file_or_folder_that_may_not_be_opened_cannot_be_read(
    file: Path, open_folder: Path, of: Callable[[Path], Source]
) -> None:
    def looked() -> list[str]:
        found = find(of(file))
        return [found.what, found.reason]

    file.chmod(0o000)
    assert as_user(OTHER_UID, looked) == ["unreadable", "this user may not open it"]
    file.chmod(0o644)
    open_folder.chmod(0o700)
    assert as_user(OTHER_UID, looked) == ["unreadable", "this user may not open it"]


@pytest.mark.rule("03.34")
@pytest.mark.parametrize("of", EVERY)
def test_over_a_mebibyte_counts_as_unreadable(file: Path, of: Callable[[Path], Source]) -> None:
    file.write_bytes(GOOD + b" " * (SETTINGS_BYTES - len(GOOD)))
    assert len(find(of(file)).data) == SETTINGS_BYTES
    with file.open("ab") as more:
        more.write(b" ")
    assert reason(of(file)) == "it is larger than 1,048,576 bytes"


@pytest.mark.rule("03.34")
def test_a_file_that_grows_while_it_is_read_is_not_read_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat

    def grown(fd: int) -> os.stat_result:
        found = real(fd)
        with file.open("ab") as more:
            more.write(b" " * SETTINGS_BYTES)
        return found

    monkeypatch.setattr(scopes.os, "fstat", grown)
    assert reason(user(file)) == "it is larger than 1,048,576 bytes"


@pytest.mark.rule("03.34")
def test_what_takes_the_files_place_before_it_is_opened_is_judged_too(
    file: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def swapped(path: str, flags: int) -> int:
        file.unlink()
        os.mkfifo(file, 0o600)
        return real(path, flags)

    monkeypatch.setattr(scopes.os, "open", swapped)
    assert reason(user(file)) == "it is not a regular file"

    def linked(path: str, flags: int) -> int:
        file.unlink()
        file.symlink_to(open_folder / "other")
        return real(path, flags)

    (open_folder / "other").write_bytes(GOOD)
    file.unlink()
    file.write_bytes(GOOD)
    monkeypatch.setattr(scopes.os, "open", linked)
    assert "a symlink" in reason(managed(file))


@pytest.mark.parametrize("path", ["/a\0b", f"/{'x' * 300}", "/\ud800"])
def test_a_path_that_is_none_cannot_be_read(path: str) -> None:
    assert find(user(path)).what == "unreadable"


# ── the folders above ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.34", "11.11")
@pytest.mark.parametrize(("mode", "passes"), [(0o755, True), (0o1777, True), (0o777, False), (0o757, False)])
def test_a_folder_above_in_which_others_may_write(open_folder: Path, mode: int, passes: bool) -> None:
    path = open_folder / "inner" / "postroom" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(GOOD)
    (open_folder / "inner").chmod(mode)
    for of in (user, managed):
        found = find(of(path))
        assert (found.what == "bytes") is passes
        assert (
            passes or found.reason == f"others may write in the folder {open_folder}/inner (mode {mode:04o})"
        )
    assert find(project(path)).what == "bytes", "a checkout lies where it lies, and only makes stricter"


@needs_root
@pytest.mark.rule("03.34", "11.11")
def test_a_folder_above_that_is_another_users(open_folder: Path, file: Path) -> None:
    os.chown(open_folder, OTHER_UID, -1)
    for of in (user, managed):
        assert reason(of(file)) == f"the folder {open_folder} belongs to uid {OTHER_UID}"
    link = open_folder.parent / f"{open_folder.name}-link"
    link.symlink_to(file)
    try:
        assert "belongs to uid" in reason(user(link)), "where a symlink leads is what counts"
    finally:
        link.unlink()


# ── what another user puts there ─────────────────────────────────────────────────────────────────


@needs_root
@pytest.mark.rule("11.11")
def test_nobody_stops_a_session_in_a_folder_that_all_may_write_to(open_folder: Path) -> None:
    """As in /tmp: what another user puts there is named and left alone, whatever it is."""
    open_folder.chmod(0o1777)
    folder = open_folder / ".postroom"
    file = folder / "settings.json"
    folder.mkdir()
    file.write_bytes(GOOD)
    for path in (folder, file):
        os.chown(path, OTHER_UID, OTHER_UID)
    said = Found("foreign", reason=f"uid {OTHER_UID} has put {folder} into a folder that others may write to")
    assert find(project(file)) == said
    os.chown(file, 0, 0)  # a hard link to one of ours
    assert find(project(file)) == said
    folder.chmod(0)
    assert find(project(file)) == said
    os.chown(folder, 0, 0)
    folder.chmod(0o777)
    os.chown(file, OTHER_UID, OTHER_UID)
    assert (
        find(project(file)).reason == f"uid {OTHER_UID} has put {file} into a folder that others may write to"
    )
    os.chown(file, 0, 0)
    folder.chmod(0o755)
    assert find(project(file)) == Found("bytes", data=GOOD), "our own counts there as everywhere"


@needs_root
@pytest.mark.rule("03.35")
def test_in_another_users_own_folder_his_file_is_only_unreadable(open_folder: Path) -> None:
    """Who works in another's checkout is not let off what it may say."""
    file = open_folder / ".postroom" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(GOOD)
    for path in (open_folder, file.parent, file):
        os.chown(path, OTHER_UID, -1)
    assert reason(project(file)) == f"it belongs to uid {OTHER_UID}"


# ── the JSON ─────────────────────────────────────────────────────────────────────────────────────


def senseless(data: bytes) -> str:
    """Why bytes are no settings."""
    with pytest.raises(Senseless) as caught:
        parsed(data)
    return str(caught.value)


@pytest.mark.rule("03.35")
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xef\xbb\xbf", "it is no JSON: Expecting value, line 1, column 1"),
        (b'{"crossSessionInbound": "ref', "it is no JSON: Unterminated string"),
        (b'{"nats": {"token": "s3cret" "x"}}', "it is no JSON: Expecting ',' delimiter, line 1"),
        (b'{"a": 1} {"b": 2}', "it is no JSON: Extra data"),
        (b"// comment\n{}", "it is no JSON: Expecting value"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8"),
        (b"[" * 100_000, "it lies too deep in itself"),
        (b'{"a": ' + b"1" * 5000 + b"}", "it is no JSON: a number that is none"),
        (b'{"a": NaN}', "it is no JSON: a number that is none"),
        (b'{"a": -Infinity}', "it is no JSON: a number that is none"),
        (b"[]", "it holds a list and no object of settings"),
        (b"7", "it holds 7 and no object of settings"),
        (b"null", "it holds null and no object of settings"),
        (b'{"dialogExpiry": "5m", "dialogExpiry": "never"}', "it has the same key twice, dialogExpiry"),
        (b'{"permissions": {"deny": [], "deny": [1]}}', "it has the same key twice, deny"),
        (b'{"gateways": {"s3cret": 1, "s3cret": 2}}', "it has the same key twice"),
    ],
)
def test_what_is_no_settings(data: bytes, says: str) -> None:
    assert senseless(data).startswith(says)
    assert SECRET not in senseless(data)


def test_what_editors_put_before_it_is_passed_over() -> None:
    assert parsed(b"\xef\xbb\xbf" + GOOD) == parsed(GOOD) == {"crossSessionInbound": "hold"}


@pytest.mark.rule("11.27")
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"-" * 100)
@settings(max_examples=200)
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        content = parsed(data)
    except Senseless:
        return
    assert isinstance(content, dict)


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=9)


@given(st.dictionaries(st.text(max_size=9), scalars | st.dictionaries(st.text(max_size=3), scalars)))
def test_whatever_json_writes_is_read_as_it_was(content: dict[str, object]) -> None:
    assert parsed(json.dumps(content).encode()) == content
