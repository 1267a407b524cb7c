"""The settings of one session: every scope's file read, watched, and combined into what applies.

`Config` reads the files (`state.scopes`) when it is made, and again with `look` or, once `watch` was called, when the
kernel says that something changed (`state.watch`). What a key means is `core.settings`'s.

 - A file that cannot be read or is no JSON object: its last good content stays in force and the file is named; where
   it never had one, what comes in is held until it is mended (03.35).
 - A file that is gone sets nothing. A symlink to nothing is not gone: it cannot be read.
 - While they are watched, what makes no sense, cannot be read or is gone is looked at again after a moment before that
   is believed: a program may be writing it, and many an editor moves the old file away first. Until then what applied
   goes on; else every save would let out what is held.

It shows nothing that a file holds, except through the sentences of `core.settings`.

How it fails: `SettingInvalid` when it is made, for `--settings` alone. Everything else is a sentence in `problems`.

What is weak: the root of the repository is looked for once, when this is made. Where the kernel tells of no changes,
one is noticed up to a second late.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Literal

from postroom.core.keys import line
from postroom.core.settings import Layer, Settings, broken_layer, effective, read_layer
from postroom.errors import SettingInvalid
from postroom.state.scopes import MANAGED, Found, Senseless, Source, find, parsed, sources_of
from postroom.state.watch import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

POLL_SECONDS = 1.0
"""How often the files are looked at where the kernel tells of no change: a person waits no longer than that."""

DOUBT_SECONDS = 0.2
"""How long a file may be gone or make no sense before that is believed: long for a program that saves it, short for a person."""

FLAG = "--settings"
"""What stands for settings that were handed over as JSON, in a sentence."""

_NAMED = 300
"""Characters of a path in a sentence."""


class _File:
    """One file, and what was made of it.

    Attributes:
        layer: what it says now; None: there is none.
        trouble: why it cannot be read, in a few words; empty where it can.
        unsure: it is gone or of no use, and that is not believed yet.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.layer: Layer | None = None
        self.trouble = ""
        self.unsure = False
        self._found = Found("nothing")
        self._good: Layer | None = None

    def look(self, *, patient: bool) -> bool:
        """Reads it again. Returns whether there is something else now.

        Args:
            patient: believe good content alone; be `unsure` of anything else.
        """
        self.unsure = False
        found = find(self.source)
        if found == self._found:
            return False
        scope, path = self.source.scope, self.source.path
        trouble, content = found.reason, None
        if found.what == "bytes":
            try:
                content = parsed(found.data)
            except Senseless as error:
                trouble = str(error)
        if content is None and patient:
            self.unsure = True
            return False
        self._found, self.trouble = found, trouble
        if content is not None:
            self.layer = self._good = read_layer(scope, path, content)
        elif found.what in ("bytes", "unreadable"):
            self.layer = broken_layer(scope, path, trouble, self._good)
        elif scope == "flag" and self._good is not None:
            # Whoever hands over a temporary file means what stood in it.
            self.trouble = "it is gone"
            self.layer = broken_layer(scope, path, self.trouble, self._good)
        else:
            self.layer = self._good = None
        if found.what == "foreign":
            self.layer = Layer(
                scope=scope, source=path, problems=(f"{line(path, _NAMED)}: {trouble}; it is left alone.",)
            )
        return True


# ---------------------------------------------------------------------------------------- all of it


