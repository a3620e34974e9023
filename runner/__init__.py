"""A sandboxed, container-first agent runner."""

__version__ = "0.1.0"
