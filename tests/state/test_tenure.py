"""Who is a session right now: taking its lock, from the living and from the dead; the client's token beside it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import SessionInUse, UnfitPath
from postroom.state import files, processes, tenure
from postroom.state.tenure import Tenure, parse_tenure, read_tenure, take_session_lock
from tests.state.lodging import House, dead_pid


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    house = House(home)
    yield house
    house.close()


@pytest.fixture
def folder(home: Path) -> str:
    """A session's folder."""
    path = str(home / "state" / "sessions" / "abc")
    files.private_folder(path)
    return path


@pytest.mark.rule("05.11", "05.12")
def test_a_lock_that_is_taken_says_by_whom(folder: str) -> None:
    lock = take_session_lock(folder)
    assert read_tenure(f"{folder}/lock") == Tenure(
        pid=os.getpid(),
        start=processes.start_of(os.getpid()) or "",
        boot_id=processes.boot_id(),
        pid_domain=processes.pid_domain(),
    )
    assert os.stat(f"{folder}/lock").st_mode & 0o777 == 0o600
    lock.release()


@pytest.mark.rule("05.11", "05.12")
def test_a_session_that_lives_cannot_be_taken(house: House, folder: str) -> None:
    lodger = house.open("abc")
    with pytest.raises(SessionInUse, match="abc"):
        take_session_lock(folder, 0)
    lodger.kill()
    lock = take_session_lock(folder, 0)
    assert lock.held
    lock.release()


@pytest.mark.rule("05.11", "05.12")
def test_a_lock_that_a_forked_child_keeps_is_replaced(house: House, folder: str) -> None:
    lodger = house.open("abc")
    child = house.fork(lodger)
    lodger.kill()
    assert files.probe(f"{folder}/lock") is True
    lock = take_session_lock(folder, 0)
    assert lock.held
    now = read_tenure(f"{folder}/lock")
    assert now is not None
    assert now.pid == os.getpid()
    assert processes.exists(child)
    assert set(os.listdir(folder)) == {"lock", "names"}
    lock.release()
    assert files.probe(f"{folder}/lock") is False


@pytest.mark.rule("05.11")
def test_two_resumers_of_a_kept_lock_do_not_both_get_it(house: House, folder: str) -> None:
    lodger = house.open("abc")
    house.fork(lodger)
    lodger.kill()
    got: list[files.Lock] = []
    refused: list[SessionInUse] = []
    ready = threading.Barrier(4)

    def resume() -> None:
        ready.wait()
        try:
            got.append(take_session_lock(folder, 0))
        except SessionInUse as error:
            refused.append(error)

    resumers = [threading.Thread(target=resume) for _ in range(4)]
    for resumer in resumers:
        resumer.start()
    for resumer in resumers:
        resumer.join()
    assert (len(got), len(refused)) == (1, 3)
    got[0].release()


@pytest.mark.rule("05.11")
@pytest.mark.parametrize("change", [{"domain": "linux:elsewhere:pid:[1]"}, {"boot": "another-boot"}])
def test_a_held_lock_of_which_nothing_can_be_proved_is_not_replaced(
    house: House, folder: str, change: dict[str, str]
) -> None:
    lodger = house.open("abc", **change)
    house.fork(lodger)
    lodger.kill()
    with pytest.raises(SessionInUse):
        take_session_lock(folder, 0)


@pytest.mark.rule("05.11")
def test_a_held_lock_that_says_nothing_yet_is_not_replaced(folder: str) -> None:
    holder = files.Lock(f"{folder}/lock")
    assert holder.acquire()
    with pytest.raises(SessionInUse):
        take_session_lock(folder, 0)
    holder.write(Tenure(pid=dead_pid(), start="1", boot_id="", pid_domain="x").to_bytes())
    with pytest.raises(SessionInUse):
        take_session_lock(folder, 0)
    holder.release()


