"""Names, normal forms, refs and socket addresses.

What it decides: whether a name is allowed (02.2), which name a session gets when it brings none or one that
is taken (02.1, 02.3), when two names are the same (02.5), when a name may deceive the eye (02.6), and how an
identity is shown (02.7). It also writes and reads the `uds:` address of a socket and takes `name [ref]` apart.

What it never does: look anybody up (that is `resolve`), touch a file, or shorten a name that somebody chose:
a bad name is refused with the rule it breaks.

How it fails: `InvalidName` for a name, `UnfitPath` for a socket path that no address can hold. The functions
that read foreign text (`split_ref`, `uds_path`, `clean_line`) answer None or a cleaned text and never raise.

What is weak: Python knows no script property, so a letter's script is the first word of its Unicode name;
the look-alike table holds letters of Cyrillic, Greek and Armenian and no others. Deception within one script
(`l` beside `1`) is not noticed.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import TYPE_CHECKING, Literal

from postroom.errors import InvalidName, UnfitPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_NAME = 64
"""Characters of a name after NFKC (02.2)."""

MAX_RAW_NAME = 8 * MAX_NAME
"""Characters before NFKC: composing never shrinks a text that far, so a longer one is refused unread."""

DERIVED_STEM = 61
"""Characters of a folder's name that a derived name keeps: 61, a hyphen and two digits make 64 (02.1)."""

MIN_REF = 6
"""Hex digits of a ref, where no more are needed to tell candidates apart (02.7)."""

HASH_DIGITS = 64
"""Hex digits of a whole SHA-256, the longest ref there is."""

MAX_ADDRESS = 300
"""Characters of a `uds:` address: what a neighbour takes as `from`."""

MAIN = "main"
"""The address of a session's own main conversation (02.9)."""

LEAD = "team-lead"
"""The lead's name in its team; only a lead may carry it (02.2)."""

RESERVED = frozenset({MAIN, LEAD, "user", "system", "postroom"})
"""Names that nobody may claim, as normal forms (02.2)."""

UDS = "uds:"
"""What a socket's address begins with."""

# ---------------------------------------------------------------------------------------- normal form


# One table does it all for plain ASCII: the usual name is folded on the way of every send (12.4).
_FOLDED = bytes(
    ord(" " if chr(code) in "-_." or chr(code).isspace() else chr(code).lower()) for code in range(256)
)


def normal_form(name: str) -> str:
    """Returns the form in which names are compared (02.5).

    NFKC and casefold; every run of white space, `_`, `.` and `-` becomes one `-`; none at the ends. Doing it
    twice changes nothing. Takes any text; one of separators alone gives an empty form.
    """
    if name.isascii():
        return b"-".join(name.encode().translate(_FOLDED).split()).decode()
    text = unicodedata.normalize("NFKC", name).casefold()
    # Folding can take a letter and its marks apart; composed again, the form stays what it is.
    text = unicodedata.normalize("NFKC", text)
    return "-".join(text.replace("_", " ").replace(".", " ").replace("-", " ").split())


# ---------------------------------------------------------------------------------------- valid names

_PUNCTUATION = frozenset("@*[]<>/\\\"':")
_JOINTS = frozenset(" -_.")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

# Letters and marks by category that nobody can see: fillers, joiners, variation selectors.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {
    chr(code)
    for span in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
    for code in range(span[0], span[1] + 1)
}

_Sort = Literal["letter", "mark", "digit", "joint", "other"]


def _sort(character: str) -> _Sort:
    """What a character is to the rules of names."""
    if character in _JOINTS:
        return "joint"
    category = unicodedata.category(character)
    if character in _INVISIBLE:
        return "other"
    if category[0] == "L":
        return "letter"
    if category == "Nd":
        return "digit"
    return "mark" if category in ("Mn", "Mc") else "other"


