"""The settings of one session: real files that are missing, broken, hostile, and that change while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.core.settings import DEFAULTS, InboundSetting, Limits, Settings
from postroom.errors import SettingInvalid
from postroom.state import config, watch
from postroom.state.config import Config
from tests.strangers import OTHER_UID, as_user, needs_root

SECONDS = 10.0
NEVER = 3600.0
"""For a pause that no test waits out."""

SECRET = "s3cret"


class Desk:
    """The places of one session's settings files.

    Attributes:
        managed, user, project, local: the files.
    """

    def __init__(self, home: Path) -> None:
        self.home = Path(os.path.realpath(home))
        self.work = self.home / "repo" / "work"
        self.work.mkdir(parents=True)
        (self.home / "repo" / ".git").mkdir()
        self.managed = self.home / "etc" / "settings.json"
        self.user = self.home / "config" / "postroom" / "settings.json"
        self.project = self.work / ".postroom" / "settings.json"
        self.local = self.work / ".postroom" / "settings.local.json"
        self.root_project = self.home / "repo" / ".postroom" / "settings.json"

    def config(self, flag: str | None = None) -> Config:
        """What a session reads here."""
        return Config(
            cwd=str(self.work),
            environ={"XDG_CONFIG_HOME": str(self.home / "config")},
            flag=flag,
            managed=str(self.managed),
        )


def write(path: Path, content: object) -> None:
    """Writes a file in place, with the folders above it: text as it is, anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def replace(path: Path, content: object) -> None:
    """Writes a file beside it and renames it into its place, as many editors do."""
    write(path.with_name("new~"), content)
    path.with_name("new~").rename(path)


def inbound(value: object) -> dict[str, object]:
    """A file that sets what may come in."""
    return {"crossSessionInbound": value}


def said(found: Config | Settings) -> tuple[str, str, str] | None:
    """What applies to what comes in: the value, the scope, and what a hold by it is called."""
    one = (found.settings if isinstance(found, Config) else found).inbound
    return None if one is None else (one.value, one.scope, one.cause)


@pytest.fixture
def desk(home: Path) -> Desk:
    return Desk(home)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.23")
def test_where_no_file_is_the_defaults_apply(desk: Desk) -> None:
    assert desk.config().settings == DEFAULTS
    assert Config(cwd="/", environ={"HOME": "none"}, managed="/missing/x").settings == DEFAULTS


@pytest.mark.rule("03.24", "03.25", "03.26", "03.27", "03.28", "03.32")
def test_every_scope_has_its_file(desk: Desk) -> None:
    for file, scope in (
        (desk.managed, "managed"),
        (desk.user, "user"),
        (desk.project, "project"),
        (desk.root_project, "project"),
        (desk.local, "local"),
        (desk.root_project.with_name("settings.local.json"), "local"),
    ):
        write(file, {**inbound("hold"), "foo": 1})
        found = desk.config().settings
        assert found.inbound is not None
        assert found.inbound.scope == scope
        assert found.problems[0].startswith(f"{file}: ")
        file.unlink()
    assert said(desk.config('{"crossSessionInbound": "hold"}')) == ("hold", "flag", "explicit-setting")


@pytest.mark.rule("03.32")
def test_of_the_working_directory_and_its_root_the_stricter_counts(desk: Desk) -> None:
    write(desk.project, inbound("hold"))
    write(desk.root_project, inbound("refuse"))
    assert said(desk.config()) == ("refuse", "project", "repo-setting")
    write(desk.project, inbound("refuse"))
    write(desk.root_project, inbound("accept"))
    assert said(desk.config()) == ("refuse", "project", "repo-setting")


@pytest.mark.rule("03.36")
def test_what_has_changed_is_read_again(desk: Desk) -> None:
    """Also two changes within one tick of the clock that leave the length as it was."""
    found = desk.config()
    assert not found.look()
    for value in ("accept", "refuse", "accept", "refuse"):
        write(desk.user, inbound(value))
        assert found.look()
        assert said(found) == (value, "user", "explicit-setting")
        assert not found.look()
    write(desk.user, json.dumps(inbound("refuse")) + "\n")
    assert not found.look(), "other bytes that say the same"
    desk.user.unlink()
    assert found.look()
    assert found.settings == DEFAULTS


