"""Tests of the training programs, in real processes."""
