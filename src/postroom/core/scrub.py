"""Makes foreign text harmless where it is shown: to a model inside a block, to a person on a terminal.

`scrub` is what keeps a message's text inside its block. It puts a backslash, the visible mark, into

- every opening or closing tag of one of our blocks, in any letter case, with white space, attributes,
  look-alike characters or invisible ones in it (04.4). A longer word that begins with a block's name counts
  too: a reader that stops early would see our tag;
- the tags with which clients speak to their own models (`FOREIGN_NAMES`), and a line that begins with
  `Human:` or `Assistant:`: a peer's text must not pass for the client's own voice (04.11);
- `[Postroom`, with which the preface of a batch begins;

and shows control characters, direction overrides and lone surrogates as escapes (04.6). Everything else
stays byte for byte, and a text without any of this comes back as the same object.

It never removes anything, never decides whether a text comes in, and never touches what is stored (04.7).

How it fails: every function here takes any text and raises nothing. The time is linear in the text: no
pattern gives back what it has taken.

What is weak: the tables of look-alikes hold the usual ones, not all, and letters within ASCII (`l` for `i`)
are not confused. Plain words inside a block may still persuade a model; no marking prevents that.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BLOCK_NAMES",
    "FOREIGN_NAMES",
    "copyable",
    "mark_tags",
    "quoted",
    "scrub",
    "unquoted",
    "visible",
]

BLOCK_NAMES: Final = (
    "cross-session-message",
    "teammate-message",
    "agent-message",
    "observer-report",
    "delivery-notice",
    "task-notification",
)
"""Every block that `envelope` makes (04.1, 06.11). Clients speak to their own models in the last one too."""

FOREIGN_NAMES: Final = ("system-reminder",)
"""Tags in which a client speaks to its own model with more authority than a peer has (04.11)."""

_MARK = "\\"

# ── reading through look-alikes ──────────────────────────────────────────────────────────────────

# What stands in for `<`, `/`, `-`, `[` and `:`. A backslash is no slash here: it is the mark.
_LOOKALIKES: Final = {
    "<": "＜﹤‹❮⟨〈〈˂ᐸᚲ≺⋖❰❬⧼𝈶⩹⪡≮",
    "/": "／⁄∕⧸╱᜵⁁⟋〳ノ丿⼃𝈺㇓Ⳇ",
    "-": "‐‑‒–—―−﹘﹣－˗⁃⁻₋➖ⲻ─━⸺⸻ー۔⎯﹍֊־᠆",
    "[": "［【〔〖⟦⁅❲⦋",
    ":": "：﹕︓ː∶",
    # Letters of other scripts that look like those in the names; accents and typographic variants of the
    # Latin letters are found by their decomposition.
    "a": "аАαΑɑᴀᎪ",
    "b": "ЬьвВΒβʙᏏ",
    "c": "сСϲϹᴄᏟⲤⲥᑕ",
    "d": "ԁᴅᎠ",
    "e": "еЕεΕᴇ℮Ꭼ",
    "g": "ɡցɢԌԍ",
    "h": "һҺΗʜᎻ",
    "i": "іІιΙɩɪӀ",
    "k": "кКκΚᴋ",
    "l": "ӏʟᏞ",
    "m": "мМΜᴍᎷ",
    "n": "ոɴΝᴨпП",
    "o": "оОοΟօՕᴏⲞⲟჿ",
    "p": "рРρΡᴘᏢ",
    "r": "гʀᴦᏒ",
    "s": "ѕЅꜱՏᏚ",
    "t": "тТτΤᴛᎢ",
    "u": "սυᴜ",
    "v": "νѵѴᴠᏙ",
    "y": "уУγΥʏүҮყ",
}
_CLOSERS: Final = "＞﹥›❯⟩〉〉≻⋗❱❭⧽≯"
_INVISIBLE: Final = (
    # Controls, then what Unicode has nobody show: joiners, marks of direction, fillers, variation selectors,
    # tags. A soft hyphen is a case of its own below.
    *((0x00, 0x08), (0x0E, 0x1B), (0x7F, 0x84), (0x86, 0x9F), (0x061C, 0x061C), (0x115F, 0x1160)),
    *((0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F)),
    *((0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0)),
    *((0xFFF0, 0xFFFC), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF), (0xD800, 0xDFFF)),
)
_MARKS: Final = ((0x0300, 0x3100), (0xA600, 0xABFF), (0xFB1E, 0xFB1E), (0xFE20, 0xFE2F), (0x10100, 0x1E9FF))
"""Where the marks that sit on another character are, and the rarer format characters."""

_LINE_ENDS: Final = "\n\r\x0b\x0c\x85\u2028\u2029"
_BLANKS: Final = "\t\x1c\x1d\x1e\x1f \xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ACCENTS_ALONE: Final = (
    # Accents that stand on no letter, which decompose to a blank and the accent.
    *((0xA8, 0xA8), (0xAF, 0xAF), (0xB4, 0xB4), (0xB8, 0xB8), (0x2D8, 0x2DD), (0x37A, 0x37A), (0x384, 0x385)),
    *(
        (0x1FBD, 0x1FBD),
        (0x1FBF, 0x1FC1),
        (0x1FCD, 0x1FCF),
        (0x1FDD, 0x1FDF),
        (0x1FED, 0x1FEF),
        (0x1FFD, 0x1FFE),
    ),
    *(
        (0x2017, 0x2017),
        (0x203E, 0x203E),
        (0x309B, 0x309C),
        (0xFC5E, 0xFC63),
        (0xFE49, 0xFE4C),
        (0xFE70, 0xFE7E),
        (0xFFE3, 0xFFE3),
    ),
)
# Where Unicode keeps letters and signs that decompose to plain ones: accented, fullwidth, small,
# mathematical, circled, squared, superscript.
_DECOMPOSING: Final = (
    *((0xAA, 0xBA), (0x2B0, 0x2E3), (0xA7F2, 0xA7F4)),
    *((0xC0, 0x24F), (0x400, 0x45F), (0x1D2C, 0x1DBF), (0x1E00, 0x1EFF), (0x2070, 0x209F), (0x2100, 0x218F)),
    *((0x2460, 0x24FF), (0x2C7C, 0x2C7D), (0xFE10, 0xFE6F), (0xFF01, 0xFF5E), (0x1D400, 0x1D7FF)),
    *((0x1F110, 0x1F16F), (0x10781, 0x107BA)),
)
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"


@cache
def _plain() -> dict[int, str]:
    """Each code point that stands for another → one plain character, so that positions stay the same.

    Invisible ones become NUL, line ends a newline, other white space a blank; a soft hyphen stays itself,
    because it is sometimes shown and sometimes not. Built at the first suspicious text, not at import: it
    takes some ten milliseconds.
    """
    table = {
        code: "\0"
        for first, last in _MARKS
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) in ("Mn", "Me", "Cf")
    }
    table |= {code: "\0" for first, last in _INVISIBLE for code in range(first, last + 1)}
    table |= {ord(blank): " " for blank in _BLANKS}
    table |= {code: " " for first, last in _ACCENTS_ALONE for code in range(first, last + 1)}
    table |= {ord(end): "\n" for end in _LINE_ENDS}
    table |= {ord(letter.upper()): letter for letter in _ALPHABET}
    imitated = {look: plain for plain, looks in _LOOKALIKES.items() for look in looks}
    wanted = frozenset(_ALPHABET + "<>/-[:")
    for first, last in _DECOMPOSING:
        for code in range(first, last + 1):
            bare = [c for c in unicodedata.normalize("NFKD", chr(code)) if not unicodedata.combining(c)]
            plain = imitated.get(bare[0], bare[0]).lower() if len(bare) == 1 else ""
            if plain in wanted:
                table[code] = plain
    for start in (0x1F150, 0x1F170, 0x1F1E6):  # white letters on black, flags' letters: no decomposition
        table |= {start + place: letter for place, letter in enumerate(_ALPHABET)}
    table |= {ord(look): plain for look, plain in imitated.items()}
    table[ord("ẞ")] = "ß"
    return table


_THROUGH = r"[\0\xad]*+"
"""Any run of invisible characters, never given back."""


def _spelled(word: str) -> str:
    """A pattern that finds `word` in plain text, whatever invisible characters split it."""
    # Where a hyphen belongs, several may stand, or a soft one alone.
    hyphen = rf"(?:{_THROUGH}-[-\0\xad]*+|(?=\0*+\xad)[\0\xad]++)"
    spelled = "".join(hyphen if letter == "-" else _THROUGH + letter for letter in word)
    return spelled.replace(f"s{_THROUGH}s", f"(?:s{_THROUGH}s|ß)")


@cache
def _tag_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Finds an opening or closing tag of one of the names in plain text, up to the end of the name."""
    return re.compile(r"<[ \n\0\xad/]*+(?:" + "|".join(map(_spelled, names)) + ")")


