"""Where a topology lives: homes of logs and of the registry, moves between disks, and removals."""
