"""Replicated logs: who leads a slot, what its followers have, and up to where all of it is safe."""