def test_a_relative_working_directory_is_meant_from_here(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    write(desk.project, inbound("hold"))
    monkeypatch.chdir(desk.work.parent)
    assert Config(cwd="work", environ={"HOME": "x"}, managed="/missing/x").settings.inbound is not None


# ── files that cannot be read ────────────────────────────────────────────────────────────────────


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path, 0o600)


def _open_to_others(path: Path) -> None:
    write(path, inbound("accept"))
    path.chmod(0o666)


def _another_users(path: Path) -> None:
    write(path, inbound("accept"))
    os.chown(path, OTHER_UID, -1)


def _lost_symlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("missing")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    # how a file is broken: what makes it so, and what is said
    "broken JSON": (lambda path: write(path, '{"crossSessionInbound": "acc'), "it is no JSON"),
    "empty": (lambda path: write(path, ""), "it is empty"),
    "a list": (lambda path: write(path, []), "it holds a list and no object"),
    "a number": (lambda path: write(path, 7), "it holds 7 and no object"),
    "huge": (lambda path: write(path, json.dumps(inbound("accept")) + " " * 2**20), "it is larger than"),
    "a folder": (_folder, "it is a folder"),
    "a FIFO": (_fifo, "it is not a regular file"),
    "open to others": (_open_to_others, "others may write to it"),
    "a symlink to nothing": (_lost_symlink, "a symlink"),
}
AS_ROOT = {"another user's": (_another_users, f"it belongs to uid {OTHER_UID}")}
EVERY_BROKEN = [*BROKEN, *(pytest.param(name, marks=needs_root) for name in AS_ROOT)]


@pytest.mark.rule("03.35", "11.28")
@pytest.mark.parametrize("how", EVERY_BROKEN)
@pytest.mark.parametrize("scope", ["managed", "user", "project", "local"])
def test_a_file_that_never_was_good_holds_and_is_named(desk: Desk, scope: str, how: str) -> None:
    file: Path = getattr(desk, scope)
    other = desk.user if scope == "managed" else desk.managed
    write(other, inbound("accept"))
    make, says = {**BROKEN, **AS_ROOT}[how]
    make(file)
    found = desk.config()
    assert said(found) == ("hold", scope, "invalid-setting")
    assert [problem for problem in found.settings.problems if problem.startswith(f"{file}: ")]
    assert says in found.settings.problems[0 if scope == "managed" else -1]
    assert (
        "until it is mended, what comes in is held"
        in found.settings.problems[0 if scope == "managed" else -1]
    )
    write(other, inbound("refuse"))
    found.look()
    assert said(found) == ("refuse", "user" if scope == "managed" else "managed", CAUSE[other == desk.user])
    # mended
    if how == "a folder":
        file.rmdir()
    else:
        file.unlink()
    write(file, {})
    assert found.look()
    assert found.settings.problems == ()
    write(other, {})
    assert found.look()
    assert found.settings == DEFAULTS


CAUSE = {True: "explicit-setting", False: "managed-setting"}


@pytest.mark.rule("03.35")
@pytest.mark.parametrize("how", EVERY_BROKEN)
@pytest.mark.parametrize("good", ["accept", "refuse"])
def test_its_last_good_content_stays_in_force_and_it_is_named(desk: Desk, how: str, good: str) -> None:
    write(desk.user, {**inbound(good), "dialogExpiry": "never"})
    found = desk.config()
    make, says = {**BROKEN, **AS_ROOT}[how]
    make(desk.user)
    assert found.look()
    assert said(found) == (good, "user", "explicit-setting")
    assert found.settings.dialog_expiry is None
    [problem] = found.settings.problems
    assert problem.startswith(f"{desk.user}: ")
    assert says in problem
    assert problem.endswith("; what it said before stays in force.")
    assert not found.look()


@pytest.mark.rule("03.35")
def test_a_session_that_starts_on_a_broken_file_does_not_know_what_it_said(desk: Desk) -> None:
    write(desk.user, inbound("accept"))
    before = desk.config()
    write(desk.user, "{")
    before.look()
    assert (said(before), said(desk.config())) == (
        ("accept", "user", "explicit-setting"),
        ("hold", "user", "invalid-setting"),
    )
    desk.user.unlink()
    assert before.look()
    write(desk.user, "{")
    assert before.look()
    assert said(before) == ("hold", "user", "invalid-setting"), "what was removed does not come back"


