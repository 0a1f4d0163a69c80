"""Ray and the machine below it, wrapped once: joining, the GCS, nodes, processes, calls of an
actor.

Any process may use this room. It uses no other room of `actors`.
"""
