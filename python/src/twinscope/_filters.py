"""Which records are kept: by name, by step."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Container, Iterable
from typing import Union

Names = Union[str, re.Pattern[str], Iterable[Union[str, re.Pattern[str]]], Callable[[str], bool], None]
Steps = Union[Container[int], Callable[[int], bool], None]


def name_filter(include: Names, exclude: Names) -> Callable[[str], bool]:
    """Globs (`*` also matches dots), compiled regular expressions, or a function; everything when not said."""
    wanted, unwanted = _matcher(include, True), _matcher(exclude, False)
    known: dict[str, bool] = {}

    def keep(name: str) -> bool:
        if name not in known:
            known[name] = wanted(name) and not unwanted(name)
        return known[name]

    return keep


def _matcher(names: Names, otherwise: bool) -> Callable[[str], bool]:
    if names is None:
        return lambda _: otherwise
    if callable(names):
        return names
    if isinstance(names, (str, re.Pattern)):
        names = [names]
    # A glob must match the whole name, a regular expression may match anywhere.
    tests = [re.compile(fnmatch.translate(name)).match if isinstance(name, str) else name.search for name in names]
    return lambda name: any(test(name) for test in tests)


def step_filter(steps: Steps) -> Callable[[int], bool]:
    """A range, set or list names the steps, from 0; a function decides; all of them when not said."""
    if steps is None:
        return lambda _: True
    if isinstance(steps, int):
        raise TypeError(f"steps={steps} says neither which nor how many: range({steps}) is the first {steps}, [{steps}] that one")
    if callable(steps):
        return steps
    return lambda step: step in steps
