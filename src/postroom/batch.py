"""What one drain hands over: the entries, as a model is to see them, and the way to say that it has them.

Each entry is one attachment with a fresh id, framed with its sender's identity (06.6). A batch never changes once it is
made: what arrives later is in the next one (06.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from postroom.core import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from postroom.core.message import Message, Notice, Origin
    from postroom.core.queues import Entry

__all__ = ["Attachment", "Batch"]


class Attachment(NamedTuple):
    """One entry as it goes into a request (06.6).

    Attributes:
        id: fresh, of this attachment alone.
        text: for the model. The first framed one of a batch begins with the preface (04.1).
        origin: who it comes from, as the receiver established it; None for a notice of the system.
        msg_id: the id of the message; empty for a notice that is about none.
        is_meta: it is not the user's: no slash command and no @-mention in it is expanded (06.2).
    """

    id: str
    text: str
    origin: Origin | None
    msg_id: str
    is_meta: bool

    def __repr__(self) -> str:
        return f"<Attachment {self.id} of {self.msg_id or 'a notice'}: {len(self.text)} characters>"


class Batch:
    """What one drain handed over; false when there was nothing.

    Attributes:
        entries: in the order in which they are to be read: `Entry` of this process, `Message` of a peer.
        notices: what the system says about this session's own messages.
    """

    __slots__ = ("_confirm", "_ids", "_made", "_release", "entries", "notices")

    def __init__(
        self,
        entries: Sequence[Entry | Message] = (),
        notices: Sequence[Notice] = (),
        *,
        ids: Callable[[], str] = str,
        confirm: Callable[[], None] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.entries = tuple(entries)
        self.notices = tuple(notices)
        self._ids = ids
        self._confirm = confirm
        self._release = release
        self._made: tuple[Attachment, ...] | None = None

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Every entry and notice as it goes into the next request, in order."""
        if self._made is None:
            texts = envelope.attachments(self.entries)
            made = [
                Attachment(self._ids(), text, entry.origin, entry.msg_id, getattr(entry, "is_meta", True))
                for entry, text in zip(self.entries, texts, strict=True)
            ]
            # What the system says never begins a text that a loop may take for its user's (04.1).
            begun = any(entry.origin.kind != "user" for entry in self.entries)
            for notice in self.notices:
                told = envelope.notice_text(notice)
                text, begun = told if begun else f"{envelope.SYSTEM}\n\n{told}", True
                made.append(Attachment(self._ids(), text, None, notice.msg_id or "", True))
            self._made = tuple(made)
        return self._made

    @property
    def texts(self) -> list[str]:
        """The text of each attachment."""
        return [one.text for one in self.attachments]

    @property
    def text(self) -> str:
        """All of it as one text, for a host that has one place for it."""
        return "\n\n".join(self.texts)

    def confirm(self) -> None:
        """Says that the next request contains all of it: peers' mail in it is consumed (11.1).

        A second call does nothing. Raises StoreFailed: what is not confirmed is handed out again, marked.
        """
        confirm, self._confirm = self._confirm, None
        if confirm is not None:
            try:
                confirm()
            except BaseException:
                self._confirm = confirm
                raise
        self._release = None

    def release(self) -> None:
        """Gives all of it back, to the front, marked `redelivered`. After `confirm` it does nothing."""
        release, self._release = self._release, None
        self._confirm = None
        if release is not None:
            release()

    def __bool__(self) -> bool:
        return bool(self.entries or self.notices)

    def __len__(self) -> int:
        return len(self.entries) + len(self.notices)

    def __iter__(self) -> Iterator[Attachment]:
        return iter(self.attachments)

    def __repr__(self) -> str:
        return f"<Batch of {len(self.entries)} entries, {len(self.notices)} notices>"
