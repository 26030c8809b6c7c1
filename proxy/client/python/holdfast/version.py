"""Versions of releases, by the rules of semver.org."""

from __future__ import annotations

import re
from typing import Optional, Tuple, Union

# A version of a release: `v` may precede it, and the text after a hyphen names what came before the release.
_FORM = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)

# Sorts as the versions do: a number is older than a word, and a version with a hyphen older than the one without.
_Part = Tuple[int, Union[int, str]]
_Key = Tuple[Tuple[int, int, int], bool, Tuple[_Part, ...]]


def _key(version: str) -> Optional[_Key]:
    m = _FORM.fullmatch(version)
    if m is None:
        return None
    parts = (m[4] or "").split(".")
    before = tuple((0, int(p)) if p.isdigit() else (1, p) for p in parts) if m[4] else ()
    return (int(m[1]), int(m[2]), int(m[3])), not before, before


def is_release(version: str) -> bool:
    """Report whether a text is the version of a release, such as `v1.2.3` or `1.2.3-rc.1`."""
    return _key(version) is not None


def is_older(a: str, b: str) -> bool:
    """Report whether version a is older than b. Both must be versions of releases."""
    left, right = _key(a), _key(b)
    return left is not None and right is not None and left < right
