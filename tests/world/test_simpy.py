"""The clock is a SimPy environment: what SimPy offers works on it, and what it relies on in SimPy is there."""

import math

import pytest
import simpy
from simpy.events import NORMAL, URGENT

from simfl.errors import RunError
from simfl.world import Clock


def test_a_client_is_a_simpy_process():
    clock, seen = Clock(), []

    def client():
        yield clock.timeout(1.0)
        seen.append(clock.active_process)

    process = clock.start(client(), 3)
    assert isinstance(clock, simpy.Environment)
    assert isinstance(process, simpy.Process)
    assert process.is_alive
    clock.run()
    assert (seen, process.is_alive, clock.active_process) == ([process], False, None)


def waits(env, seen):
    """Wait for any and for all of several events, and for another process."""
    slow, fast = env.timeout(2.0, "slow"), env.timeout(1.0, "fast")
    seen.append(list((yield slow | fast).values()))
    seen.append(sorted((yield slow & fast).values()))
    yield env.any_of([env.timeout(1.0), env.event()])
    yield env.all_of([env.timeout(0.5), env.timeout(1.0)])
    seen.append((yield env.process(iter_of(env, seen))))


def interrupts(env, seen):
    """Interrupt a process while it waits; its timeout still happens."""

    def work():
        try:
            yield env.timeout(10.0)
        except simpy.Interrupt as interrupt:
            seen.append((env.now, interrupt.cause))
            yield env.timeout(1.0)

    process = env.process(work())
    yield env.timeout(3.0)
    process.interrupt("stale")


def shares(env, seen):
    """Share a resource in turn, and hand messages over by a store."""
    resource, store = simpy.Resource(env, 1), simpy.Store(env, capacity=1)

    def client(me):
        with resource.request() as request:
            yield request | env.timeout(1.5)
            seen.append((me, env.now, request.triggered))
            yield env.timeout(2.0)
        yield store.put(me)

    for me in range(2):
        env.process(client(me))
    for _ in range(2):
        seen.append((env.now, (yield store.get())))


@pytest.mark.parametrize("tool", [waits, interrupts, shares])
def test_tools_of_simpy_do_the_same_on_the_clock_as_on_its_environment(tool):
    played = []
    for env in (simpy.Environment(), Clock()):
        seen = []
        env.process(tool(env, seen))
        env.run()
        played.append((seen, env.now))
    assert played[0] == played[1]
    assert played[0][0]


def test_an_interrupt_that_is_not_caught_ends_the_run_with_its_client():
    clock = Clock()

    def work():
        yield clock.timeout(10.0)

    process = clock.start(work(), 4)
    clock.call_at(1.0, lambda: process.interrupt("stale"))
    with pytest.raises(RunError, match=r"^client 4, virtual time 1 s: Interrupt: Interrupt\('stale'\)"):
        clock.run()


def test_simpys_own_steps_handle_calls_too():
    clock, seen = Clock(), []
    clock.tell_at(1.0, seen.append, "call")
    clock.start(iter_of(clock, seen))
    while clock.peek() < math.inf:
        clock.step()
    assert seen == ["process", "call", "after"]
    assert clock.now == 2.0


def iter_of(clock, seen):
    seen.append("process")
    yield clock.timeout(2.0)
    seen.append("after")


def test_simpys_heap_has_the_entries_that_the_clock_needs():
    """`Clock` and `Timeout` put tuples into the heap themselves, and take them out."""
    env = simpy.Environment(2.0)
    timeout, event = env.timeout(1.5, "value"), env.event().succeed()
    assert env._queue == [(2.0, NORMAL, 1, event), (3.5, NORMAL, 0, timeout)]
    assert next(env._eid) == 2
    env.process(iter_of(env, []))
    assert [entry[:3] for entry in env._queue if entry[1] == URGENT] == [(2.0, URGENT, 3)]
    env.step()
    assert env.now == env._now == 2.0


def test_a_timeout_is_what_simpys_constructor_makes():
    clock, env = Clock(), simpy.Environment()
    own, simpys = clock.timeout(1.5, "value"), env.timeout(1.5, "value")
    assert isinstance(own, simpy.Timeout)
    for name in ("callbacks", "ok", "value", "triggered", "processed"):
        assert getattr(own, name) == getattr(simpys, name)
    assert [entry[:3] for entry in clock._queue] == [entry[:3] for entry in env._queue]


def test_callbacks_are_called_in_their_order_around_a_process_that_waits():
    clock, seen = Clock(), []

    def client(event):
        seen.append((yield event))

    happens, repeated = clock.timeout(1.0, "process"), clock.timeout(2.0, "again")
    clock.start(client(happens))
    clock.call_at(0.5, lambda: happens.callbacks.append(lambda event: seen.append("after")))
    repeated.callbacks.append(lambda event: seen.append("before"))
    clock.start(client(repeated))
    clock.run(events=3)
    assert len(happens.callbacks) == 2, "the process, and the function"
    clock.paused = False
    clock.run()
    assert seen == ["process", "after", "before", "again"]
    assert happens.callbacks is None
    assert happens.processed


def test_processes_and_calls_keep_the_order_of_simpys_events():
    """The same generators on a plain environment, with a timeout and a callback for each call."""

    def play(clock, call_at):
        seen = []

        def client(me):
            for step in range(3):
                yield clock.timeout(0.5 * (me % 2))
                seen.append((me, step))
                call_at(clock.now, lambda step=step: seen.append((me, "call", step)))

        for me in range(4):
            clock.process(client(me)) if not isinstance(clock, Clock) else clock.start(client(me), me)
        clock.run()
        return seen

    def call_at(time, call):
        env.timeout(time - env.now).callbacks.append(lambda _: call())

    env, clock = simpy.Environment(), Clock()
    assert play(clock, clock.call_at) == play(env, call_at)


def test_calls_are_counted_as_events():
    clock = Clock()
    for time in (1.0, 2.0):
        clock.tell_at(time, lambda _: None, None)
    clock.timeout(3.0)
    clock.run()
    assert clock.events == 3
    assert not clock.pending