@pytest.mark.rule("05.11")
def test_a_lock_that_becomes_free_while_the_registry_is_waited_for_is_simply_taken(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = files.Lock(f"{folder}/lock")
    assert holder.acquire()
    real = files.Lock.acquire

    def acquire(self: files.Lock, seconds: float = 0) -> bool:
        if self.path.endswith("/.lock"):
            holder.release()
        return real(self, seconds)

    monkeypatch.setattr(files.Lock, "acquire", acquire)
    lock = take_session_lock(folder, 0)
    assert lock.held
    assert read_tenure(lock.path) is not None
    lock.release()


@pytest.mark.rule("05.11")
def test_without_the_registrys_lock_nothing_is_replaced(
    house: House, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lodger = house.open("abc")
    house.fork(lodger)
    lodger.kill()
    registry = files.Lock(f"{house.sessions}/.lock")
    assert registry.acquire()
    monkeypatch.setattr(tenure, "GUARD_SECONDS", 0)
    with pytest.raises(SessionInUse):
        take_session_lock(folder, 0)
    registry.release()
    take_session_lock(folder, 0).release()


@pytest.mark.rule("11.11")
def test_a_lock_that_is_a_symlink_is_refused(folder: str, home: Path) -> None:
    (home / "elsewhere").write_text("precious")
    os.symlink(home / "elsewhere", f"{folder}/lock")
    with pytest.raises(UnfitPath, match="symlink"):
        take_session_lock(folder)
    assert (home / "elsewhere").read_text() == "precious"
    assert read_tenure(f"{folder}/lock") is None


TENURES = st.builds(
    Tenure,
    pid=st.integers(0, 2**31),
    start=st.text(alphabet="0123456789 :Sep", max_size=24),
    boot_id=st.text(alphabet="0123456789abcdef-", max_size=36),
    pid_domain=st.text(alphabet="linux:pid[]0123456789", max_size=60),
    ended_at=st.none() | st.integers(0, 2**50),
)


@given(TENURES)
def test_what_a_lock_says_is_read_back(said: Tenure) -> None:
    assert parse_tenure(said.to_bytes()) == said


@given(st.binary(max_size=80))
def test_no_bytes_in_a_lock_raise_anything(data: bytes) -> None:
    found = parse_tenure(data)
    assert found is None or parse_tenure(found.to_bytes()) == found


@given(TENURES, st.data())
def test_a_lock_that_is_half_written_says_nothing(said: Tenure, data: st.DataObject) -> None:
    whole = said.to_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert parse_tenure(whole[:cut]) is None


def test_the_last_sign_of_life_is_the_youngest_of_its_files(folder: str) -> None:
    assert tenure.last_sign(folder) == 0
    for name, at in (("lock", 10), ("store.db-wal", 30), ("store.db", 20), ("names", 99)):
        files.write_atomic(f"{folder}/{name}", b"")
        os.utime(f"{folder}/{name}", (at, at))
    assert tenure.last_sign(folder) == 30_000


@pytest.mark.rule("05.26")
def test_the_clients_token_lies_with_the_way_to_the_control_socket(folder: str) -> None:
    assert tenure.read_client_token(folder) is None
    tenure.write_client_token(folder, "f" * 32, "/run/7.ctl.sock")
    assert tenure.read_client_token(folder) == ("f" * 32, "/run/7.ctl.sock")
    path = Path(folder) / "client.token"
    assert path.read_text() == "f" * 32 + "\n/run/7.ctl.sock\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.rule("05.26", "11.11")
def test_a_token_that_others_could_have_written_is_none(folder: str, home: Path) -> None:
    tenure.write_client_token(folder, "f" * 32, "/run/7.ctl.sock")
    path = Path(folder) / "client.token"
    path.chmod(0o644)
    assert tenure.read_client_token(folder) is None
    path.rename(home / "t")
    path.symlink_to(home / "t")
    assert tenure.read_client_token(folder) is None
    for content in (b"", b"token", b"token\n", b"\n/x\n", b"\xff\n/x\n"):
        path.unlink()
        path.write_bytes(content)
        path.chmod(0o600)
        assert tenure.read_client_token(folder) is None