def _forbidden(character: str) -> str:
    """The rule that a character of sort `other` breaks, as a sentence; first that applies."""
    code = f"U+{ord(character):04X}"
    category = unicodedata.category(character)
    rungs = (
        (character in _PUNCTUATION, "A name holds none of @ * [ ] < > / \\ \" ' and :."),
        (category == "Cc", f"A name holds no control characters; this one has {code}."),
        (character in _BIDI, f"A name holds no bidirectional control characters; this one has {code}."),
        (
            category == "Cf" or character in _INVISIBLE,
            f"A name holds no format or invisible characters; this one has {code}.",
        ),
        (True, f"A name holds letters, digits, spaces, '-', '_' and '.' alone; this one has {code}."),
    )
    return next(rule for applies, rule in rungs if applies)


def _fault(name: str) -> str | None:
    """The first rule of 02.2 that a name in NFKC breaks, reserved words apart; None when it is valid."""
    if not name:
        return "A name has at least one character."
    if len(name) > MAX_NAME:
        return f"A name has at most {MAX_NAME} characters; this one has {len(name)}."
    lettered = False
    last: _Sort = "joint"
    for character in name:
        last = _sort(character)
        if last == "other":
            return _forbidden(character)
        if last == "mark" and not lettered:
            return f"A combining mark follows a letter; in this name U+{ord(character):04X} does not."
        lettered = last in ("letter", "mark")
    if _sort(name[0]) == "joint":
        return "A name starts with a letter or a digit."
    if last == "joint":
        return "A name ends with a letter or a digit."
    return None


def check_name(name: str, *, lead: bool = False) -> str:
    """Returns the name in NFKC when it is valid (02.2).

    Args:
        name: what somebody chose, as it came.
        lead: True for the lead of a team, who alone may be called `team-lead`.

    Raises:
        InvalidName: names the first rule that it breaks; the text never repeats the name.
    """
    composed = unicodedata.normalize("NFKC", name[:MAX_RAW_NAME])
    fault = _fault(composed)
    if len(name) > MAX_RAW_NAME:
        fault = f"A name has at most {MAX_NAME} characters; this one has {len(name)}."
    if fault is not None:
        raise InvalidName(fault, "Choose letters and digits, joined by spaces, '-', '_' or '.'.")
    form = normal_form(composed)
    if form in RESERVED and not (lead and form == LEAD):
        raise InvalidName(f"The name {form} is reserved.", "Choose another name.")
    return composed


def _stripped(text: str) -> str:
    """Without the joints at both ends."""
    return text.strip(" -_.")


def derive_name(folder_name: str, session_id: str) -> str:
    """Returns the name of a session that brings none: `myapp-3f` (02.1).

    Args:
        folder_name: the last part of the working directory; any text.
        session_id: the session's id; its first two hex digits make the end (of its hash, where it does not
            begin with two).

    Returns:
        A valid name for every input, at most 64 characters.
    """
    kept: list[str] = []
    lettered = False
    for character in unicodedata.normalize("NFKC", folder_name[:MAX_RAW_NAME]):
        sort = _sort(character)
        if sort == "other" or (sort == "mark" and not lettered):
            lettered = False
            if kept[-1:] != ["\0"]:  # stands for a run of forbidden characters; itself forbidden
                kept.append("\0")
        else:
            lettered = sort in ("letter", "mark")
            kept.append(character)
    stem = _stripped(_stripped("".join(kept).replace("\0", "-"))[:DERIVED_STEM]) or "session"
    digits = session_id[:2].lower()
    if not _is_hex(digits) or len(digits) < 2:
        digits = identity_hash(session_id)[:2]
    return f"{stem}-{digits}"


def variant(name: str, taken: Callable[[str], bool]) -> str:
    """Returns the name of a newcomer whose own is taken: `reviewer-2`, `reviewer-3`, … (02.3).

    Args:
        name: a valid name.
        taken: says whether a normal form belongs to a live session.

    Returns:
        The first that is free; valid, and cut before its number where it would pass 64 characters.
    """
    number = 2
    while True:
        end = f"-{number}"
        candidate = _stripped(name[: MAX_NAME - len(end)]) + end
        if not taken(normal_form(candidate)):
            return candidate
        number += 1


