"""Being told of changes: what is watched on the way to a file, and which events count. The kernel's own, and made ones."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from postroom.state.watch import Inotify, KernelInotify, Watcher, steps
from tests.strangers import OTHER_UID, as_user, needs_root

SECONDS = 10.0
ROUNDS = 8


@pytest.fixture
def place(home: Path) -> Path:
    """A folder without a symlink in its path."""
    folder = Path(os.path.realpath(home)) / "place"
    folder.mkdir()
    return folder


def walked(path: Path | str) -> list[tuple[str, str]]:
    """What is watched on the way to a file: folders, and the entries that count in them."""
    return [(step.folder, step.name) for step in steps(str(path))]


def on_the_way(folder: Path) -> list[tuple[str, str]]:
    """The folders from the top down to one, each by itself."""
    return [(str(above), "") for above in [*reversed(folder.parents), folder][1:]]


# ── the way to a file ────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.36")
def test_a_file_is_watched_in_its_folder(place: Path) -> None:
    (place / "file").write_text("")
    assert walked(place / "file") == [*on_the_way(place), (str(place), "file")]
    assert walked(f"{place}/.//file") == walked(place / "file")


@pytest.mark.rule("03.36")
def test_where_a_folder_is_missing_the_nearest_one_above_is_watched(place: Path) -> None:
    assert walked(place / "a" / "b" / "file") == [*on_the_way(place), (str(place), "a")]
    (place / "a").write_text("a file where a folder should be")
    assert walked(place / "a" / "b" / "file")[-1] == (str(place), "a")
    assert walked("/missing/file") == [("/", "missing")]


@pytest.mark.rule("03.34", "03.36")
def test_a_symlink_is_watched_where_it_lies_and_where_it_leads(place: Path) -> None:
    (place / "real").mkdir()
    (place / "real" / "file").write_text("")
    (place / "conf").mkdir()
    (place / "conf" / "link").symlink_to("../real/file")
    assert walked(place / "conf" / "link") == [
        *on_the_way(place / "conf"),
        (f"{place}/conf", "link"),
        (f"{place}/real", ""),
        (f"{place}/real", "file"),
    ]
    (place / "turned").symlink_to(place / "real")  # as in a folder of configuration that is itself a link
    assert walked(place / "turned" / "file") == [
        *on_the_way(place),
        (str(place), "turned"),
        *on_the_way(place / "real"),
        (f"{place}/real", "file"),
    ]
    (place / "lost").symlink_to("nowhere/file")
    assert walked(place / "lost")[-2:] == [(str(place), "lost"), (str(place), "nowhere")]


def test_a_circle_of_symlinks_ends(place: Path) -> None:
    (place / "link").symlink_to("link")
    assert set(walked(place / "link")) == {*on_the_way(place), (str(place), "link")}
    assert len(walked(place / "link")) < 100


def test_a_path_that_is_none_ends() -> None:
    assert walked("/a\0b/file") == walked("/") == []


@needs_root
@pytest.mark.rule("03.36")
def test_a_folder_that_may_not_be_entered_is_watched_for_its_mode(place: Path) -> None:
    """The way ends above what cannot be looked at, and a change of the mode counts there as well."""
    (place / "conf").mkdir(mode=0o700)
    for folder in (place, place.parent):
        folder.chmod(0o755)

    def last() -> list[Any]:
        *_, step = steps(str(place / "conf" / "file"))
        return list(step)

    missing = list(steps(str(place / "conf" / "file")))[-1]
    folder, name, mask = as_user(OTHER_UID, last)
    assert (folder, name) == (f"{place}/conf", "file")
    assert mask & ~missing.mask == 0x4  # IN_ATTRIB


# ── events of the kernel ─────────────────────────────────────────────────────────────────────────


class Woken:
    """Counts the times that a watcher woke us, and waits for the next."""

    def __init__(self) -> None:
        self.times = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self._event.set()

    async def again(self) -> None:
        """Waits for the next time, at most so long that a test fails."""
        await asyncio.wait_for(self._event.wait(), SECONDS)
        self._event.clear()


def watching(*paths: Path, work: Callable[[Watcher, Woken], Coroutine[Any, Any, None]]) -> None:
    """Runs some work while these paths are watched."""

    async def run() -> None:
        woken = Woken()
        watcher = Watcher(woken)
        try:
            assert watcher.cover(map(str, paths))
            await work(watcher, woken)
        finally:
            watcher.stop()

    asyncio.run(run())


def append(file: Path) -> None:
    """Writes more into a file."""
    with file.open("a") as more:
        more.write("other")


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "edited in place": lambda file, _: file.write_text("other"),
    "appended to": lambda file, _: append(file),
    "replaced by a rename": lambda file, other: other.rename(file),
    "moved away": lambda file, other: file.rename(other),
    "removed": lambda file, _: file.unlink(),
    "given another mode": lambda file, _: file.chmod(0o600),
    "touched": lambda file, _: os.utime(file),
    "its folder moved": lambda file, _: file.parent.rename(file.parent.with_name("elsewhere")),
}


@pytest.mark.rule("03.36")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_wakes(place: Path, change: str) -> None:
    folder = place / "conf"
    folder.mkdir()
    file, other = folder / "file", place / "other"
    file.write_text("one")
    other.write_text("two")
    file.chmod(0o644)

    async def work(watcher: Watcher, woken: Woken) -> None:
        CHANGES[change](file, other)
        await woken.again()

    watching(file, work=work)


@pytest.mark.rule("03.36")
def test_a_file_that_appears_where_no_folder_was_wakes_at_each_step(place: Path) -> None:
    file = place / "a" / "b" / "file"

    async def work(watcher: Watcher, woken: Woken) -> None:
        for folder in (place / "a", place / "a" / "b"):
            folder.mkdir()
            await woken.again()
            assert watcher.cover([str(file)])
        file.write_text("")
        await woken.again()

    watching(file, work=work)


@pytest.mark.rule("03.36")
def test_a_folder_that_is_moved_to_where_none_was_wakes(place: Path) -> None:
    (place / "other" / "b").mkdir(parents=True)

    async def work(watcher: Watcher, woken: Woken) -> None:
        (place / "other").rename(place / "a")
        await woken.again()

    watching(place / "a" / "b" / "file", work=work)


@pytest.mark.rule("03.34", "03.36")
def test_what_a_symlink_leads_to_and_where_it_leads_both_wake(place: Path) -> None:
    for name in ("one", "two"):
        (place / name).mkdir()
        (place / name / "file").write_text(name)
    (place / "turned").symlink_to("one")
    (place / "link").symlink_to("turned/file")

    async def work(watcher: Watcher, woken: Woken) -> None:
        (place / "one" / "file").write_text("1")
        await woken.again()
        (place / "fresh").symlink_to("two")
        (place / "fresh").rename(place / "turned")
        await woken.again()
        assert watcher.cover([str(place / "link")])
        times = woken.times
        (place / "one" / "file").write_text("nobody looks at it any more")
        (place / "two" / "file").write_text("2")
        await woken.again()
        assert woken.times == times + 1

    watching(place / "link", work=work)


def test_what_came_together_wakes_once(place: Path) -> None:
    one, two = place / "one", place / "two"

    async def work(watcher: Watcher, woken: Woken) -> None:
        for number in range(100):
            one.write_text(str(number))
            two.write_text(str(number))
        await woken.again()
        assert woken.times == 1

    watching(one, two, work=work)


def test_another_file_of_the_folder_wakes_nobody(place: Path) -> None:
    async def work(watcher: Watcher, woken: Woken) -> None:
        (place / "other").write_text("")
        await round_of_the_loop()
        assert woken.times == 0
        (place / "file").write_text("")
        await round_of_the_loop()
        assert woken.times == 1

    watching(place / "file", work=work)


def test_stopping_gives_everything_back(place: Path) -> None:
    before = os.listdir("/proc/self/fd")

    async def run() -> None:
        inside = os.listdir("/proc/self/fd")
        watcher = Watcher(lambda: None)
        watcher.cover([str(place / "file")])
        watcher.stop()
        watcher.stop()
        assert os.listdir("/proc/self/fd") == inside

    asyncio.run(run())
    assert os.listdir("/proc/self/fd") == before


# ── events that are made ─────────────────────────────────────────────────────────────────────────


class MadeInotify:
    """Stands for the kernel: a pipe through which a test sends events.

    Attributes:
        added: folder → its number; the numbers begin at 1.
        failing: folder → the error that watching it raises.
        removed: the numbers that were given back.
    """

    def __init__(self) -> None:
        self.added: dict[str, int] = {}
        self.failing: dict[str, int] = {}
        self.removed: list[int] = []
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)

    def open(self) -> int:
        return self._reading

    def add(self, fd: int, folder: str, mask: int) -> int:
        assert fd == self._reading
        assert mask
        if folder in self.failing:
            raise OSError(self.failing[folder], "made to fail")
        return self.added.setdefault(folder, len(self.added) + 1)

    def remove(self, fd: int, watch: int) -> None:
        self.removed.append(watch)

    def send(self, watch: int, name: bytes = b"", mask: int = 0x100) -> None:
        """Sends one event as the kernel writes it: the name is filled up with zeros."""
        padded = name + b"\0" * (16 - len(name)) if name else b""
        os.write(self._writing, struct.pack("iIII", watch, mask, 0, len(padded)) + padded)

    def close(self) -> None:
        """Closes our end."""
        os.close(self._writing)


def made(path: Path, work: Callable[[Watcher, MadeInotify, list[int]], Coroutine[Any, Any, None]]) -> None:
    """Runs some work with a watcher of one path over made events; the list gets a number each time it wakes."""

    async def run() -> None:
        kernel: MadeInotify = MadeInotify()
        fits: Inotify = kernel
        times: list[int] = []
        watcher = Watcher(lambda: times.append(1), fits)
        try:
            watcher.cover([str(path)])
            await work(watcher, kernel, times)
        finally:
            watcher.stop()
            kernel.close()

    asyncio.run(run())


async def round_of_the_loop() -> None:
    """Lets the loop look at its descriptors twice."""
    for _ in range(2):
        await asyncio.sleep(0)


EVENTS = {
    "the file itself": (True, b"file", True),
    "the folder itself": (True, b"", True),
    "another file": (True, b"other", False),
    "a name that begins alike": (True, b"file2", False),
    "a watch that was given back": (99, b"file", False),
    "a queue that ran over": (-1, b"", True),
}


@pytest.mark.rule("03.36")
@pytest.mark.parametrize("event", EVENTS)
def test_which_events_count(place: Path, event: str) -> None:
    watch, name, counts = EVENTS[event]

    async def work(watcher: Watcher, kernel: MadeInotify, times: list[int]) -> None:
        number = kernel.added[str(place)] if watch is True else watch
        kernel.send(number, name)
        await round_of_the_loop()
        assert bool(times) is counts
        kernel.send(kernel.added[str(place)], b"file")
        await round_of_the_loop()
        assert times, "it is still listening"

    made(place / "file", work)


def test_many_events_are_one_call(place: Path) -> None:
    async def work(watcher: Watcher, kernel: MadeInotify, times: list[int]) -> None:
        for _ in range(1000):
            kernel.send(kernel.added[str(place)], b"other")
            kernel.send(kernel.added[str(place)], b"file")
        await round_of_the_loop()
        assert times == [1]

    made(place / "file", work)


@pytest.mark.rule("03.36")
@pytest.mark.parametrize(
    ("where", "error", "whole"),
    [
        ("above", errno.EACCES, True),  # it may be passed and not listed
        ("above", errno.ENOSPC, False),
        ("folder", errno.EACCES, False),
        ("folder", errno.ENOENT, False),
    ],
)
def test_what_cannot_be_watched_is_told(place: Path, where: str, error: int, whole: bool) -> None:
    async def work(watcher: Watcher, kernel: MadeInotify, times: list[int]) -> None:
        path = [str(place / "file")]
        assert watcher.cover(path)
        kernel.failing[str(place if where == "folder" else place.parent)] = error
        assert watcher.cover(path) is whole
        kernel.failing.clear()
        assert watcher.cover(path)

    made(place / "file", work)


def test_what_does_not_count_any_more_is_given_back(place: Path) -> None:
    (place / "a").mkdir()

    async def work(watcher: Watcher, kernel: MadeInotify, times: list[int]) -> None:
        number = kernel.added[f"{place}/a"]
        (place / "a").rmdir()
        assert watcher.cover([str(place / "a" / "file")])
        assert kernel.removed == [number]
        kernel.send(number, b"")
        await round_of_the_loop()
        assert not times

    made(place / "a" / "file", work)


def test_a_folder_that_is_made_while_the_way_is_walked_is_covered_too(place: Path) -> None:
    """It was missing when the way was walked; the event about it came before anybody listened."""

    class Racing(MadeInotify):
        def add(self, fd: int, folder: str, mask: int) -> int:
            number = super().add(fd, folder, mask)
            if folder == str(place):
                (place / "a").mkdir(exist_ok=True)
            return number

    async def run() -> None:
        kernel = Racing()
        watcher = Watcher(lambda: None, kernel)
        assert watcher.cover([str(place / "a" / "file")])
        assert f"{place}/a" in kernel.added
        watcher.stop()
        kernel.close()

    asyncio.run(run())


def test_a_way_that_never_stands_still_is_not_walked_for_ever(place: Path) -> None:
    class Restless(MadeInotify):
        calls = 0

        def add(self, fd: int, folder: str, mask: int) -> int:
            self.calls += 1
            return self.calls  # each time another folder, as it seems

    async def run() -> None:
        kernel = Restless()
        watcher = Watcher(lambda: None, kernel)
        watcher.cover([str(place / "file")])
        assert kernel.calls == ROUNDS * len(walked(place / "file"))
        watcher.stop()
        kernel.close()

    asyncio.run(run())


# ── systems without ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("03.36")
@pytest.mark.parametrize("error", [ImportError, TypeError, AttributeError, OSError])
def test_a_system_without_inotify_says_so(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def lacking(name: None, use_errno: bool) -> Any:
        raise error("none here")

    monkeypatch.setattr(ctypes, "CDLL", lacking)
    with pytest.raises(OSError, match=r"none here|no inotify"):
        KernelInotify()


def test_an_error_of_the_kernel_is_an_oserror(place: Path) -> None:
    kernel = KernelInotify()
    fd = kernel.open()
    try:
        with pytest.raises(FileNotFoundError):
            kernel.add(fd, str(place / "missing"), 0x100)
        kernel.remove(fd, 12345)
    finally:
        os.close(fd)
