"""Every call fails once, in a sample: points of each program that a seed chose. campaign.py tells what must hold, and
tests/fail/campaign tries them all. FLYTUNE_SEED=WORD asks for the points of a run that failed."""
import collections
import random

import pytest

import campaign
import harness
from campaign import Point

pytestmark = pytest.mark.skipif(harness.INSTRUMENTED, reason="a sanitizer and valgrind have allocators of their own")

SEED = campaign.seed()
TRIES = 6  # for each point that is to be met


def try_some(folder, program, most):
    """So many points of a program; says what became of them. A life may end before its point is met: how many calls one makes is up
    to the machine, too."""
    chance = random.Random(f"{SEED} {program.name}")
    print(f"FLYTUNE_SEED={SEED} {program.name}")
    points = campaign.sample(chance, program.calls(folder), TRIES * most)
    chance.shuffle(points)
    words = collections.Counter()
    while points and words.total() - words["not met"] < most:
        words[program.live(folder, points.pop())] += 1
    print(dict(words))
    assert 2 * (words.total() - words["not met"]) >= min(most, words.total())


@pytest.mark.parametrize("part", range(2))
def test_a_daemon_refuses_or_serves(tmp_path, part):
    program = campaign.daemon_programs(campaign.Kept(tmp_path / "kept") if part else None)[part]
    try_some(tmp_path, program, 40)


def test_a_daemon_with_the_cpu_runner_refuses_or_serves(tmp_path):
    try_some(tmp_path, campaign.daemon_programs(None, real=True)[2], 4)


def test_the_library_fails_clean_and_answers_the_next_call(tmp_path):
    with campaign.filled(tmp_path / "filled") as daemon:
        try_some(tmp_path, *campaign.library_programs(daemon), 60)


@pytest.mark.parametrize("group", range(4))
def test_what_is_printed_is_whole_or_the_status_says_so(tmp_path, group):
    with campaign.filled(tmp_path / "filled") as daemon:
        for program in campaign.command_programs(daemon)[group::4]:
            try_some(tmp_path, program, 6)


# Calls that were found to be taken ill.
@pytest.mark.parametrize("kind, call, number", [
    ("alloc", "calloc", 1),  # of itself: it ended without a word
    ("alloc", "calloc", 2),  # of its log: it ran without one
    ("io", "open64", 1),     # of /dev/null: it ended without a word
])
def test_a_daemon_says_why_it_does_not_start(tmp_path, kind, call, number):
    assert campaign.DaemonLife(tmp_path, Point(kind, number, call=call)).live() == "refused"


@pytest.mark.parametrize("number", range(1, 17))
def test_a_disk_that_refuses_one_page_is_written_again_by_the_next_request(tmp_path, number):
    # Where it was a meta page LMDB took nothing more, and only the request after told so.
    assert campaign.DaemonLife(tmp_path, Point("io", number, 1, call="pwrite")).live() in ("served", "refused")


@pytest.mark.parametrize("variant", (0, 4))
@pytest.mark.parametrize("number", range(7, 13))
def test_a_runner_that_could_not_be_told_is_started_anew(tmp_path, number, variant):
    # Its hello is among these writes: the device was probed for a minute.
    assert campaign.DaemonLife(tmp_path, Point("io", number, variant, call="write")).live() in ("served", "refused")


def test_libuv_ends_no_daemon_that_serves_where_a_descriptor_cannot_be_watched(tmp_path):
    # It does so still with two of its own, before anybody is served.
    words = [campaign.DaemonLife(tmp_path / str(number), Point("io", number, call="epoll_ctl")).live() for number in range(1, 19)]
    assert words.count("aborted") <= 2 and words.count("served") >= 8, words
