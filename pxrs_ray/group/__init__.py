"""The decisions of a consumer group, without input or output: who owns which partition, in which
epoch."""
