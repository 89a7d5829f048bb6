"""A Ray cluster of two nodes on this machine, in a process of its own; told on standard input which node to kill.

python tests/ray_cluster.py    writes the address; then reads lines: `kill`, `end`
"""

import os
import sys

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_raylet_start_wait_time_s"] = "300"  # of a slow machine
os.environ["RAY_worker_niceness"] = "0"  # 15 otherwise: beside other work a task would hardly run

from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

if __name__ == "__main__":
    shape = {"num_cpus": 1, "object_store_memory": 100 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={**shape, "include_dashboard": False})
    second = cluster.add_node(**shape)
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
            print("killed", flush=True)
        else:
            break
    cluster.shutdown()