@needs_root
@pytest.mark.rule("03.35", "11.28")
def test_a_file_that_may_not_be_opened_holds(desk: Desk) -> None:
    write(desk.project, inbound("accept"))
    for folder in (desk.home, *desk.project.relative_to(desk.home).parents):
        (desk.home / folder).chmod(0o755)
    desk.project.chmod(0o000)

    def looked() -> list[Any]:
        found = desk.config().settings
        return [said(found), found.problems]

    held, problems = as_user(OTHER_UID, looked)
    assert held == ["hold", "project", "invalid-setting"]
    assert problems[0].startswith(f"{desk.project}: this user may not open it")


@pytest.mark.rule("03.34")
@pytest.mark.parametrize("scope", ["user", "project", "local"])
def test_a_symlink_to_a_file_that_passes_is_followed(desk: Desk, scope: str) -> None:
    file: Path = getattr(desk, scope)
    write(desk.home / "dotfiles" / "postroom.json", inbound("refuse"))
    file.parent.mkdir(parents=True)
    file.symlink_to(desk.home / "dotfiles" / "postroom.json")
    found = desk.config()
    assert found.settings.inbound is not None
    assert (found.settings.inbound.value, found.settings.inbound.scope) == ("refuse", scope)
    write(desk.home / "dotfiles" / "postroom.json", inbound("hold"))
    assert found.look()
    (desk.home / "dotfiles" / "postroom.json").chmod(0o666)
    assert found.look()
    assert (found.settings.inbound.value, found.settings.inbound.scope) == ("hold", scope)
    assert "others may write to it" in found.settings.problems[0]


@pytest.mark.rule("03.34")
def test_the_managed_file_is_no_symlink(desk: Desk) -> None:
    write(desk.home / "elsewhere.json", inbound("accept"))
    desk.managed.parent.mkdir()
    desk.managed.symlink_to(desk.home / "elsewhere.json")
    found = desk.config()
    assert said(found) == ("hold", "managed", "invalid-setting")
    assert "it is a symlink, which is not followed here" in found.settings.problems[0]


@needs_root
@pytest.mark.rule("11.11")
def test_what_another_user_put_into_an_open_folder_holds_nothing(desk: Desk) -> None:
    write(desk.project, inbound("refuse"))
    desk.work.chmod(0o1777)
    for path in (desk.project.parent, desk.project):
        os.chown(path, OTHER_UID, -1)
    found = desk.config()
    assert found.settings.inbound is None
    [problem, _] = found.settings.problems
    assert problem.startswith(f"{desk.project}: uid {OTHER_UID} has put {desk.project.parent} into a folder")
    assert problem.endswith("; it is left alone.")
    os.chown(desk.project.parent, os.geteuid(), -1)
    os.chown(desk.project, os.geteuid(), -1)
    assert found.look()
    assert said(found) == ("refuse", "project", "repo-setting")


# ── --settings ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.25")
def test_settings_are_handed_over_as_json_or_as_a_file(desk: Desk) -> None:
    content = {**inbound("accept"), "limits": {"maxUnread": 20}}
    write(desk.home / "once.json", content)
    write(desk.work / "here.json", content)
    write(desk.user, inbound("hold"))
    for flag in (json.dumps(content), f" \n{json.dumps(content)}", str(desk.home / "once.json"), "here.json"):
        found = desk.config(flag)
        assert said(found) == ("accept", "flag", "explicit-setting")
        assert found.settings.limits == Limits(max_unread=20)
    write(desk.managed, inbound("refuse"))
    assert said(desk.config(json.dumps(content))) == ("refuse", "managed", "managed-setting")


