"""Free text reduced to numbers that ordinary features watch; no text is kept.

Texts of a language model hardly repeat, so their values cannot be categories. What changes
when prompts or answers change is their length, their language and characters, how much
they repeat themselves, and how often they refuse. Only the first `MAX_CHARACTERS` of a text
are read, which bounds the time.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.features import TEXT_DATATYPES, Feature, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIX: Final = ".text"
MAX_CHARACTERS: Final = 1 << 14
_SHARES: Final = (
    "digits_ratio",
    "symbols_ratio",
    "accented_letters_ratio",
    "cyrillic_letters_ratio",
    "arabic_letters_ratio",
    "cjk_letters_ratio",
    "other_letters_ratio",
)
NAMES: Final = ("characters", "words", *_SHARES, "repeated_words_ratio", "refusal")
"""Characters and words of a text; shares of its characters that are digits, neither letters,
digits nor spaces, and letters beyond ASCII: Latin, Cyrillic, Arabic, Chinese with Japanese and
Korean, others; the share of its words that came before in it; and 1 for an English refusal."""
_SCRIPTS: Final = {
    "LATIN": "accented_letters_ratio",
    "CYRILLIC": "cyrillic_letters_ratio",
    "ARABIC": "arabic_letters_ratio",
    **dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "HANGUL"), "cjk_letters_ratio"),
}
"""Shares by the first word of a letter's name in Unicode."""
_REFUSAL: Final = re.compile(
    r"\b(i'?m sorry|i am sorry|i apologi[sz]e|i can'?t|i cannot|i can not|i'?m unable|"
    r"i am unable|i won'?t|i will not|as an ai|i'?m not able|i am not able)\b",
    re.IGNORECASE,
)
_OPENING_CHARACTERS: Final = 200
"""Refusals come first; later such words are about something else."""
_ASCII: Final = 0x7F
_BEYOND: Final = 0x20000
"""From here on there are rare ideographs only, which are letters."""


def text_tensor(source: str) -> Tensor:
    """Return the tensor of numbers of a tensor of texts, for a `Schema`."""
    return Tensor(source + SUFFIX, "FP32", (len(NAMES),))


def text_features(source: str) -> tuple[Feature, ...]:
    """Return its columns as features, for a `Schema`."""
    return tuple(
        Feature(
            f"{source}.{name}",
            source + SUFFIX,
            column,
            "categorical" if name == "refusal" else "numeric",
        )
        for column, name in enumerate(NAMES)
    )


def text_source(tensor: Tensor) -> str | None:
    """Return the tensor of texts whose numbers this one has; None if it has none."""
    found = tensor.name.removesuffix(SUFFIX)
    return found if tensor == text_tensor(found) else None


def require_text(tensor: Tensor) -> str | None:
    """Return why a tensor cannot be watched as text; None if it can."""
    if tensor.datatype not in TEXT_DATATYPES:
        return f"tensor {tensor.name!r} is {tensor.datatype}; text is BYTES"
    if tensor.width != 1:
        return f"tensor {tensor.name!r} has {tensor.width} texts in a row; want one"
    return None


def text_numbers(texts: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return the numbers of texts: (rows, …) of one value a row become (rows, len(NAMES)).

    Bytes are read as UTF-8, others by `str`. A missing text (None, NaN) is NaN throughout.
    """
    values = texts.reshape(-1).tolist()
    return np.array([_numbers(value) for value in values], np.float32).reshape(
        -1, len(NAMES)
    )


@cache
def _kinds() -> NDArray[np.int8]:
    """Return the kind of each code point: 1 for the first of `_SHARES`; 0 for none."""
    kinds = np.zeros(_BEYOND + 1, np.int8)
    place = {name: number for number, name in enumerate(_SHARES, 1)}
    for code in range(_BEYOND):
        character = chr(code)
        if character.isdigit():
            kinds[code] = place["digits_ratio"]
        elif character.isalpha():
            script = unicodedata.name(character, "").partition(" ")[0]
            share = _SCRIPTS.get(script, "other_letters_ratio")
            kinds[code] = place[share] if code > _ASCII else 0
        elif not character.isspace():
            kinds[code] = place["symbols_ratio"]
    kinds[_BEYOND] = place["cjk_letters_ratio"]
    return kinds


def _numbers(value: object) -> tuple[float, ...]:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return (np.nan,) * len(NAMES)
    if isinstance(value, bytes):
        # A character has at most four bytes.
        text = value[: 4 * MAX_CHARACTERS].decode("utf-8", "replace")
    else:
        text = str(value)
    text = text[:MAX_CHARACTERS]
    words = text.split()
    size = max(len(text), 1)
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
    kinds = _kinds()[np.minimum(codes, _BEYOND)]
    shares = np.bincount(kinds, minlength=len(_SHARES) + 1)[1:] / size
    repeated = 1.0 - len({word.lower() for word in words}) / max(len(words), 1)
    return (
        float(len(text)),
        float(len(words)),
        *shares.tolist(),
        repeated if words else 0.0,
        float(_REFUSAL.search(text[:_OPENING_CHARACTERS]) is not None),
    )
