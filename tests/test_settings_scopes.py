"""Every key of the settings in every scope against every other one, on real files (03.23, 03.30, 03.31, 03.33).

What is expected is written down here as the chapter has it. `crossSessionInbound` has a table of its own, in
test_settings_matrix. At last, sessions that run under a file that is managed, where it really lies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.state.config import Config
from tests.desk import wait_until
from tests.looking import looked
from tests.strangers import Inside, needs_root, private_desk

SCOPES = ("managed", "flag", "user", "project", "local")
ROOTS = ("project in the root", "local in the root")
"""The same two names in the root of the repository that the working directory lies in (03.32)."""


@pytest.fixture(autouse=True, scope="module")
def own_files() -> Iterator[None]:
    """Whatever is written here is this user's alone, whatever the shell that runs the tests has set."""
    before = os.umask(0o077)
    yield
    os.umask(before)


class Place:
    """A place with a file for each scope, all of them missing at first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "repository"
        self.cwd = self.root / "src" / "deep"
        (self.root / ".git").mkdir(parents=True)
        self.cwd.mkdir(parents=True)
        self.environ = {"XDG_CONFIG_HOME": str(folder / "config")}
        self.paths = {
            "managed": folder / "etc/postroom/settings.json",
            "flag": folder / "given.json",
            "user": folder / "config/postroom/settings.json",
            "project": self.cwd / ".postroom/settings.json",
            "local": self.cwd / ".postroom/settings.local.json",
            "project in the root": self.root / ".postroom/settings.json",
            "local in the root": self.root / ".postroom/settings.local.json",
        }

    def write(self, scope: str, content: object) -> Path:
        """Writes one file, as JSON where it is no text."""
        path = self.paths[scope]
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        path.chmod(0o600)
        return path

    def read(self, said: dict[str, dict[str, object]], *, as_json: bool = False) -> Config:
        """Reads what applies when these files say this and no other is there.

        Args:
            said: scope → what stands in its file.
            as_json: what the command line gives is handed over as JSON and not as a file.
        """
        for scope, path in self.paths.items():
            path.unlink(missing_ok=True)
            if scope in said:
                self.write(scope, said[scope])
        flag = json.dumps(said["flag"]) if as_json else "../../../given.json"
        return Config(
            cwd=str(self.cwd),
            environ=self.environ,
            flag=flag if "flag" in said else None,
            managed=str(self.paths["managed"]),
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place of one test's own."""
    return Place(tmp_path)


# ── who decides what ─────────────────────────────────────────────────────────────────────────────

TRUSTED_ONLY: dict[str, tuple[str, object, object, object, object, object]] = {
    # key: where it is read; one value, and what that is; another one, and that; what applies where nobody sets it
    "dialogExpiry": ("dialog_expiry", "60s", 60_000, "10m", 600_000, 300_000),
    "refusalNotice": ("refusal_notice", "tell", "tell", "silent", "silent", "silent"),
    "readReceipts": ("read_receipts", True, True, False, False, False),
    "crossMachine": ("cross_machine", "open", "open", "reply-only", "reply-only", "reply-only"),
    "desktopNotices": ("desktop_notices", True, True, False, False, False),
    "publishTo": ("publish_to", ["claude-code"], ("claude-code",), ["qwen-code"], ("qwen-code",), ()),
    "nats": ("nats", {"url": "nats://a"}, {"url": "nats://a"}, {"realm": "b"}, {"realm": "b"}, None),
    "gateways": ("gateways", ["https://a"], ("https://a",), {"b": 1}, {"b": 1}, None),
    "limits.bucketCapacity": ("bucket_capacity", 5, 5, 500, 500, 30),
    "limits.refillPerSecond": ("refill_per_second", 0.05, 0.05, 50, 50.0, 0.5),
    "limits.totalCapacity": ("total_capacity", 30, 30, 5_000, 5_000, 120),
    "limits.totalRefillPerSecond": ("total_refill_per_second", 0.5, 0.5, 500, 500.0, 4.0),
    "limits.repeatSeconds": ("repeat_seconds", 0, 0.0, 600, 600.0, 30.0),
    "limits.maxSelfHops": ("max_self_hops", 3, 3, 28, 28, 10),
    "limits.maxChainLength": ("max_chain_length", 8, 8, 31, 31, 28),
    "limits.maxTrackedSenders": ("max_tracked_senders", 16, 16, 100_000, 100_000, 256),
    "limits.maxUnread": ("max_unread", 10, 10, 5_000, 5_000, 50),
}
"""What managed, flag and user settings alone decide (03.31)."""

