"""A Ray cluster of two nodes on this machine, in a process of its own; told on standard input which node to kill.

The second has two CPUs, and a GPU as far as Ray knows.

python tests/ray_cluster.py    writes the address; then reads lines: `kill`, `end`
"""

import os
import sys
from typing import Any


def started(cluster: Any, **options: Any) -> Any:
    """A further node. Ray gives one up that is not there after 30 seconds, which on a busy machine happens."""
    for attempt in range(4):
        try:
            return cluster.add_node(**{"num_cpus": 1, "object_store_memory": 100 * 1024**2, **options})
        except Exception:
            if attempt == 3:
                raise


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray refuses to count a GPU that this hides
    os.environ["RAY_worker_niceness"] = "0"  # 15 otherwise: beside other work a task would hardly run
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    cluster = Cluster()
    started(cluster, include_dashboard=False)
    second = started(cluster, num_cpus=2, num_gpus=1)
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
            print("killed", flush=True)
        else:
            break
    cluster.shutdown()
