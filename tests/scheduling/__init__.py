"""Tests of the scheduler's Python face and of the core behind it."""