DECIDES: dict[tuple[str, str], str | None] = {
    # of two scopes that both set such a key, the one that decides; None: what nobody has set applies
    ("managed", "flag"): "managed",
    ("managed", "user"): "managed",
    ("managed", "project"): "managed",
    ("managed", "local"): "managed",
    ("flag", "user"): "flag",
    ("flag", "project"): "flag",
    ("flag", "local"): "flag",
    ("user", "project"): "user",
    ("user", "local"): "user",
    ("project", "local"): None,
    ("project in the root", "project"): None,
    ("local in the root", "user"): "user",
}


def file_of(key: str, value: object) -> dict[str, object]:
    """A file that sets one key."""
    outer, dot, inner = key.partition(".")
    return {outer: {inner: value}} if dot else {outer: value}


def applying(config: Config, key: str, attribute: str) -> object:
    """What applies of one key."""
    return getattr(config.settings.limits if key.startswith("limits.") else config.settings, attribute)


@pytest.mark.rule("03.23", "03.31")
@pytest.mark.parametrize("pair", DECIDES, ids="+".join)
@pytest.mark.parametrize("key", TRUSTED_ONLY)
def test_of_two_scopes_the_first_trusted_one_decides(place: Place, key: str, pair: tuple[str, str]) -> None:
    """Whichever of the two says what: neither the stricter value wins nor the laxer."""
    attribute, one, as_one, other, as_other, default = TRUSTED_ONLY[key]
    for first, second, as_first, as_second in (
        (one, other, as_one, as_other),
        (other, one, as_other, as_one),
    ):
        expected = {pair[0]: as_first, pair[1]: as_second, None: default}[DECIDES[pair]]
        config = place.read({pair[0]: file_of(key, first), pair[1]: file_of(key, second)})
        assert applying(config, key, attribute) == expected
        assert config.settings.set_by.get(key) == DECIDES[pair]


@pytest.mark.rule("03.23", "03.31")
@pytest.mark.parametrize("key", TRUSTED_ONLY)
def test_a_scope_alone_decides_what_it_may(place: Place, key: str) -> None:
    """A file of the project that tries it does nothing, and is named."""
    attribute, one, as_one, other, as_other, default = TRUSTED_ONLY[key]
    for scope in SCOPES + ROOTS:
        trusted = scope in ("managed", "flag", "user")
        for value, read_as in ((one, as_one), (other, as_other)):
            config = place.read({scope: file_of(key, value)}, as_json=scope == "flag")
            assert applying(config, key, attribute) == (read_as if trusted else default)
            nothing = f"{place.paths[scope]}: {key.partition('.')[0]} does nothing in a project's file: only managed"
            assert (nothing in str(config.settings.problems)) is not trusted
    config = place.read({})
    assert (applying(config, key, attribute), config.settings.set_by) == (default, {})


ALL_PAIRS = [(first, second) for first in SCOPES + ROOTS for second in SCOPES + ROOTS if first != second]


@pytest.mark.rule("03.30")
@pytest.mark.parametrize("pair", ALL_PAIRS, ids="+".join)
def test_isolation_in_any_scope_is_isolation(place: Place, pair: tuple[str, str]) -> None:
    first, second = pair
    for one, other, applies in ((True, False, True), (True, True, True), (False, False, False)):
        config = place.read({first: {"isolatePeerMachines": one}, second: {"isolatePeerMachines": other}})
        assert config.settings.isolate_peer_machines is applies
    assert place.read({first: {"isolatePeerMachines": True}}).settings.isolate_peer_machines is True
    assert place.read({first: {}}).settings.isolate_peer_machines is False


