"""What runs in a buffer's process, and the clients through which every other process reaches it."""
