"""The journal names each living row, independent of the window, and replays recorded answers."""

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.tape.executor import Evaluation
from simfl.tape.journal import Journal, Record
from tests.helpers import Lab, NullExecutor, RunWithoutNumbers, make_problem


def play(window, serial):
    """Record a few hundred operations of every kind; return the names of the living rows, in order, and the counts."""
    journal = Journal(NullExecutor(), keeps=True)
    tape = Tape(journal, window=window, optimizer=max, serial_steps=serial, maps_beside=not serial)
    states = (tape.constant(np.zeros(4)),) * 2
    models = [tape.constant(np.full(4, k)) for k in range(5)]
    for number in range(300):
        one, other = models[number % 5], models[(number * 7 + 3) % 5]
        gradient = tape.gradient(one, number % 5, number, 8)
        models[number % 5] = (
            tape.apply((1.0, one), (-0.1, gradient))
            if number % 3
            else tape.combine((0.5, one), (0.5, other), (-0.1, gradient))
        )
        if number % 11 == 0:
            tape.settle(tape.combine((0.3, one), (0.7, other)))
        if number % 13 == 0:
            models[0], states = tape.transform(one, other, states, number, 0.1)
    del one, other, gradient
    tape.flush()
    assert [count >= 5 for count in journal.counts] == [True, True, True, True, not serial]
    models += states
    numbers = [row.number for model in models for row in model.rows]
    assert set(numbers) == set(tape.living().tolist())
    return journal.names(np.array(numbers)).tolist(), journal.counts


@pytest.mark.parametrize("serial", [False, True])
def test_names_of_rows_do_not_depend_on_the_window(serial):
    first = play(7, serial)
    assert first == play(1000, serial) == play(64, serial)
    assert len(set(first[0])) == len(first[0])


def test_a_replay_gives_recorded_answers_in_order_and_computes_nothing():
    def decide(models, losses):
        return np.array([len(models), 7])

    problem = make_problem(4)
    real = Journal(RunWithoutNumbers(problem), keeps=True)
    forms = np.zeros((2, 4), np.int32), np.zeros((2, 4), np.float32)
    batches = np.zeros(2, np.int32), np.zeros((2, 1), np.int32)  # clients and their draws

    def ask(journal):
        return [
            journal.evaluate(*forms).result().train_loss,
            journal.probe(*forms, *batches, decide).tolist(),
            journal.evaluate(*forms).result().train_loss,
            journal.fetch(*forms).shape,
        ]

    answers = ask(real)
    assert answers == [1.0, [2, 7], 0.5, (2, 650)]
    again = Journal(None, keeps=True)
    again.replay(real.record())
    assert again.replaying
    assert ask(again) == answers
    past = Journal(RunWithoutNumbers(problem), keeps=True)
    past.replay(Record([Evaluation(3.0, 3.0, 0.1, 0.0)], [], 4))
    assert past.evaluate(*forms).result().train_loss == 3.0
    past.go_on()
    assert past.evaluate(*forms).result().train_loss == 1.0, "computed again"
    assert past.zeroed() == 4
    assert [one.train_loss for one in past.record().evaluations] == [3.0, 1.0], "the next checkpoint records both"


def test_a_journal_that_keeps_nothing_has_an_empty_record():
    journal = Journal(RunWithoutNumbers(make_problem(4)))
    journal.evaluate(np.zeros((1, 4), np.int32), np.zeros((1, 4), np.float32))
    assert journal.record() == Record()
    with pytest.raises(AssertionError, match="a replay needs the names of the rows"):
        journal.replay(Record())


def test_rows_are_read_and_written_bit_for_bit():
    values = np.array([[0.0, -0.0, np.nan, np.inf], [1e-42, -np.inf, 3.0, -1.0]], np.float32)
    values = np.tile(values, (30, 650 // 4 + 1))[:, :650]
    with Lab(make_problem(4), capacity=3) as lab:
        models = [lab.tape.constant(row) for row in values]
        lab.tape.flush()
        numbers = lab.tape.living()
        rows = lab.executor.read(numbers)
        assert rows.tobytes() == values[[numbers.tolist().index(m.rows[0].number) for m in models]].tobytes()
    with Lab(make_problem(4), capacity=3) as lab:
        lab.executor.write(numbers[:40], rows[:40], 60)
        lab.executor.write(numbers[40:], rows[40:], 60)
        assert lab.executor.bank.capacity >= 60
        assert lab.executor.read(numbers).tobytes() == rows.tobytes()
