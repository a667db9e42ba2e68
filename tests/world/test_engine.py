import asyncio
import contextlib
import itertools
import math
import random
import re
import signal
from time import sleep

import pytest

from simfl.errors import RunError, ScenarioError
from simfl.world import Clock, engine, slots


def test_events_at_one_time_happen_in_the_order_in_which_they_were_scheduled():
    clock, seen = Clock(), []

    def process(name):
        yield clock.timeout(1.0)
        seen.append(name)
        yield clock.timeout(0.0)
        seen.append(name + "'")

    for name in "ab":
        clock.start(process(name))
    clock.call_at(1.0, lambda: seen.append("c"))
    clock.start(process("d"))
    clock.run()
    # The calls were scheduled at once, the timeouts of processes when these began, in their order.
    assert seen == ["c", "a", "b", "d", "a'", "b'", "d'"]
    assert clock.now == 1.0


def test_a_timeout_hands_over_its_value_and_an_event_what_it_succeeded_with():
    clock, seen = Clock(), []

    def process(event):
        seen.append((yield clock.timeout(2.0, "done")))
        seen.append((yield event))

    event = clock.event()
    clock.start(process(event))
    clock.call_at(3.0, lambda: event.succeed(5))
    clock.run()
    assert seen == ["done", 5]
    assert clock.now == 3.0


@pytest.mark.parametrize("until", [None, 2.5])
def test_a_run_ends_when_nothing_is_left_or_when_the_time_is_up(until):
    clock, seen = Clock(), []
    for time in (1.0, 2.0, 3.0):
        clock.call_at(time, lambda time=time: seen.append(time))
    clock.run(until)
    assert seen == ([1.0, 2.0, 3.0] if until is None else [1.0, 2.0])
    assert clock.now == (3.0 if until is None else 2.5)


def test_nothing_happens_after_stop():
    clock, seen = Clock(), []
    clock.call_at(1.0, clock.stop)
    clock.call_at(1.0, lambda: seen.append("too late"))
    clock.run()
    assert clock.stopped
    assert not seen
    clock.stop()  # once is as good as twice


def test_an_interruption_ends_the_run_before_the_next_event():
    clock, seen = Clock(), []

    def interrupt():
        clock.interrupted = True

    clock.call_at(1.0, interrupt)
    clock.call_at(2.0, lambda: seen.append("too late"))
    clock.run()
    assert not seen
    assert clock.now == 1.0
    assert not clock.stopped


class PickyError(Exception):
    """An exception that cannot be made again from its args."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_an_error_in_a_process_names_the_client_and_the_time_and_keeps_its_cause():
    clock = Clock()

    def process():
        yield clock.timeout(1.25)
        raise PickyError("this", "that")

    clock.start(process(), client=3)
    clock.call_at(1.3, lambda: pytest.fail("the run went on"))
    with pytest.raises(
        RunError, match=r"^client 3, virtual time 1\.25 s: PickyError: this and that in \S*test_engine\.py:\d+$"
    ) as caught:
        clock.run()
    assert isinstance(caught.value.__cause__, PickyError)
    assert caught.value.__cause__.__traceback__ is not None
    assert clock.now == 1.25


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit(), StopIteration(2), asyncio.CancelledError()])
def test_a_base_exception_ends_a_run_with_an_error(error):
    clock = Clock()

    def process():
        yield clock.timeout(1.0)
        raise error

    clock.start(process(), client=3)
    with pytest.raises(RunError, match=r"^client 3, virtual time 1 s: \w+(: .*)? in \S*test_engine\.py:\d+$"):
        clock.run()


def test_an_error_in_a_call_names_the_time():
    clock = Clock()
    clock.call_at(0.5, lambda: 1 / 0)
    with pytest.raises(RunError, match=r"^virtual time 0\.5 s: ZeroDivisionError: ") as caught:
        clock.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("error", [ScenarioError("as it is"), KeyboardInterrupt()])
@pytest.mark.parametrize("way", ["process", "call"])
def test_simfl_errors_pass_unchanged(error, way):
    clock = Clock()

    def process():
        yield clock.timeout(1.0)
        raise error

    def call():
        raise error

    if way == "process":
        clock.start(process(), client=0)
    else:
        clock.call_at(1.0, call)
    with pytest.raises(type(error)) as caught:
        clock.run()
    assert caught.value is error


def test_a_time_that_has_passed_by_rounding_is_now():
    clock, seen = Clock(), []

    def process():
        yield clock.timeout(0.3)
        clock.call_at(0.1 + 0.2 - 1e-12, lambda: seen.append(clock.now))

    clock.start(process())
    clock.run()
    assert seen == [0.3]


@pytest.fixture
def ctrl_c():
    """Ctrl-C raises, also where the tests were started in the background and it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_event_that_does_not_end_is_interrupted():
    clock = Clock()

    def endless():
        clock.interrupt(patience_s=0.05)
        while True:
            pass

    clock.call_at(1.0, endless)
    with pytest.raises(KeyboardInterrupt):
        clock.run()


@pytest.mark.usefixtures("ctrl_c")
def test_an_event_that_ends_in_time_is_not_interrupted():
    clock, seen = Clock(), []
    clock.call_at(1.0, lambda: (clock.interrupt(patience_s=0.2), seen.append(1)))
    clock.call_at(2.0, lambda: pytest.fail("the run went on"))
    clock.run()
    sleep(0.3)
    assert (seen, clock.now) == ([1], 1.0)