UNUSABLE = {
    # what is handed over → what is said
    '{"crossSessionInbound": "acept"}': '--settings: crossSessionInbound is "acept", which is none of',
    '{"dialogExpiry": 5}': "--settings: dialogExpiry is 5, which is none of",
    '{"limits": {"maxUnread": "many"}}': '--settings: limits.maxUnread is "many", which is no number',
    '{"permissions": {"deny": "SendMessage"}}': "--settings: permissions.deny is",
    '{"nats": {"token": ["s3cret"]}}': "--settings: nats holds a token that is not text",
    '{"nats": {"token": "s3cret"}': "--settings: it is no JSON: Expecting ',' delimiter",
    "{}{": "--settings: it is no JSON: Extra data",
    '{"crossSessionInbound": "hold", "crossSessionInbound": "accept"}': "the same key twice, crossSessionInbound",
    "{\udce9}": "--settings: it is not UTF-8",
    "": "it is a folder",
    "[]": "neither JSON nor the path of a file that is there",
    '"nats": {"token": "s3cret"}': "neither JSON nor the path of a file that is there",
    "missing.json": "neither JSON nor the path of a file that is there",
    "a\0b": "it is no path of this system",
    ".": "it is a folder",
    "/dev/null": "/dev/null: it is not a regular file.",
}  # fmt: skip


@pytest.mark.rule("03.25")
@pytest.mark.parametrize("flag", UNUSABLE)
def test_settings_that_cannot_be_used_are_refused_at_once(desk: Desk, flag: str) -> None:
    with pytest.raises(SettingInvalid) as caught:
        desk.config(flag)
    assert UNUSABLE[flag] in caught.value.message
    assert caught.value.code == "setting_invalid"
    assert "Mend it" in caught.value.hint
    assert caught.value.message.endswith(".")
    assert "count" not in caught.value.message, "nothing counts in its place"
    assert SECRET not in str(caught.value)


@pytest.mark.rule("03.25", "03.35")
@pytest.mark.parametrize("content", ["{", "[]", '{"readReceipts": 1}'])
def test_a_file_that_is_handed_over_must_be_right_at_the_start_alone(desk: Desk, content: str) -> None:
    file = desk.work / "flag.json"
    write(file, content)
    with pytest.raises(SettingInvalid, match=r"flag\.json: "):
        desk.config("flag.json")
    write(file, inbound("refuse"))
    found = desk.config("flag.json")
    write(file, "{")
    assert found.look()
    assert said(found) == ("refuse", "flag", "explicit-setting")
    write(file, inbound("acept"))
    assert found.look()
    assert said(found) == ("hold", "flag", "invalid-setting")


@pytest.mark.rule("03.23", "03.25")
def test_what_is_only_odd_is_named_and_taken(desk: Desk) -> None:
    found = desk.config('{"limits": {"maxUnread": 9}, "maxUnread": 9}').settings
    assert found.limits == Limits(max_unread=10)
    assert [problem.partition(" is ")[0] for problem in found.problems] == [
        "--settings: limits.maxUnread",
        '--settings: "maxUnread"',
    ]


# ── watching ─────────────────────────────────────────────────────────────────────────────────────


class Watched:
    """A config that is watched, and how often it told of a change."""

    def __init__(self, found: Config) -> None:
        self.config = found
        self.seen: list[tuple[str, str, str] | None] = []
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.seen.append(said(self.config))
        self._event.set()

    async def until(self, holds: Callable[[Settings], bool]) -> None:
        """Waits until what applies is so, looking whenever a change is told of and never else."""
        async with asyncio.timeout(SECONDS):
            while not holds(self.config.settings):
                self._event.clear()
                await self._event.wait()

    async def until_said(self, value: str | None) -> None:
        """Waits until an inbound setting applies."""
        await self.until(lambda found: (found.inbound.value if found.inbound else None) == value)


@contextlib.asynccontextmanager
async def watched(found: Config) -> AsyncGenerator[Watched]:
    """Watches it while the block runs."""
    one = Watched(found)
    found.watch(one)
    try:
        yield one
    finally:
        found.stop()
        assert found.watching == ""


def is_polling(found: Config) -> bool:
    """Whether it looks again and again."""
    return found.watching == "polling"


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a test's work on a loop."""
    asyncio.run(work)