@cache
def _voice() -> re.Pattern[str]:
    """Finds what would pass for the preface, or for a turn of the conversation itself, in plain text."""
    preface = r"\[[ \n\0\xad]*+" + _spelled("postroom")
    turn = f"^(?:{_spelled('human')}|{_spelled('assistant')}){_THROUGH}:"
    return re.compile(f"{preface}|{turn}", re.MULTILINE)


def _holds(text: str, characters: str) -> bool:
    """Whether one of the characters, none of them ASCII, is in the text: a few searches in C."""
    if not text.isascii():
        for one in characters:  # a plain loop: this is on the way of every message
            if one in text:
                return True
    return False


def _marked(text: str, places: Iterable[int]) -> str:
    """The text with the mark at each of the places; the same object where there is none."""
    pieces: list[str] = []
    start = 0
    for place in sorted(places):
        pieces += (text[start:place], _MARK)
        start = place
    return "".join((*pieces, text[start:])) if pieces else text


def mark_tags(text: str, *names: str) -> str:
    r"""Puts the mark into each opening or closing tag of the names, `<\name` (04.4).

    Whatever look-alikes, invisible characters, letter case and white space the tag is written with. The same
    object comes back where there is none, at the cost of one search where the text has no bracket.
    """
    if "<" not in text and not _holds(text, _LOOKALIKES["<"]):
        return text
    plain = text.translate(_plain())
    return _marked(text, [found.start() + 1 for found in _tag_of(names).finditer(plain)])


