"""Tests what can be checked in the documents."""
