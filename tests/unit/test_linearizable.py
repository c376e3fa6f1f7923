# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of histories: by hand, and beside one that tries every order of the calls."""

from __future__ import annotations

import itertools

import grants_model  # tests/fault
import pytest
from grants_model import BUSY, REFUSED, Grants, Held
from hypothesis import given, settings
from hypothesis import strategies as some
from linearizable import Operation, order, overlapping  # tests/fault

A, B, C = (frozenset([name]) for name in "abc")
POOL = Grants(frozenset("abc"))


def history(text):
    """`ADD x 1 -> a`, a line for each call; it begins at the column of its first letter and ends at that of |."""
    calls = []
    for number, line in enumerate(text.strip("\n").splitlines()):
        asked, _arrow, answer = line.rstrip("| ").strip().partition(" -> ")
        name, *words = asked.split()
        words = [int(word) if word.isdigit() else word for word in words]
        called = len(line) - len(line.lstrip())
        calls.append(Operation(name, tuple(words), answered(name, answer), called, line.index("|"), number))
    return calls


def answered(name, answer):
    if answer in ("True", "False"):
        return answer == "True"
    if name == "ADD" and answer not in (BUSY, REFUSED):
        return frozenset(answer.split())
    if name == "LIST" and answer != BUSY:
        return frozenset(Held(*one.split(":")[:2], frozenset(one.split(":")[2])) for one in answer.split())
    return answer


GOOD = {
    "one after the other": """
ADD x 1 -> a   |
                 ADD y 2 -> b c  |
                                   ADD z 1 -> refused |
                                                        DEL x -> True |
                                                                        DEL x -> False |
                                                                                         ADD z 1 -> a |
""",
    "a list while a grant is made sees it or not": """
ADD x 1 -> a             |
    LIST ->          |
      LIST -> x::a     |
""",
    "a list sees it before the reply": """
ADD x 1 -> a                                    |
   LIST -> x::a   |
                     ADD y 3 -> refused |
""",
    "refused, as another call had the devices meanwhile": """
ADD x 3 -> a b c |
    ADD y 1 -> refused      |
                   DEL x -> True |
""",
    "the same request twice at once": """
ADD x 1 -> b    |
  ADD x 1 -> b      |
    ADD x 2 -> refused  |
""",
    "a pod takes its unit again, and the old token frees nothing": """
TAKE a -> t1 |
               TAKE a -> t2 |
                              BACK a t1 -> False |
                                                   BACK a t2 -> True |
                                                                       ADD x 3 -> a b c |
""",
    "a call that waited too long changes nothing": """
ADD x 3 -> a b c      |
  ADD y 1 -> waited too long   |
     DEL x -> waited too long  |
                                 LIST -> x::abc |
""",
    "a pod does not get what a request-id holds": """
ADD x 1 -> a |
               TAKE a -> refused |
""",
}

BAD = {
    "one device twice": """
ADD x 1 -> a      |
   ADD y 1 -> a     |
""",
    "a list from before its call": """
ADD x 1 -> a   |
                 LIST ->   |
""",
    "a list that goes back": """
ADD x 1 -> a                     |
   LIST -> x::a  |
                     LIST ->       |
""",
    "two lists that differ about the order of two grants": """
ADD x 1 -> a         |
ADD y 1 -> b         |
 LIST -> x::a        |
 LIST -> y::b        |
""",
    "refused though enough is free": """
ADD x 1 -> a   |
                 ADD y 2 -> refused |
""",
    "not the amount": """
ADD x 2 -> a   |
""",
    "other devices for the same request": """
ADD x 1 -> a   |
                 ADD x 1 -> b |
""",
    "a device that was given back twice": """
ADD x 1 -> a   |
                 DEL x -> True |
                   DEL x -> True |
""",
    "a call that waited too long, and yet did it": """
ADD x 1 -> waited too long |
                             LIST -> x::a |
""",
    "an error that is none of the protocol's": """
ADD x 1 -> error 102: the store |
""",
    "a pod and a request-id": """
ADD x 3 -> a b c |
    TAKE b -> t1 |
""",
    "a late end of a pod frees a newer hold": """
TAKE a -> t1 |
               TAKE a -> t2 |
                              BACK a t1 -> True |
""",
    "half of a grant in a list": """
ADD x 2 -> a b   |
   LIST -> x::a  |
""",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history(name):
    calls = history(GOOD[name])
    found = order(calls, POOL, grants_model.step)
    assert sorted(found) == list(range(len(calls)))
    for one, other in itertools.combinations(found, 2):
        assert calls[other].replied >= calls[one].called


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history(name):
    assert order(history(BAD[name]), POOL, grants_model.step) is None


def every_order(calls):
    """Whether one of all orders that keep to the times explains the history."""
    for tried in itertools.permutations(calls):
        if any(late.replied < early.called for early, late in itertools.combinations(tried, 2)):
            continue
        state = POOL
        for call in tried:
            state = grants_model.step(state, call)
            if state is None:
                break
        else:
            return True
    return False


HOLDERS = some.sampled_from("xy")
SETS = some.sampled_from([A, B, C, A | B, B | C])
LISTS = some.frozensets(some.builds(Held, HOLDERS, some.just(""), SETS), max_size=2)
CALLS = some.one_of(
    some.tuples(some.just("ADD"), some.tuples(HOLDERS, some.integers(1, 2)), some.one_of(some.just(REFUSED), SETS)),
    some.tuples(some.just("DEL"), some.tuples(HOLDERS), some.booleans()),
    some.tuples(some.just("LIST"), some.just(()), LISTS),
)
TIMES = some.tuples(some.integers(0, 12), some.integers(0, 6))


@given(some.lists(some.tuples(CALLS, TIMES), max_size=5))
@settings(max_examples=600)
def test_the_same_verdict_as_every_order(drawn):
    calls = [Operation(*call, start, start + length) for call, (start, length) in drawn]
    found = order(calls, POOL, grants_model.step)
    assert (found is not None) == every_order(calls)


# Answers of one call after the other, so that most of the histories are good ones.
PLANS = some.lists(some.tuples(some.sampled_from(["ADD", "DEL", "LIST"]), HOLDERS, TIMES), max_size=6)


@given(PLANS, some.randoms(use_true_random=False))
@settings(max_examples=300)
def test_what_was_done_in_an_order_is_good(plan, chance):
    state, calls = POOL, []
    for moment, (name, holder, (before, after)) in enumerate(plan):
        if name == "ADD":
            has = state.of(holder)
            free = sorted(state.free)
            answer = has.devices if has and len(has.devices) == 1 else frozenset(free[:1]) or REFUSED
            asked = (holder, 1)
        else:
            asked = (holder,) if name == "DEL" else ()
            answer = state.of(holder) is not None if name == "DEL" else state.held
        calls.append(Operation(name, asked, answer, 10 * moment - before, 10 * moment + 1 + after))
        state = grants_model.step(state, calls[-1])
        assert state is not None
    chance.shuffle(calls)
    assert order(calls, POOL, grants_model.step) is not None


def test_calls_that_overlap():
    assert overlapping(history(GOOD["a list while a grant is made sees it or not"])) == 3
    assert overlapping(history(GOOD["one after the other"])) == 0
