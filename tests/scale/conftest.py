"""A small simulated Ray cluster, started once for all tests of this folder."""

import os

import pytest

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
# A node that is killed is noticed in two seconds, not fifteen.
WATCHFUL = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
# Ray's workers give way to all else on a machine; beside other tests they would hardly come to work.
BOLD = {"worker_niceness": 0}


@pytest.fixture(scope="session")
def cluster():
    """A cluster of one node with one CPU; tests add others and take them away again."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'coverwell[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # else Ray looks for a server of its own to report to
    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"  # how often it looks whether a fit is done
    os.environ["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # a process less
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "_system_config": {**WATCHFUL, **BOLD}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="session")
def connected(cluster):
    """The cluster with this process connected to it: workers that have started once serve all tests."""
    import ray

    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()


@pytest.fixture
def added_node(connected):
    """Adds a node with one CPU; it is gone after the test."""
    nodes = []

    def add(**changes):
        nodes.append(connected.add_node(**NODE, **changes))
        return nodes[-1]

    yield add
    for node in nodes:
        if node in connected.worker_nodes:
            connected.remove_node(node)