def test_time_that_stands_still_ends_the_run(monkeypatch):
    monkeypatch.setattr("simfl.world.engine.MOST_AT_ONCE", 1000)
    clock, steps = Clock(), []

    def process(step):
        while len(steps) < 10_000:
            steps.append(clock.now)
            yield clock.timeout(step)

    clock.start(process(1.0))
    clock.run()
    assert len(steps) == 10_000
    steps.clear()
    clock.start(process(1e-13))  # 1e4 s + 1e-13 s = 1e4 s
    with pytest.raises(RunError, match=r"^virtual time 10000 s: expected time to advance, found 1000 events at"):
        clock.run()
    assert len(steps) < 3000


@pytest.mark.parametrize("pauses", [None, 100])
def test_a_process_that_waits_zero_time_forever_is_named(pauses, monkeypatch):
    monkeypatch.setattr("simfl.world.engine.MOST_AT_ONCE", 1000)
    clock, steps = Clock(), []

    def others():
        for _ in range(300):
            yield clock.timeout(0.125)

    def wait():
        while True:
            steps.append(clock.now)
            yield clock.timeout(0.0)

    def process():
        yield clock.timeout(0.5)
        yield from wait()

    for client in (0, 1, 3):
        clock.start(others(), client)
    clock.start(process(), client=2)
    place = f"{__file__}:{wait.__code__.co_firstlineno + 3}"
    line = (
        "client 2, virtual time 0.5 s: expected time to advance, found 1000 events at this time, the next of process "
        f"wait in {place}; a duration is 0"
    )

    def run():
        while True:
            clock.run(events=pauses)
            clock.paused = False

    with pytest.raises(RunError, match=f"^{re.escape(line)}"):
        run()
    assert 1000 <= len(steps) <= 1200


def test_many_clients_may_have_events_at_one_moment(monkeypatch):
    monkeypatch.setattr("simfl.world.engine.MOST_AT_ONCE", 1000)
    clock = Clock()

    def process():
        for _ in range(50):
            yield clock.timeout(1.0)
            yield clock.timeout(0.0)

    for client in range(300):
        clock.start(process(), client)
    clock.run()
    assert clock.now == 50.0


def test_an_infinite_time_ends_the_run():
    clock = Clock()
    clock.call_at(1e308, lambda: clock.call_at(math.inf, lambda: None))
    with pytest.raises(RunError, match=r"^virtual time: expected a finite time, found infinity"):
        clock.run()


def test_a_process_that_yields_other_values_than_events_is_refused():
    clock = Clock()

    def process():
        yield clock.timeout(1.0)
        yield 3

    clock.start(process(), client=2)
    with pytest.raises(
        RunError, match=r"client 2, virtual time 1 s: TypeError: a process must yield events, and 3 is not an event"
    ):
        clock.run()


@pytest.mark.parametrize("process", [3, lambda: None, None])
def test_start_refuses_anything_but_a_process(process):
    with pytest.raises(
        TypeError, match=r"start: expected a generator \(the result of a function that yields\), found "
    ):
        Clock().start(process)


def test_a_time_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="timeout: expected a time >= 0, found nan"):
        Clock().timeout(math.nan)


def test_an_event_that_fails_is_raised_where_it_is_waited_for():
    clock, seen = Clock(), []
    failing, lonely = clock.event(), clock.event()

    def process():
        try:
            yield failing
        except ValueError as error:
            seen.append(str(error))
        happened = clock.timeout(1.0, "value")
        yield clock.timeout(2.0)
        seen.append((yield happened))  # goes on at once
        lonely.fail(KeyError("nobody"))

    clock.start(process())
    clock.call_at(1.0, lambda: failing.fail(ValueError("it failed")))
    with pytest.raises(RunError, match=r"^virtual time 3 s: KeyError: 'nobody'"):
        clock.run()
    assert seen == ["it failed", "value"]
    assert clock.now == 3.0


@pytest.mark.parametrize("spread", ["even", "bursts", "far"])
def test_events_put_off_into_slots_happen_in_the_order_of_one_heap(monkeypatch, spread):
    """Times repeat, and lie before, at and after the ends of slots; some never come."""
    monkeypatch.setattr(slots, "MOST_IN_HEAP", 50)
    monkeypatch.setattr(slots, "LEAST_IN_HEAP", 5)
    monkeypatch.setattr(engine, "LOOK", 20)
    draw = random.Random(spread)
    waits = {
        "even": lambda: draw.random(),
        "bursts": lambda: draw.choice([0.0, 1.0, 0.25]),
        "far": lambda: 10.0 ** draw.uniform(-9, 9) if draw.random() < 0.99 else math.inf,
    }[spread]
    clock, happened, numbers = Clock(), [], itertools.count()
    expected, put_off = [], 0

    def schedule(wait_s):
        number = next(numbers)
        expected.append((clock.now + wait_s, number))
        if number % 3:
            clock.timeout(wait_s).callbacks.append(lambda _: happen(number))
        else:
            clock.tell_at(clock.now + wait_s, happen, number)

    def happen(number):
        nonlocal put_off
        happened.append((clock.now, number))
        put_off = max(put_off, clock._slots.count)
        assert clock.pending == len(expected) - len(happened)
        if len(expected) < 3000:
            schedule(waits())

    for _ in range(300):
        schedule(waits())
    with contextlib.suppress(RunError):  # at last, time is infinite
        clock.run()
    assert happened == sorted(expected)
    assert put_off > 100 or spread == "bursts"
