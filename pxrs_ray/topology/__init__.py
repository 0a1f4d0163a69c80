"""The placement of a topology: homes of logs and of the registry, moves between disks, and
removals."""
