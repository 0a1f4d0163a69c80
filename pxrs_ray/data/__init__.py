"""What travels: messages in columns, frames as they lie on disk, and what buffers are asked and
say."""
