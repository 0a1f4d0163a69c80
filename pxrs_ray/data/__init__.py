"""What is sent: messages in columns, frames as they are on disk, and the requests and replies of
buffers."""
