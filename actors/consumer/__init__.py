"""What runs in a consumer's process: a member of a group, its fetches, and the workers that call
the user's handler."""