class Config:
    """The settings that apply to one session (03.23 to 03.36).

    Args:
        cwd: the session's working directory.
        environ: the environment that says where the user's file lies.
        flag: what `--settings` was given: JSON, which begins with `{`, or the path of a file.
        managed: where the managed file lies; for tests.

    Attributes:
        settings: what applies now.

    Raises SettingInvalid where `flag` cannot be read or holds a value that cannot be used. What was given is not
    shown, since there may be a secret in it.
    """

    def __init__(
        self, *, cwd: str, environ: Mapping[str, str], flag: str | None = None, managed: str = MANAGED
    ) -> None:
        cwd = os.path.abspath(cwd)
        as_json = flag is not None and flag.lstrip().startswith("{")
        path = os.path.join(cwd, flag) if flag is not None and not as_json else None
        self._handed_over = _handed_over(flag) if flag is not None and as_json else None
        if self._handed_over is not None:
            _check_flag(self._handed_over)
        self._files = [_File(source) for source in sources_of(cwd, environ, managed, path)]
        self._changed: Callable[[], None] | None = None
        self._watcher: Watcher | None = None
        self._timers: dict[str | _File, asyncio.Handle] = {}
        for file in self._files:
            file.look(patient=False)
            if file.source.scope == "flag":
                _check_flag(file.layer, file.trouble)
        self.settings: Settings = self._effective()

    def look(self) -> bool:
        """Reads what there is now. Returns whether `settings` differs from before (03.36)."""
        return self._look(self._files, patient=False)

    def _look(self, files: Iterable[_File], *, patient: bool) -> bool:
        if True not in {file.look(patient=patient) for file in files}:
            return False
        before, self.settings = self.settings, self._effective()
        return self.settings != before

    def _effective(self) -> Settings:
        layers = [self._handed_over, *(file.layer for file in self._files)]
        return effective([layer for layer in layers if layer is not None])

    # ------------------------------------------------------------------------------------ watching

    @property
    def watching(self) -> Literal["", "inotify", "polling"]:
        """How changes are noticed; empty where nobody asked for it."""
        if self._changed is None:
            return ""
        return "polling" if "poll" in self._timers else "inotify"

    def watch(self, changed: Callable[[], None]) -> None:
        """Notices changes from now on, on the running event loop, until `stop` (03.36).

        Where the kernel tells of changes nothing wakes up without one; where it does not, the files are looked at
        every `POLL_SECONDS`.

        Args:
            changed: called after `settings` came to differ; also for what changed since they were read.
        """
        self.stop()
        self._changed = changed
        try:
            self._watcher = Watcher(self._woken)
        except OSError:
            pass  # it polls
        self._cover()
        self._after(0.0, "start", self._woken)

    def stop(self) -> None:
        """Ends the watching; what applies stays. Harmless when there is none."""
        self._changed = None
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _after(self, seconds: float, what: str | _File, act: Callable[[], None]) -> None:
        """Does it once after some time, unless the same is under way."""

        def run() -> None:
            del self._timers[what]
            act()

        if what not in self._timers:
            self._timers[what] = asyncio.get_running_loop().call_later(seconds, run)

    def _not_after_all(self, what: str | _File) -> None:
        if timer := self._timers.pop(what, None):
            timer.cancel()

    def _cover(self) -> None:
        """Has the kernel tell of changes; looks from time to time where it cannot tell of all."""
        paths = [file.source.path for file in self._files]
        if self._watcher is None or not self._watcher.cover(paths):
            self._after(POLL_SECONDS, "poll", self._woken)
        else:
            self._not_after_all("poll")

    def _woken(self) -> None:
        """Something may have changed."""
        self._cover()  # before the look: what changes after it wakes again
        differs = self._look(self._files, patient=True)
        for file in self._files:
            if file.unsure:
                self._after(DOUBT_SECONDS, file, partial(self._believe, file))
            else:
                self._not_after_all(file)
        self._tell(differs)

    def _believe(self, file: _File) -> None:
        """It had its time to become something better."""
        self._tell(self._look([file], patient=False))

    def _tell(self, differs: bool) -> None:
        if differs and self._changed is not None:
            self._changed()


def _handed_over(text: str) -> Layer:
    """The layer of settings that stand in the command line itself (03.25)."""
    try:
        return read_layer("flag", FLAG, parsed(text.encode("utf-8", "surrogatepass")))
    except Senseless as error:
        raise SettingInvalid(f"{FLAG}: {error}.", _MEND) from None


def _check_flag(layer: Layer | None, trouble: str = "") -> None:
    """Raises SettingInvalid where what was handed over is not there, cannot be read, or is not all usable (03.25)."""
    if layer is None:
        raise SettingInvalid(f"{FLAG} is neither JSON nor the path of a file that is there.", _MEND)
    if trouble:
        raise SettingInvalid(f"{line(layer.source, _NAMED)}: {trouble}.", _MEND)
    for problem in layer.unusable:
        wrong, _, _ = problem.rpartition("; ")  # without what counts in its place: here nothing does
        raise SettingInvalid(f"{wrong}.", _MEND)


_MEND = f"Nothing was opened. Mend it, or leave {FLAG} out."