# ---------------------------------------------------------------------------------------- names that deceive

# Foreign letters above the Latin ones that they look like. Capitals and small letters differ.
_DOUBLES = (
    ("АВСЕНІЇЈКМОРЅТХУҮԌԚԜ", "ABCEHIÏJKMOPSTXYYGQW"),  # Cyrillic
    ("авсԁеёгһнії\u0458кӏмпорԛѕтиѵԝшхуүьԍ", "abcdeërhhiïjklmnopqstuvwwxyybg"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧͿ", "ABEZHIKMNOPTYXJ"),  # Greek
    ("αβγεηικνορτυχωϳ", "abyenikvoptuxwj"),
    ("ՍՕօոսհյցզ", "UOonuhjgq"),  # Armenian
)
_LOOK_ALIKES = {
    ord(letter): double for foreign, latin in _DOUBLES for letter, double in zip(foreign, latin, strict=True)
}
_FOREIGN = frozenset(map(chr, _LOOK_ALIKES))

# Written together in one language as a matter of course, also beside Latin.
_EAST_ASIAN = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO", "HANGUL", "IDEOGRAPHIC"}
)


def mixed_script(name: str) -> bool:
    """Says whether a name mixes letters of scripts that no language mixes (02.6).

    Latin beside Chinese, Japanese or Korean is ordinary and does not count.
    """
    if name.isascii():
        return False
    scripts: set[str] = set()
    for character in unicodedata.normalize("NFKC", name):
        if _sort(character) == "letter":
            script = unicodedata.name(character, "").partition(" ")[0]
            if script != "MODIFIER":
                scripts.add("EAST ASIAN" if script in _EAST_ASIAN else script)
    return len(scripts) > 1 and scripts != {"EAST ASIAN", "LATIN"}


def look_alike(name: str) -> str | None:
    """Returns the normal form of the Latin word that a word of another script looks like; else None.

    Every letter must be foreign and have a Latin double, so both have the same length (02.6).
    """
    if name.isascii():
        return None
    composed = unicodedata.normalize("NFKC", name)
    letters = [character for character in composed if _sort(character) in ("letter", "mark")]
    if not letters or not _FOREIGN.issuperset(letters):
        return None
    return normal_form(composed.translate(_LOOK_ALIKES))


def confusable(name: str, others: Iterable[str]) -> str | None:
    """Returns a warning about a name that may deceive the eye, or None (02.6).

    Args:
        name: the name to be judged.
        others: the names that stand beside it.
    """
    if mixed_script(name):
        return f"The name {clean_line(name, MAX_NAME)} mixes letters of different scripts."
    latin = look_alike(name)
    if latin is None:
        return None
    for other in others:
        if normal_form(other) == latin:
            return (
                f"The name {clean_line(name, MAX_NAME)} only looks like {clean_line(other, MAX_NAME)}: "
                f"it is written in another script."
            )
    return None


# ---------------------------------------------------------------------------------------- refs

_HEX = frozenset("0123456789abcdef")


def _is_hex(text: str) -> bool:
    return _HEX.issuperset(text)


def _digest(text: str) -> str:
    # A claim from a foreign file may hold half a surrogate pair; it must have a hash all the same.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def identity_hash(identity: str) -> str:
    """Returns the 64 hex digits that refs are cut from: the SHA-256 of an identity (02.7)."""
    return _digest(identity)


def ref_of(identity: str, length: int = MIN_REF) -> str:
    """Returns the first `length` hex digits of an identity's hash, at least six (02.7)."""
    return identity_hash(identity)[: max(length, MIN_REF)]


