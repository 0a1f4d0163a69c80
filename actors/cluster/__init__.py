"""Ray and the machine, wrapped once: joining a cluster, the GCS, nodes, processes, calls of an
actor.

Any process may use this room. It uses no other room of `actors`.
"""
