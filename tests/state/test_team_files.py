"""The folder of a team: changed by many at once, beside programs of other makes, and whatever else may lie there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.core.team import Member, Team, folder_of, founded, joined, without
from postroom.errors import InvalidName, StoreFailed, UnfitPath
from postroom.state import team_files
from postroom.state.team_files import MAX_CONFIG, TRIES, Damaged, NotLocked, OtherTeam, TeamFiles
from tests.strangers import needs_root

NAME = "session-1a2b3c4d"
SESSION = "1a2b3c4d-0000-4000-8000-000000000001"
OTHER = 54321
SECONDS = 30.0
"""How long a test waits for what must come."""


def joining(name: str, **more: Any) -> Callable[[Team | None], Team]:
    """The step that lets somebody join, and makes the team where there is none."""

    def step(team: Team | None) -> Team:
        team = team or founded(NAME, 1_000, lead_session_id=SESSION)
        return joined(team, Member(name=name, **more), 2_000).team

    return step


def names(team: Team | None) -> list[str]:
    return [] if team is None else [member.name for member in team.members]


@pytest.fixture
def teams(tmp_path: Path) -> Path:
    """Where all teams lie; not made."""
    tmp_path.chmod(0o700)
    return tmp_path / "teams"


@pytest.fixture
def own(teams: Path) -> TeamFiles:
    """A team in our own state folder."""
    return TeamFiles(str(teams), NAME, shared=False, seconds=SECONDS)


@pytest.fixture
def shared(teams: Path) -> TeamFiles:
    """A team among another program's, readable for others as those are."""
    teams.mkdir(mode=0o755)
    return TeamFiles(str(teams), NAME, shared=True, seconds=SECONDS)


def put(files: TeamFiles, data: bytes, mode: int = 0o600, folder_mode: int = 0o700) -> Path:
    """Puts a config there as another program would."""
    for folder in (Path(files.teams_folder), Path(files.folder)):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(folder_mode)
    path = Path(files.path)
    path.write_bytes(data)
    path.chmod(mode)
    return path


def config(**changes: Any) -> bytes:
    return json.dumps({"name": NAME, "leadSessionId": SESSION, "members": [], **changes}).encode()


def refused(files: TeamFiles, kind: type[UnfitPath] = UnfitPath) -> str:
    """Why a team can be neither read nor changed nor removed: the same for each; nothing of it is touched."""
    said: set[str] = set()
    before = sorted(
        (str(path), path.lstat().st_mtime_ns) for path in Path(files.teams_folder).rglob("config*")
    )
    for work in (files.read, lambda: files.change(joining("w")), files.remove):
        with pytest.raises(kind) as caught:
            work()
        said.add(caught.value.reason)
    after = sorted(
        (str(path), path.lstat().st_mtime_ns) for path in Path(files.teams_folder).rglob("config*")
    )
    assert after == before
    [reason] = said
    return reason


# ── made, read, changed ──────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.21", "07.22")
def test_the_folder_is_made_with_the_first_member_and_private(own: TeamFiles, teams: Path) -> None:
    assert own.read() is None
    assert own.mark() is None
    assert own.change(lambda team: None) is None
    assert own.remove() is False
    assert not teams.exists()
    team = own.change(joining("worker"))
    assert names(team) == ["team-lead", "worker"]
    assert own.read() == team
    path = teams / NAME / "config.json"
    assert own.path == str(path)
    assert own.inboxes == str(teams / NAME / "inboxes")
    assert path.stat().st_mode & 0o7777 == 0o600
    assert path.parent.stat().st_mode & 0o7777 == teams.stat().st_mode & 0o7777 == 0o700
    assert json.loads(path.read_bytes())["members"][1]["agentId"] == f"worker@{NAME}"
    assert sorted(os.listdir(path.parent)) == [".config.lock", "config.json"]


@pytest.mark.rule("07.22")
def test_what_a_step_leaves_as_it_is_is_not_written(own: TeamFiles) -> None:
    own.change(joining("worker"))
    mark, team = own.mark(), own.read()
    assert own.change(lambda team: None) == team
    assert own.change(lambda team: team) == team
    assert own.mark() == mark
    own.change(joining("another"))
    assert own.mark() != mark


@pytest.mark.rule("07.22")
def test_a_folder_without_a_config_has_no_team_yet(own: TeamFiles) -> None:
    """A crash just before the first config was written leaves one."""
    put(own, b"").unlink()
    assert own.read() is None
    assert own.remove() is False
    assert names(own.change(joining("worker"))) == ["team-lead", "worker"]