def shortest_refs(identities: Iterable[str]) -> dict[str, str]:
    """Returns for each identity the shortest ref, of six digits or more, that no other one shares (02.7)."""
    hashes = sorted((identity_hash(identity), identity) for identity in set(identities))
    lengths = [MIN_REF] * len(hashes)
    for place in range(1, len(hashes)):
        before, after = hashes[place - 1][0], hashes[place][0]
        # In sorted order, whoever shares most with a hash stands beside it.
        shared = next(at for at in range(HASH_DIGITS) if before[at] != after[at])
        lengths[place - 1] = max(lengths[place - 1], shared + 1)
        lengths[place] = max(lengths[place], shared + 1)
    return {identity: digest[:length] for (digest, identity), length in zip(hashes, lengths, strict=True)}


def claim_key(name: str) -> str:
    """Returns the file name of a claim: the first 32 hex digits of the normal form's SHA-256 (02.3)."""
    return _digest(normal_form(name))[:32]


def shown(name: str, ref: str) -> str:
    """Returns `name [ref]`, as lists, envelopes and errors write it (02.11)."""
    return f"{name} [{ref}]"


def split_ref(to: str) -> tuple[str, str] | None:
    """Takes `name [ref]` apart (02.11).

    Returns:
        The name and the ref in lower case, six to 64 hex digits; the name is empty for a bare `[ref]`. None
        when the text ends in no such thing.
    """
    text = to.strip()
    if not text.endswith("]"):
        return None
    name, bracket, ref = text[:-1].rpartition("[")
    ref = ref.strip().lower()
    if not bracket or not MIN_REF <= len(ref) <= HASH_DIGITS or not _is_hex(ref):
        return None
    return name.strip(), ref


# ---------------------------------------------------------------------------------------- socket addresses

_LITERAL = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_/.-")


def _path_fault(path: str) -> str | None:
    """Why a path has no address; None when it has one, its length apart."""
    if not path.startswith("/"):
        return "the path of a socket must be absolute"
    if "\0" in path:
        return "the path of a socket cannot hold a NUL"
    if ".." in path.split("/"):
        return "the path of a socket cannot hold '..'"
    return None


def _percent(path: str) -> str:
    """`uds:` and the path's UTF-8 bytes, those outside `[A-Za-z0-9:_/.\\-]` as %XX."""
    return UDS + "".join(chr(byte) if byte in _LITERAL else f"%{byte:02X}" for byte in path.encode())


def uds_address(path: str) -> str:
    """Returns the address of a socket, `uds:` and its path, as neighbours write it in `from` (05.30).

    Raises:
        UnfitPath: it is not absolute, holds a NUL or `..`, is no UTF-8, or its address has over 300 characters.
    """
    fault = _path_fault(path)
    if fault is None:
        try:
            address = _percent(path)
        except UnicodeEncodeError:
            fault = "the path of a socket must be UTF-8"
        else:
            if len(address) <= MAX_ADDRESS:
                return address
            fault = f"the address of a socket has at most {MAX_ADDRESS} characters"
    raise UnfitPath(clean_line(path, MAX_ADDRESS), fault, "Use a shorter, plain folder for sockets.")


def uds_path(address: str) -> str | None:
    """Returns the path that `uds_address` would write exactly so, or None for any other text."""
    if len(address) > MAX_ADDRESS or not address.startswith(UDS):
        return None
    first, *rest = address[len(UDS) :].split("%")
    try:
        path = (first.encode() + b"".join(_unescaped(part) for part in rest)).decode()
        exact = _path_fault(path) is None and _percent(path) == address
    except ValueError:
        return None
    return path if exact else None


def _unescaped(part: str) -> bytes:
    """The bytes of what follows a percent sign; ValueError when that is no escape."""
    return bytes.fromhex(part[:2]) + part[2:].encode()


# ---------------------------------------------------------------------------------------- foreign words


def clean_line(text: str, limit: int) -> str:
    """Returns a claim from elsewhere as part of one line: a name, a folder, a reason (01.30).

    White space becomes single spaces, what cannot be seen becomes `?`, and a text of more than `limit`
    characters is cut to them, the last being `…`. A text that needs none of it is returned as it is.
    """
    if len(text) <= limit and text.isprintable():
        return text
    line = " ".join(text[: 4 * limit].split())
    line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
