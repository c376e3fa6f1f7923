# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What go-yaml takes a scalar without quotes for, and how Go writes a number.

The reference library parses with release 2 of go-yaml before 1.1.1, and with release 3 from then on.
"""

from __future__ import annotations

import math
import re
from typing import Any, Union

from ..text import yaml_subset

# Of go-yaml; the underscores are taken out before. Both releases read octals with and without the letter.
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
NULLS = ("", "~", "null", "Null", "NULL")
BOOLEANS = {
    2: {text: value for text, value in yaml_subset.CONSTANTS.items() if isinstance(value, bool)},
    3: {
        **dict.fromkeys(("true", "True", "TRUE", "y", "Y", "yes", "on"), True),
        **dict.fromkeys(("false", "False", "FALSE", "n", "N", "no", "off"), False),
    },
}
BITS = 64  # no integer of Go has more figures, in any base
LARGEST = 1 << (BITS - 1)
_CORE = ("true", "True", "TRUE", "false", "False", "FALSE")


def typed(text: str, yaml: int) -> Any:
    """What a scalar without quotes is to go-yaml 2 or 3: None, True, False, an int, a float or the text itself."""
    if text in NULLS:
        return None
    booleans = BOOLEANS[yaml] if yaml == 2 else {word: word[0] in "tT" for word in _CORE}
    if text in booleans:
        return booleans[text]
    digits = text.replace("_", "")
    if text[:1] in "0123456789+-." and _INTEGER.match(digits):
        sign, body = (-1 if digits[0] == "-" else 1), digits.lstrip("+-").lower()
        base = {"0x": 16, "0b": 2, "0o": 8}.get(body[:2], 8 if body[0] == "0" and len(body) > 1 else 10)
        lettered = body[:2] in ("0x", "0b", "0o")
        figures = (body[2:] if lettered else body).lstrip("0") or "0"
        if len(figures) <= BITS:  # Python refuses to read an integer of thousands of digits
            number = sign * int(figures, base)
            if -LARGEST <= number < 2 * LARGEST:
                return number
        return text if lettered else _float(digits, text)
    if text[:1] in "0123456789+-." and _FLOAT.match(digits):
        return _float(digits, text)
    return text


def _float(digits: str, text: str) -> Union[float, str]:
    """The float in `digits`; the text itself where the number is too large for a float (strconv.ErrRange)."""
    number = float(digits.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text if math.isinf(number) and digits[-1] not in "fF" else number


def go_float(value: float) -> str:
    """A float as Go writes it (strconv.FormatFloat, 'g', shortest)."""
    if not math.isfinite(value):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(str(value), "NaN")
    sign, digits, exponent = "-" if str(value)[0] == "-" else "", "", 0
    mantissa, _e, power = f"{abs(value)!r}".partition("e")
    whole, _point, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0") or "0"
    exponent = (
        int(power or 0) + len(whole) - 1
        if whole != "0"
        else int(power or 0) - (len(fraction) - len(fraction.lstrip("0")) + 1)
    )
    digits = digits.rstrip("0") or "0"
    if digits == "0":
        return f"{sign}0"
    if exponent < -4 or exponent >= 6:
        mark = "-" if exponent < 0 else "+"
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{mark}{abs(exponent):02d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    return sign + padded[: exponent + 1] + (f".{padded[exponent + 1 :]}" if padded[exponent + 1 :] else "")