@pytest.mark.rule("07.22")
def test_what_a_step_raises_changes_nothing(own: TeamFiles) -> None:
    own.change(joining("worker"))
    mark = own.mark()
    with pytest.raises(InvalidName):
        own.change(joining("../x"))
    with pytest.raises(ValueError, match="same team"):
        own.change(lambda team: founded("other", 1, lead_session_id=SESSION))
    assert own.mark() == mark
    assert names(own.change(joining("next"))) == ["team-lead", "worker", "next"]


@pytest.mark.rule("07.22")
def test_the_next_start_of_the_same_session_takes_up_what_a_crash_left(own: TeamFiles, teams: Path) -> None:
    own.change(joining("worker"))
    again = TeamFiles(str(teams), NAME, shared=False, lead_session_id=SESSION)
    assert again.read() == own.read()
    assert names(again.change(joining("second"))) == ["team-lead", "worker", "second"]


@pytest.mark.rule("07.22")
def test_a_config_that_would_be_too_large_to_be_read_is_not_written(own: TeamFiles) -> None:
    own.change(joining("worker"))
    mark = own.mark()
    with pytest.raises(StoreFailed, match="more than"):
        own.change(joining("talker", prompt="x" * MAX_CONFIG))
    assert own.mark() == mark


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["My Team", "my.team"])
def test_another_teams_folder_is_refused(teams: Path, name: str) -> None:
    """Several names have one folder: the first that made it has it."""
    first = TeamFiles(str(teams), "my-team", shared=False)
    first.change(lambda team: founded("my-team", 1, lead_session_id=SESSION))
    second = TeamFiles(str(teams), name, shared=False)
    assert second.folder == first.folder
    assert refused(second, OtherTeam) == "it is another team's, whose folder has the same name"
    assert first.read() is not None


@pytest.mark.rule("07.8")
def test_report_13_a_team_of_another_session_is_refused(own: TeamFiles, teams: Path) -> None:
    """Two ids that begin alike give one name; the session tells them apart."""
    own.change(joining("worker"))
    other = TeamFiles(
        str(teams), NAME, shared=False, lead_session_id=SESSION.replace("1a2b3c4d-", "1a2b3c4d-f")
    )
    assert refused(other, OtherTeam) == "it is the team of another session"


def test_a_config_that_names_no_session_is_anybodys(teams: Path, own: TeamFiles) -> None:
    put(own, config(leadSessionId=""))
    assert TeamFiles(str(teams), NAME, shared=False, lead_session_id=SESSION).read() is not None


@pytest.mark.rule("07.8")
@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/abs", "a/b", "a\0b", "x" * 65, "\u202ex", "😀"])
def test_report_14_no_name_leads_out_of_the_folder_of_teams(teams: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        TeamFiles(str(teams), name, shared=False)


@pytest.mark.rule("05.6")
@pytest.mark.parametrize("where", ["relative", "/tmp/../tmp/x", "/tmp/a\0b", "/nowhere/at/all"])
def test_a_folder_of_teams_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(UnfitPath):
        TeamFiles(where, NAME, shared=False).change(joining("w"))


# ── what lies in its place ───────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (config()[:-5], "it is not JSON"),
        (b"\xef\xbb\xbf" + config(), "it is not JSON"),
        (config() * 2, "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b'{"name":"' + NAME.encode() + b'"}', "it has no list of members"),
    ],
)
def test_a_damaged_config_is_told_and_never_written_over(own: TeamFiles, data: bytes, reason: str) -> None:
    path = put(own, data)
    assert refused(own, Damaged) == reason
    assert path.read_bytes() == data
    assert not [name for name in os.listdir(own.folder) if name.endswith(".tmp")]


