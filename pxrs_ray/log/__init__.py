"""Partition logs: ordered, durable, bounded; frames of columnar batches in segment files."""

from __future__ import annotations
