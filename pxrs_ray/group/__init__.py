"""A consumer group decided without input or output: who owns which partition, in which epoch."""