def _mark_voices(text: str) -> str:
    """Puts the mark into what would pass for the preface or for a turn of the conversation (04.11)."""
    if "[" not in text and ":" not in text and not _holds(text, _LOOKALIKES["["] + _LOOKALIKES[":"]):
        return text
    places: list[int] = []
    plain = text.translate(_plain())
    for found in _voice().finditer(plain):
        place = found.start()
        if plain[place] == "[":
            places.append(place + 1)
        elif not text[place].islower():  # `human: yes` is a key in somebody's file
            places.append(place)
    return _marked(text, places)


# ── controls ─────────────────────────────────────────────────────────────────────────────────────

_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible(text: str) -> str:
    r"""Shows what could act on a terminal or turn a line round as escapes such as `\x1b` and `\u202e` (04.6).

    Control characters (C0 but tab and newline, DEL, C1), bidirectional embeddings, overrides and isolates,
    and lone surrogates, which no output can carry. Commands print peers' text through this (10.37). The same
    object comes back where there is nothing to show.
    """
    return _CONTROLS.sub(_escape, text) if _CONTROLS.search(text) else text


def scrub(text: str) -> str:
    """Makes inert what could close the message's block, open another or pass for the preface.

    Args:
        text: any text, as its author wrote it.

    Returns the text with the mark in each such place and with its controls shown (04.4, 04.6), else byte for
    byte. `scrub(scrub(t)) == scrub(t)`; where there is nothing to scrub, the same object (04.16).
    """
    return visible(_mark_voices(mark_tags(text, *BLOCK_NAMES, *FOREIGN_NAMES)))


# ── attributes ───────────────────────────────────────────────────────────────────────────────────

# What an attribute may not hold as it is: markup, line ends, look-alike brackets, anything invisible.
_UNQUOTABLE = re.compile(
    f"[&<>\"'\t\n\xad\u2028\u2029＂{_LOOKALIKES['<']}{_CLOSERS}"
    + "".join(f"{chr(first)}-{chr(last)}" for first, last in _INVISIBLE if first > 0xFF and first != 0xD800)
    + "]"
)
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_CHARACTERS: Final = {entity: character for character, entity in _ENTITIES.items()}
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|#39|#x([0-9a-f]{1,5}));")


def quoted(value: str) -> str:
    """A scrubbed value as it stands between an attribute's quotes: one line, no markup, all visible (04.5)."""
    return _UNQUOTABLE.sub(lambda found: _ENTITIES.get(found[0]) or f"&#x{ord(found[0]):x};", value)


def unquoted(value: str) -> str:
    """The value that `quoted` wrote so."""
    return _ENTITY.sub(lambda at: _CHARACTERS[at[0]] if at[1] is None else chr(int(at[1], 16)), value)


def copyable(name: str) -> str:
    """A name without anything that `scrub` or `quoted` would change, so that it is copied as it is kept."""
    return " ".join(_UNQUOTABLE.sub(" ", scrub(name)).split())
