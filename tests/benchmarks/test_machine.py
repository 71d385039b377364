import platform
import time

import machine
import numpy as np
import pytest
import torch

import coverwell

CPU = torch.device("cpu")
WHERE = {"date": "2026-01-02", "cpu": "a processor", "cores": 2, "seed": 7, "load before": 0.5, "load after": 1.25}
WHERE |= {"versions": {"coverwell": "1.0", "python": "3.11"}}


def test_the_environment_names_the_versions_and_the_facts_of_the_run():
    found = machine.environment(packages={"pillow": "12.0"}, seed=3, weights="random")
    ours = {"coverwell": coverwell.__version__, "torch": torch.__version__, "numpy": np.__version__}
    assert found["versions"] == {**ours, "pillow": "12.0", "python": platform.python_version()}
    assert (found["seed"], found["weights"], found["gpu"]) == (3, "random", None)
    after = machine.at_the_end(found)
    assert after.pop("load after") >= 0
    assert after == found


@pytest.mark.parametrize(("before", "after", "busy"), [(1.5, 2.5, False), (1.51, 1.0, True), (0.0, 2.51, True)])
def test_others_were_at_work_above_a_load_that_a_run_on_all_cores_does_not_make_alone(before, after, busy):
    where = {**WHERE, "load before": before, "load after": after}
    assert machine.busy(where) is busy
    assert (", others were at work;" in machine.place(where)) is busy


def test_sleep_costs_no_cpu_seconds_on_one_thread_but_seconds_of_the_clock_on_two():
    with machine.threads(1):
        assert machine.seconds_of(lambda: time.sleep(0.2), CPU) < 0.1
    with machine.threads(2):
        assert machine.seconds_of(lambda: time.sleep(0.2), CPU) >= 0.2


def test_ways_take_turns_and_the_fastest_turn_counts_per_thing_done():
    order = []

    def way(name, seconds):
        def work():
            order.append(name)
            time.sleep(seconds[order.count(name) - 1])

        return work

    with machine.threads(2):  # by the clock
        found = machine.in_turns({"a": way("a", [0.2, 0.1]), "b": way("b", [0.0, 0.2])}, CPU, 2, per_turn=10)
    assert order == ["a", "b", "a", "b"]
    assert [times["seconds"] == min(times["all"]) for times in found.values()] == [True, True]
    assert found["a"]["all"][0] >= 0.02
    assert found["a"]["all"][1] >= 0.01
    assert found["b"]["all"][1] >= 0.02 > found["b"]["seconds"]
