"""What happens to loops, threads and processes that fail, hang or are frozen."""