@pytest.mark.rule("03.33")
@pytest.mark.parametrize("pair", ALL_PAIRS, ids="+".join)
def test_what_any_scope_denies_is_denied(place: Place, pair: tuple[str, str]) -> None:
    """An empty list elsewhere allows nothing again."""
    first, second = pair
    for one, other, applies in (
        (["SendMessage"], ["list_agents"], {"SendMessage", "list_agents"}),
        (["SendMessage"], [], {"SendMessage"}),
        ([], [], set[str]()),
    ):
        said = {first: file_of("permissions.deny", one), second: file_of("permissions.deny", other)}
        assert place.read(said).settings.denied == applies


@pytest.mark.rule("03.23", "07.9")
@pytest.mark.parametrize(
    ("said", "claims"),
    [
        ({}, True),
        ({"managed": True, "flag": False, "user": False}, True),
        ({"flag": False, "user": True}, False),
        ({"user": False}, False),
        ({"user": True, "project": False}, False),
        ({"managed": True, "local": False}, False),
        ({"user": False, "project": True, "local": True}, False),
        ({"project": False, "local": True}, False),
        ({"project in the root": False, "project": True}, False),
        ({"local": True}, True),
    ],
)
def test_a_project_can_keep_tasks_from_being_claimed(
    place: Place, said: dict[str, bool], claims: bool
) -> None:
    """And cannot have them claimed against what the person says."""
    files = {scope: file_of("claimTasks", value) for scope, value in said.items()}
    assert place.read(files).settings.claim_tasks is claims


@pytest.mark.rule("03.23")
@pytest.mark.parametrize(
    ("value", "milliseconds"), [("60s", 60_000), ("5m", 300_000), ("10m", 600_000), ("never", None)]
)
def test_the_four_values_of_the_expiry(place: Place, value: str, milliseconds: int | None) -> None:
    config = place.read({"user": {"dialogExpiry": value}})
    assert (config.settings.dialog_expiry, config.settings.problems) == (milliseconds, ())


@pytest.mark.rule("03.23", "03.58", "03.59", "03.60", "03.61", "03.62", "03.63", "03.64")
@pytest.mark.parametrize("key", [key for key in TRUSTED_ONLY if key.startswith("limits.")])
@pytest.mark.parametrize("scope", ["managed", "flag", "user"])
def test_a_limit_out_of_its_range_is_the_nearest_end(place: Place, key: str, scope: str) -> None:
    """And somebody is told; that is no reason to refuse what the command line gives. The ends themselves are in it."""
    attribute, lowest, as_lowest, highest, as_highest, _ = TRUSTED_ONLY[key]
    assert isinstance(lowest, int | float)
    assert isinstance(highest, int | float)
    for value, applies in ((lowest - 0.01, as_lowest), (-(10**30), as_lowest), (highest + 1, as_highest)):
        config = place.read({scope: file_of(key, value)})
        assert applying(config, key, attribute) == applies
        [said] = config.settings.problems
        assert f"{place.paths[scope].name}: {key} is " in said
        assert said.endswith(f", outside {lowest:g} to {highest:,}; {applies:,g} counts.")


def test_every_key_of_the_chapter_is_in_these_tables(place: Place) -> None:
    """One file with all of them; nothing of it is unknown, and nothing else is a setting."""
    every: dict[str, Any] = {
        "limits": {},
        "permissions": {"deny": ["ListAgents"]},
        "crossSessionInbound": "hold",
    }
    every |= {"isolatePeerMachines": True, "claimTasks": False}
    for key, (_, one, *_) in TRUSTED_ONLY.items():
        outer, dot, inner = key.partition(".")
        (every[outer] if dot else every)[inner if dot else outer] = one
    config = place.read({"user": every})
    assert not [problem for problem in config.settings.problems if "not built" not in problem]
    assert set(config.settings.set_by) == {
        *TRUSTED_ONLY,
        *("crossSessionInbound", "isolatePeerMachines", "claimTasks", "permissions.deny"),
    }
    chapter = set(
        "crossSessionInbound dialogExpiry isolatePeerMachines crossMachine refusalNotice readReceipts limits permissions"
        " publishTo desktopNotices claimTasks nats gateways".split()
    )
    assert set(every) == chapter


# ── a file that is managed, where it really lies ─────────────────────────────────────────────────

