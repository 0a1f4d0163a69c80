"""What runs in the coordinator's process: the registry, groups, buffers' homes, and every
command."""
