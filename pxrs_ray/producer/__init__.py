"""A producer without input or output: from messages to frames, and from frames to
acknowledgements."""