@pytest.mark.rule("07.22")
def test_a_config_that_is_just_being_written_is_waited_for(
    own: TeamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(own, config()[:20])

    def finish(seconds: float) -> None:
        assert seconds == team_files.LOOK_AGAIN_SECONDS
        path.write_bytes(config(members=[{"name": "w"}]))

    monkeypatch.setattr(time, "sleep", finish)
    assert names(own.read()) == ["w"]


def test_a_config_that_goes_away_while_it_is_looked_at_again_is_none(
    own: TeamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(own, b"{")

    def goes(seconds: float) -> None:
        path.unlink()

    monkeypatch.setattr(time, "sleep", goes)
    assert own.read() is None


def _link(path: Path) -> None:
    kept = path.with_name("elsewhere")
    path.rename(kept)
    path.symlink_to(kept)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.rule("05.6", "07.8")
@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_link, "a symlink, which is not followed"),
        (_folder, "not a regular file"),
        (_fifo, "not a regular file"),
        (lambda path: path.chmod(0o666), "others have access to it (mode 0666)"),  # pyright: ignore
        (lambda path: path.write_bytes(b" " * (MAX_CONFIG + 1)), f"larger than {MAX_CONFIG} bytes"),  # pyright: ignore
    ],
)
def test_what_is_no_config_of_ours_is_refused(
    kind: str, spoil: Callable[[Path], None], reason: str, request: pytest.FixtureRequest
) -> None:
    files: TeamFiles = request.getfixturevalue(kind)
    spoil(put(files, config()))
    assert refused(files) == reason


@pytest.mark.rule("05.6", "07.8")
@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize("which", ["team", "teams"])
def test_a_folder_that_is_a_symlink_is_refused(
    kind: str, which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    files: TeamFiles = request.getfixturevalue(kind)
    put(files, config())
    folder = Path(files.folder if which == "team" else files.teams_folder)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert refused(files) == "a symlink, which is not followed"


@pytest.mark.rule("05.6")
@pytest.mark.parametrize("which", ["team", "teams"])
def test_a_folder_that_others_can_look_into_is_refused_unless_it_is_another_programs(
    own: TeamFiles, teams: Path, which: str
) -> None:
    put(own, config())
    folder = Path(own.folder) if which == "team" else teams
    folder.chmod(0o755)
    assert refused(own) == "others have access to it (mode 0755)"
    beside = TeamFiles(str(teams), NAME, shared=True)
    assert beside.read() is not None
    folder.chmod(0o775)
    assert refused(beside) == "others may write in it (mode 0775)"
    assert refused(own) == "others have access to it (mode 0775)"


@needs_root
@pytest.mark.rule("05.6")
@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize("which", ["config", "team", "teams"])
def test_what_belongs_to_another_user_is_refused(
    kind: str, which: str, request: pytest.FixtureRequest
) -> None:
    files: TeamFiles = request.getfixturevalue(kind)
    path = put(files, config())
    os.chown({"config": path, "team": path.parent, "teams": path.parent.parent}[which], OTHER, OTHER)
    assert refused(files) == f"it belongs to uid {OTHER}"


@pytest.mark.rule("05.6", "07.3")
def test_a_lock_that_is_a_symlink_is_refused_and_what_it_points_to_is_not_made(
    own: TeamFiles, tmp_path: Path
) -> None:
    put(own, config())
    Path(own.folder, ".config.lock").symlink_to(tmp_path / "made")
    for work in (lambda: own.change(joining("w")), own.remove):
        with pytest.raises(UnfitPath, match="symlink"):
            work()
    assert not (tmp_path / "made").exists()


# ── beside other programs ────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.3", "07.22")
def test_the_lock_of_other_programs_is_held_where_they_write_and_nowhere_else(
    own: TeamFiles, shared: TeamFiles
) -> None:
    for files, wanted in ((shared, True), (own, False)):
        seen: list[bool] = []

        def step(team: Team | None, files: TeamFiles = files, seen: list[bool] = seen) -> Team:
            seen.append(os.path.isdir(f"{files.path}.lock"))
            return joining("w")(team)

        Path(own.teams_folder).chmod(0o700)
        put(files, config())
        files.change(step)
        assert seen == [wanted]
        assert not os.path.lexists(f"{files.path}.lock")


@pytest.mark.rule("07.3", "07.22")
def test_who_does_not_get_its_turn_writes_nothing_and_says_why(teams: Path, shared: TeamFiles) -> None:
    put(shared, config())
    hasty = TeamFiles(str(teams), NAME, shared=True, seconds=0)
    mark = shared.mark()
    os.mkdir(f"{shared.path}.lock")
    for work in (lambda: hasty.change(joining("w")), hasty.remove):
        with pytest.raises(NotLocked, match="another program holds it"):
            work()
    os.rmdir(f"{shared.path}.lock")
    with open(f"{shared.folder}/.config.lock", "w") as lock:
        os.chmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NotLocked, match="another process holds it"):
            hasty.change(joining("w"))
        assert hasty.read() is not None  # reading waits for nobody
    assert hasty.mark() == mark
    assert names(hasty.change(joining("w"))) == ["w"]


