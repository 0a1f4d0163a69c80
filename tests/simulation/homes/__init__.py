"""Nodes with disks of their own, the buffers on them, and the coordinator that says where each is
at home: `SlotTable`, `HomeRounds`, `move`, `open_on`, `LogWitness`, `RegistryWitness`, the leases
and the logs that ship, over a network, disks and a registry that fail."""