async def rounds_of_the_loop() -> None:
    """Lets the loop look at its descriptors and its due timers a few times; what the kernel has told of is then read."""
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.fixture(params=["inotify", "polling"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How changes are noticed: by the kernel's word, or by looking again and again."""
    if request.param == "polling":

        class Lacking:
            def __init__(self) -> None:
                raise OSError("no inotify")

        monkeypatch.setattr(watch, "KernelInotify", Lacking)
        monkeypatch.setattr(config, "POLL_SECONDS", 0.005)
    else:
        monkeypatch.setattr(config, "POLL_SECONDS", NEVER)  # so that only the kernel's word can help
    return request.param


@pytest.mark.rule("03.36")
def test_a_change_is_told_of(desk: Desk, way: str) -> None:
    """A file that appears where no folder was, edited in place, replaced by a rename, and removed."""

    async def work() -> None:
        async with watched(desk.config()) as one:
            assert one.config.watching == way
            for file in (desk.user, desk.managed):
                write(file, inbound("accept"))
                await one.until_said("accept")
                write(file, inbound("refuse"))
                await one.until_said("refuse")
                replace(file, inbound("hold"))
                await one.until_said("hold")
                file.unlink()
                await one.until_said(None)
            for file in (desk.project, desk.local, desk.root_project):
                write(file, inbound("hold"))
                await one.until_said("hold")
                replace(file, inbound("refuse"))
                await one.until_said("refuse")
                file.unlink()
                await one.until_said(None)
            assert one.config.watching == way

    run(work())


@pytest.mark.rule("03.34", "03.36")
def test_a_change_behind_a_symlink_is_told_of(desk: Desk, way: str) -> None:
    async def work() -> None:
        target = desk.home / "dotfiles" / "a" / "settings.json"
        write(target, inbound("accept"))
        desk.user.parent.parent.mkdir()
        desk.user.parent.symlink_to(desk.home / "dotfiles" / "a")
        async with watched(desk.config()) as one:
            await one.until_said("accept")
            write(target, inbound("refuse"))
            await one.until_said("refuse")
            write(desk.home / "dotfiles" / "b" / "settings.json", inbound("hold"))
            (desk.home / "turned").symlink_to(desk.home / "dotfiles" / "b")
            (desk.home / "turned").rename(desk.user.parent)
            await one.until_said("hold")
            replace(desk.home / "dotfiles" / "b" / "settings.json", inbound("accept"))
            await one.until_said("accept")

    run(work())


@pytest.mark.rule("03.25", "03.36")
def test_a_file_that_was_handed_over_is_watched_too(desk: Desk, way: str) -> None:
    async def work() -> None:
        write(desk.work / "flag.json", inbound("accept"))
        async with watched(desk.config("flag.json")) as one:
            write(desk.work / "flag.json", inbound("refuse"))
            await one.until_said("refuse")

    run(work())


@pytest.mark.rule("03.35", "03.36")
@pytest.mark.parametrize("how", EVERY_BROKEN)
def test_what_breaks_keeps_its_good_content_and_is_told_of(desk: Desk, way: str, how: str) -> None:
    async def work() -> None:
        write(desk.user, inbound("refuse"))
        async with watched(desk.config()) as one:
            {**BROKEN, **AS_ROOT}[how][0](desk.user)
            await one.until(lambda found: bool(found.problems))
            assert one.seen == [("refuse", "user", "explicit-setting")] * len(one.seen)
            assert {**BROKEN, **AS_ROOT}[how][1] in one.config.settings.problems[0]

    run(work())


@pytest.mark.rule("03.35", "03.36")
def test_what_never_was_good_holds_until_it_is_mended(desk: Desk, way: str) -> None:
    async def work() -> None:
        async with watched(desk.config()) as one:
            write(desk.project, "{")
            await one.until_said("hold")
            assert said(one.config) == ("hold", "project", "invalid-setting")
            replace(desk.project, {})
            await one.until_said(None)

    run(work())


@pytest.mark.rule("03.36")
def test_what_changed_before_the_watching_began_is_told_of(desk: Desk, way: str) -> None:
    async def work() -> None:
        found = desk.config()
        write(desk.user, inbound("refuse"))
        async with watched(found) as one:
            assert one.seen == [], "never from inside the call"
            await one.until_said("refuse")

    run(work())


def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the kernel's word counts, and what is doubted stays in doubt."""
    monkeypatch.setattr(config, "POLL_SECONDS", NEVER)
    monkeypatch.setattr(config, "DOUBT_SECONDS", NEVER)


@pytest.mark.rule("03.35", "03.45")
def test_an_editor_that_moves_the_old_file_away_first_lets_nothing_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that empties it first: each step is seen by itself here, and what applied goes on."""
    forced(monkeypatch)

    async def work() -> None:
        write(desk.user, inbound("hold"))
        async with watched(desk.config()) as one:
            await rounds_of_the_loop()
            steps: list[Callable[[], object]] = [
                lambda: desk.user.rename(desk.user.with_name("settings.json~")),
                lambda: write(desk.user, ""),
                lambda: write(desk.user, '{"crossSessionIn'),
                lambda: desk.user.unlink(),
                lambda: write(desk.user, inbound("hold")),
                lambda: desk.user.with_name("settings.json~").unlink(),
            ]
            for step in steps:
                step()
                await rounds_of_the_loop()
                assert said(one.config) == ("hold", "user", "explicit-setting")
            assert one.seen == []
            assert one.config.settings.problems == ()
            write(desk.user, inbound("refuse"))
            await one.until_said("refuse")

    run(work())


@pytest.mark.rule("03.35", "03.36")
def test_a_doubt_ends_by_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another word from the kernel, and for each file by itself."""
    monkeypatch.setattr(config, "POLL_SECONDS", NEVER)

    async def work() -> None:
        write(desk.user, inbound("hold"))
        write(desk.managed, {})
        async with watched(desk.config()) as one:
            desk.user.unlink()
            write(desk.managed, "{")
            await one.until(lambda found: found.inbound is None and bool(found.problems))

    run(work())


@pytest.mark.rule("03.36")
def test_it_tells_only_of_what_makes_a_difference(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch)

    async def work() -> None:
        write(desk.user, inbound("hold"))
        async with watched(desk.config()) as one:
            for change in (
                lambda: os.utime(desk.user),
                lambda: write(desk.user, json.dumps(inbound("hold")) + "\n\n"),
                lambda: replace(desk.user, inbound("hold")),
                lambda: write(desk.project, inbound("accept") | inbound("hold")),  # the user's hold decides
                lambda: write(desk.user.with_name("other.json"), inbound("refuse")),
            ):
                change()
                await rounds_of_the_loop()
            assert one.seen == []
            write(desk.user, inbound("refuse"))
            await one.until_said("refuse")
            assert len(one.seen) == 1

    run(work())


def test_what_came_together_is_told_of_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch)

    async def work() -> None:
        for file in (desk.user, desk.project):
            write(file, {})
        async with watched(desk.config()) as one:
            await rounds_of_the_loop()
            for value in itertools.islice(itertools.cycle(("accept", "hold", "refuse")), 30):
                write(desk.user, inbound(value))
                write(desk.project, {"foo": value})
            await one.until_said("refuse")
            await rounds_of_the_loop()
            assert len(one.seen) == 1

    run(work())


@contextlib.contextmanager
def timers() -> Generator[list[asyncio.TimerHandle]]:
    """The timers that are set on the loop while the block runs."""
    loop = asyncio.get_running_loop()
    real = loop.call_later
    made: list[asyncio.TimerHandle] = []

    def counted(delay: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:
        made.append(real(delay, *rest, **more))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_later", counted)
        yield made


@pytest.mark.rule("03.36")
def test_nothing_wakes_up_where_the_kernel_tells_of_changes(desk: Desk) -> None:
    async def work() -> None:
        async with watched(desk.config()) as one:
            await rounds_of_the_loop()
            with timers() as made:
                write(desk.user, inbound("refuse"))
                await rounds_of_the_loop()
            assert said(one.config) == ("refuse", "user", "explicit-setting")
            assert made == []
            assert one.config.watching == "inotify"

    run(work())


def test_a_doubt_that_was_settled_takes_no_time_from_the_next(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced(monkeypatch)

    async def work() -> None:
        write(desk.user, inbound("hold"))
        async with watched(desk.config()):
            await rounds_of_the_loop()
            with timers() as made:
                for settled in (1, 2):
                    desk.user.unlink()
                    await rounds_of_the_loop()
                    assert [timer.cancelled() for timer in made] == [True] * (settled - 1) + [False]
                    write(desk.user, inbound("hold"))
                    await rounds_of_the_loop()
                    assert all(timer.cancelled() for timer in made)

    run(work())


@pytest.mark.rule("03.36")
def test_where_a_folder_cannot_be_watched_it_is_looked_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it can: the kernel gives each user a number of watches and no more."""
    monkeypatch.setattr(config, "POLL_SECONDS", 0.005)
    full = True

    class Full(watch.KernelInotify):
        def add(self, fd: int, folder: str, mask: int) -> int:
            if full and folder == str(desk.home):
                raise OSError(28, "no space left")
            return super().add(fd, folder, mask)

    monkeypatch.setattr(watch, "KernelInotify", Full)

    async def work() -> None:
        nonlocal full
        async with watched(desk.config()) as one:
            assert is_polling(one.config)
            write(desk.user, inbound("refuse"))
            await one.until_said("refuse")
            full = False
            async with asyncio.timeout(SECONDS):
                while is_polling(one.config):
                    await asyncio.sleep(0)
            write(desk.user, inbound("hold"))
            await one.until_said("hold")

    run(work())


def test_stopping_ends_it_and_gives_everything_back(desk: Desk, way: str) -> None:
    async def work() -> None:
        before = os.listdir("/proc/self/fd")
        found = desk.config()
        found.stop()
        async with watched(found) as one:
            write(desk.user, "{")
            await rounds_of_the_loop()
            found.stop()
            found.stop()
            write(desk.user, inbound("refuse"))
            await rounds_of_the_loop()
            assert one.seen == []
            assert os.listdir("/proc/self/fd") == before
        assert found.look()
        async with watched(found) as one:
            write(desk.user, inbound("hold"))
            await one.until_said("hold")

    run(work())


def test_who_is_told_may_stop_it(desk: Desk, way: str) -> None:
    async def work() -> None:
        found = desk.config()
        told = asyncio.Event()

        def changed() -> None:
            found.stop()
            told.set()

        found.watch(changed)
        write(desk.user, "{")
        write(desk.project, inbound("hold"))
        await asyncio.wait_for(told.wait(), SECONDS)
        assert found.watching == ""

    run(work())


def test_a_second_watch_takes_the_firsts_place(desk: Desk, way: str) -> None:
    async def work() -> None:
        found = desk.config()
        first = Watched(found)
        found.watch(first)
        async with watched(found) as second:
            write(desk.user, inbound("refuse"))
            await second.until_said("refuse")
        assert first.seen == []

    run(work())


@pytest.mark.rule("03.35", "03.36")
def test_a_file_that_is_always_replaced_whole_is_never_seen_otherwise(desk: Desk, way: str) -> None:
    async def work() -> None:
        write(desk.user, inbound("hold"))
        async with watched(desk.config()) as one:
            for number in range(200):
                replace(desk.user, inbound(("refuse", "hold")[number % 2]))
                if number % 7 == 0:
                    await rounds_of_the_loop()
            replace(desk.user, inbound("accept"))
            await one.until_said("accept")
            assert {seen and seen[0] for seen in one.seen} <= {"refuse", "hold", "accept"}

    run(work())


# ── properties ───────────────────────────────────────────────────────────────────────────────────

texts = st.sampled_from(
    [
        *("", "{", "[]", "{}", '{"crossSessionInbound": "acept"}'),
        *('{"crossSessionInbound": "accept"}', '{"crossSessionInbound": "hold"}', '{"crossSessionInbound": "refuse"}'),
    ]
) | st.text(max_size=20)  # fmt: skip
GOOD = {"{}": None, **{f'{{"crossSessionInbound": "{word}"}}': word for word in ("accept", "hold", "refuse")}}


@pytest.mark.rule("03.35")
@given(st.lists(st.none() | texts, max_size=6))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_to_a_file_the_last_good_content_applies(
    desk: Desk, history: list[str | None]
) -> None:
    """A small model: nothing, the last good word, or a hold where there never was one since it is there."""
    desk.user.unlink(missing_ok=True)
    found = desk.config()
    good: tuple[bool, str | None] = (False, None)
    for text in history:
        if text is None:
            desk.user.unlink(missing_ok=True)
            good = (False, None)
        else:
            write(desk.user, text)
        found.look()
        if text in GOOD:
            good = (True, GOOD[text])
        elif text == '{"crossSessionInbound": "acept"}':
            good = (True, "hold")
        expected = good[1] if good[0] or text is None else "hold"
        now: InboundSetting | None = found.settings.inbound
        assert (now.value if now else None) == expected
        assert (text is None or text in GOOD) is (found.settings.problems == ())