@pytest.mark.rule("07.22")
def test_another_programs_file_stays_as_open_and_as_full_as_it_was(shared: TeamFiles) -> None:
    raw = {
        "name": NAME,
        "leadProcess": {"pid": 7},
        "members": [{"name": "team-lead", "future": 1}],
        "x": None,
    }
    path = put(shared, json.dumps(raw).encode(), mode=0o644, folder_mode=0o755)
    shared.change(joining("w"))
    assert path.stat().st_mode & 0o7777 == 0o644
    written = json.loads(path.read_bytes())
    assert (written["leadProcess"], written["x"]) == ({"pid": 7}, None)
    assert written["members"][0]["future"] == 1


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_what_was_edited_meanwhile_is_not_overwritten_but_changed_anew(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Another program takes no lock and writes between our reading and our writing."""
    files: TeamFiles = request.getfixturevalue(kind)
    path = put(files, config())
    asked: list[list[str]] = []

    def step(team: Team | None) -> Team:
        asked.append(names(team))
        if len(asked) == 1:
            path.write_bytes(config(members=[{"name": "theirs"}]))
        return joining("ours")(team)

    assert names(files.change(step)) == ["theirs", "ours"]
    assert asked == [[], ["theirs"]]
    assert names(files.read()) == ["theirs", "ours"]


@pytest.mark.rule("07.22")
def test_what_never_stands_still_is_left_alone_and_that_is_told(own: TeamFiles) -> None:
    path = put(own, config())
    asked: list[int] = []

    def step(team: Team | None) -> Team:
        asked.append(len(asked))
        path.write_bytes(config(members=[{"name": f"theirs-{len(asked)}"}]))
        return joining("ours")(team)

    with pytest.raises(StoreFailed, match="changes as often as it is read"):
        own.change(step)
    assert len(asked) == TRIES
    assert names(own.read()) == [f"theirs-{TRIES}"]
    assert sorted(os.listdir(own.folder)) == [".config.lock", "config.json"]


@pytest.mark.rule("07.22")
def test_a_config_that_appears_or_goes_meanwhile_is_seen(own: TeamFiles) -> None:
    def appears(team: Team | None) -> Team:
        if team is None and os.path.isdir(own.folder):
            put(own, config(members=[{"name": "theirs"}]))
        return joining("ours")(team)

    assert names(own.change(appears)) == ["theirs", "ours"]

    def goes(team: Team | None) -> Team:
        if team is not None:
            os.unlink(own.path)
        return joining("later")(team)

    assert names(own.change(goes)) == ["team-lead", "later"]


@pytest.mark.rule("07.3", "07.22")
def test_a_lock_that_another_program_broke_makes_the_change_begin_anew(shared: TeamFiles) -> None:
    put(shared, config())
    lock = Path(f"{shared.path}.lock")
    asked: list[list[str]] = []

    def step(team: Team | None) -> Team:
        asked.append(names(team))
        if len(asked) == 1:
            lock.rmdir()
        return joining("ours")(team)

    assert names(shared.change(step)) == ["ours"]
    assert asked == [[], []]
    assert not lock.exists()


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_a_folder_that_vanishes_meanwhile_is_a_team_that_is_no_more(
    kind: str, request: pytest.FixtureRequest
) -> None:
    files: TeamFiles = request.getfixturevalue(kind)

    def leave(team: Team | None) -> Team | None:
        if team is None:
            return None
        shutil.rmtree(files.folder)
        return without(team, team.identity(team.members[1]), 3_000)

    files.change(joining("worker"))
    assert files.change(leave) is None
    assert not os.path.lexists(files.folder)

    def join(team: Team | None) -> Team:
        if team is not None:
            shutil.rmtree(files.folder)
        return joining("again")(team)

    files.change(joining("worker"))
    assert names(files.change(join)) == ["team-lead", "again"]


@pytest.mark.rule("07.22")
def test_also_the_folder_of_all_teams_may_vanish_and_comes_back_with_the_next_member(
    own: TeamFiles, teams: Path
) -> None:
    own.change(joining("worker"))
    shutil.rmtree(teams)
    assert own.read() is None
    assert names(own.change(joining("again"))) == ["team-lead", "again"]


@pytest.mark.rule("07.22")
def test_a_folder_that_another_makes_in_the_same_moment_is_taken_if_it_is_fit(
    own: TeamFiles, teams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, mode = os.mkdir, 0o755

    def outrun(path: str, *rest: Any, **more: Any) -> None:
        make(path, *rest, **more)
        if path == own.folder:
            os.chmod(path, mode)
            raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "mkdir", outrun)
    with pytest.raises(UnfitPath, match="others have access"):
        own.change(joining("worker"))
    shutil.rmtree(teams)
    mode = 0o700
    assert names(own.change(joining("worker"))) == ["team-lead", "worker"]


@pytest.mark.rule("07.22")
def test_a_folder_that_cannot_be_made_is_told(own: TeamFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def fails(path: str, *rest: Any, **more: Any) -> None:
        if path == own.folder:
            raise OSError(28, "No space left on device")
        make(path, *rest, **more)

    monkeypatch.setattr(os, "mkdir", fails)
    with pytest.raises(UnfitPath, match="cannot be made \\(No space left on device\\)"):
        own.change(joining("worker"))
    assert own.read() is None


# ── removed ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_a_clean_end_removes_the_teams_folder_and_nothing_else(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    files: TeamFiles = request.getfixturevalue(kind)
    files.change(joining("worker"))
    task = tmp_path / "tasks" / NAME / "1.json"
    task.parent.mkdir(parents=True)
    task.write_text("{}")
    other = Path(files.teams_folder) / "another"
    other.mkdir()
    Path(files.inboxes).mkdir()
    Path(files.inboxes, "worker.json").write_text("[]")
    Path(files.inboxes, "link").symlink_to(task.parent)
    assert files.remove() is True
    assert os.listdir(files.teams_folder) == ["another"]
    assert task.read_text() == "{}"
    assert files.remove() is False
    assert files.read() is None


@pytest.mark.rule("07.22")
def test_what_a_crash_left_of_a_removal_goes_with_the_next_one(own: TeamFiles, teams: Path) -> None:
    own.change(joining("worker"))
    left = teams / ".postroom-1-0000.tmp"
    left.mkdir()
    (left / "config.json").write_text("{}")
    (teams / ".postroom-2-0000.tmp").symlink_to(teams.parent)
    assert own.remove() is True
    assert os.listdir(teams) == [".postroom-2-0000.tmp"]
    assert teams.parent.exists()


@pytest.mark.rule("07.22")
def test_a_removal_that_cannot_be_done_is_told(own: TeamFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    own.change(joining("worker"))

    def fails(*paths: str) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fails)
        with pytest.raises(StoreFailed, match="could not be removed"):
            own.remove()
    assert names(own.read()) == ["team-lead", "worker"]
    assert own.remove() is True


@pytest.mark.rule("07.3", "07.22")
def test_a_removal_in_whose_time_the_lock_was_lost_begins_anew(
    shared: TeamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.change(joining("worker"))
    read = shared._read  # pyright: ignore[reportPrivateUsage]
    times: list[int] = []

    def broken(most: int) -> None:
        def look() -> object:
            times.append(len(times))
            if len(times) <= most:
                os.rmdir(f"{shared.path}.lock")
            return read()

        monkeypatch.setattr(shared, "_read", look)

    broken(TRIES)
    with pytest.raises(StoreFailed, match="nothing was removed"):
        shared.remove()
    assert len(times) == TRIES
    times.clear()
    broken(1)
    assert shared.remove() is True
    assert len(times) == 2


@pytest.mark.rule("07.22")
def test_a_folder_that_another_removes_first_is_no_failure(
    own: TeamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.change(joining("worker"))

    def turn() -> object:
        shutil.rmtree(own.teams_folder)
        raise NotLocked(own.path, "its folder is gone")

    monkeypatch.setattr(own, "_turn", turn)
    assert own.remove() is False


def test_a_folder_of_teams_that_goes_with_the_removal_is_no_failure(
    own: TeamFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.change(joining("worker"))
    monkeypatch.setattr(own, "_move_aside", lambda: shutil.rmtree(own.teams_folder))
    assert own.remove() is True


# ── many at once, and ends that nobody planned ───────────────────────────────────────────────────

JOINER = f"""
import sys
from postroom.core.team import Member, founded, joined
from postroom.state.team_files import TeamFiles
folder, shared, word, count = sys.argv[1], sys.argv[2] == "shared", sys.argv[3], int(sys.argv[4])
files = TeamFiles(folder, {NAME!r}, shared=shared, seconds={SECONDS})
def step(team):
    team = team or founded({NAME!r}, 1, lead_session_id={SESSION!r})
    return joined(team, Member(name=word), 2).team
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    files.change(step)
    print(number, flush=True)
"""


def joiner(files: TeamFiles, word: str, count: int) -> subprocess.Popen[bytes]:
    """A process that joins again and again, once it is told to."""
    words = [
        sys.executable,
        "-c",
        JOINER,
        files.teams_folder,
        "shared" if files.shared else "own",
        word,
        str(count),
    ]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def told(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that have ended after the test, however that ends."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate(timeout=SECONDS)


@pytest.mark.rule("07.22")
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_everybody_who_joins_at_once_is_in_and_called_differently(
    kind: str, request: pytest.FixtureRequest, ended: list[subprocess.Popen[bytes]]
) -> None:
    """Real processes, from a team that is not there yet, all with the same name."""
    files: TeamFiles = request.getfixturevalue(kind)
    ended += [joiner(files, "worker", 4) for _ in range(4)]
    for process in ended:
        told(process)
    for process in ended:
        assert process.wait(SECONDS) == 0
    wanted = ["team-lead", "worker", *(f"worker-{number}" for number in range(2, 17))]
    assert names(files.read()) == wanted


@pytest.mark.rule("07.3", "07.22")
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_a_process_that_is_killed_in_the_middle_costs_nobody_anything(
    kind: str, request: pytest.FixtureRequest, ended: list[subprocess.Popen[bytes]]
) -> None:
    """Everything that was said to be done is in the file, at every moment a whole one; nobody waits for the dead."""
    files: TeamFiles = request.getfixturevalue(kind)
    files.change(joining("steady"))
    done = 0
    for turn in range(6):
        process = joiner(files, "victim", 1_000)
        ended.append(process)
        told(process)
        assert process.stdout is not None
        for _ in range(turn + 1):
            assert process.stdout.readline()
            done += 1
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        done += len(process.stdout.read().splitlines())
        with contextlib.suppress(FileNotFoundError):
            # Other programs would wait ten seconds for it; so would we.
            os.utime(f"{files.path}.lock", (0, 0))
        team = files.change(joining("steady"))
        assert team == files.read()
        victims = [name for name in names(team) if name.startswith("victim")]
        assert done <= len(victims) <= done + turn + 1
        assert names(team)[-1] == f"steady-{turn + 2}"


@pytest.mark.rule("07.22")
def test_who_waited_while_the_team_was_removed_finds_none(
    own: TeamFiles, ended: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A joiner waits for its turn in a folder that is removed: it joins a new team, not a folder without a name."""
    own.change(joining("first"))
    process = joiner(own, "second", 1)
    ended.append(process)
    move = own._move_aside  # pyright: ignore[reportPrivateUsage]

    def waited_for() -> None:
        told(process)
        at = time.monotonic() + SECONDS
        while not any(os.path.samefile(fd, f"{own.folder}/.config.lock") for fd in _open_in(process)):
            assert time.monotonic() < at
        move()

    monkeypatch.setattr(own, "_move_aside", waited_for)
    assert own.remove() is True
    assert process.wait(SECONDS) == 0
    assert names(own.read()) == ["team-lead", "second"]
    assert os.listdir(own.teams_folder) == [folder_of(NAME)]


def _open_in(process: subprocess.Popen[bytes]) -> list[str]:
    folder = f"/proc/{process.pid}/fd"
    found: list[str] = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if os.readlink(f"{folder}/{name}").endswith(".config.lock"):
                found.append(f"{folder}/{name}")
    return found


@needs_root
@pytest.mark.rule("07.22")
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_full_disk_changes_nothing_and_is_told(tmp_path: Path, is_shared: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(disk)], check=True)
    try:
        files = TeamFiles(f"{disk}/teams", NAME, shared=is_shared)
        files.change(joining("worker", prompt="x" * 5_000))
        before = Path(files.path).read_bytes()
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4_096)
        with pytest.raises((StoreFailed, NotLocked)):
            files.change(joining("another"))
        assert Path(files.path).read_bytes() == before
        assert sorted(os.listdir(files.folder)) == [".config.lock", "config.json"]
        other = TeamFiles(f"{disk}/teams", "other", shared=is_shared)
        with contextlib.suppress(OSError):
            for number in range(10_000):  # no room for one more name either
                (disk / f"f{number}").touch()
        with pytest.raises((StoreFailed, NotLocked, UnfitPath)):
            other.change(lambda team: founded("other", 1, lead_session_id=SESSION))
        filler.unlink()
        assert names(files.change(joining("another"))) == ["team-lead", "worker", "another"]
        assert files.remove() is True
    finally:
        subprocess.run(["umount", str(disk)], check=True)