OWN_ETC = """
mkdir "{folder}/etc"
mount --bind /etc "{folder}/etc"
mount -t tmpfs -o mode=755 tmpfs /etc
for entry in "{folder}"/etc/*; do ln -s "$entry" /etc/; done
rm -f /etc/postroom
mkdir -m 755 /etc/postroom
"""
"""An /etc that only this mount namespace sees, with everything of the machine's own but /etc/postroom."""


@pytest.fixture
def managed() -> Iterator[tuple[Inside, Path]]:
    """A desk on a machine whose managed file a test may write, and where that file lies as seen from here."""
    with private_desk() as desk:
        inside = Inside(desk.folder, desk.environ, "--mount", setup=OWN_ETC.format(folder=desk.folder))
        try:
            yield inside, Path(f"/proc/{inside.first}/root/etc/postroom/settings.json")
        finally:
            inside.leave()


@needs_root
@pytest.mark.rule("03.24", "03.29", "03.34", "03.35", "03.36", "03.44", "03.18", "03.33", "10.30")
def test_sessions_under_a_file_that_is_managed(managed: tuple[Inside, Path]) -> None:
    """It beats what the command line and the user say, at the start and when it changes; it is no symlink."""
    desk, file = managed
    user = desk.folder / "config/postroom/settings.json"
    user.parent.mkdir(parents=True)
    user.write_text('{"crossSessionInbound": "accept"}')
    file.write_text('{"crossSessionInbound": "hold"}')
    alice = desk.open("alice")
    bob = desk.open("bob", "--settings", '{"crossSessionInbound": "accept"}')

    def inbound(session: dict[str, Any]) -> tuple[str | None, str]:
        said = looked(desk, session, "status")["inbound"]
        return said["value"], said["scope"]

    def off(session: dict[str, Any]) -> list[str]:
        return list(looked(desk, session, "status")["off"])

    def held(session: dict[str, Any]) -> list[tuple[str, str, str | None]]:
        said = looked(desk, session, "held")["held"]
        return [(one["text"], one["cause"], one["expires_at"]) for one in said]

    assert inbound(bob) == ("hold", "managed")
    sent = desk.send("alice", "bob", "one")["msg_id"]
    assert held(bob) == [("one", "managed-setting", None)]
    assert desk.ok("--session", "bob", "explain", sent)["scope"] == "managed"

    file.write_text('{"crossSessionInbound": "refuse"}')
    told: list[str] = []

    def denied() -> bool:
        told.extend(one["kind"] for one in looked(desk, alice, "inbox", "--take")["notices"])
        return "denied" in told

    wait_until(denied)
    assert (told, held(bob), off(bob)) == (["held", "denied"], [], ["receive"])

    # What makes it worthless leaves what it said before in force, and a session that starts now holds.
    other = file.with_name("other.json")
    other.write_text('{"crossSessionInbound": "accept"}')
    file.unlink()
    file.symlink_to("other.json")
    wait_until(lambda: "symlink" in str(looked(desk, bob, "status")["problems"]))
    assert inbound(bob) == ("refuse", "managed")
    carol = desk.open("carol")
    assert carol["inbound"] == {"value": "hold", "scope": "managed"}
    [problem] = carol["problems"]
    assert problem.startswith("/etc/postroom/settings.json: it is a symlink, which is not followed here")
    desk.send("alice", "carol", "two")
    assert held(carol) == [("two", "invalid-setting", None)]

    # Mended, it lets in what was held; and what it denies, it denies.
    other.write_text('{"crossSessionInbound": "accept", "permissions": {"deny": ["SendMessage"]}}')
    other.replace(file)
    wait_until(lambda: inbound(bob) == inbound(carol) == ("accept", "managed"))
    assert [one["text"] for one in desk.take("carol")] == ["two"]
    wait_until(lambda: off(alice) == ["send"])
    for sender in (("--session", "alice"), ()):
        assert desk.refused(*sender, "send", "bob", "three")["code"] == "denied_by_settings"

    # Gone, it says nothing any more.
    file.unlink()
    wait_until(lambda: (inbound(bob), inbound(carol)) == (("accept", "flag"), ("accept", "user")))
    wait_until(lambda: off(alice) == [])
    desk.send("alice", "bob", "four")
    assert [one["text"] for one in desk.take("bob")] == ["four"]
