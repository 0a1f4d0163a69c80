"""What a driver, a job or a notebook holds: `deploy`, `Topology`, `Group`, `Producer` and tools."""
