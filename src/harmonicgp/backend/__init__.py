"""Compiled code, linear algebra, threads and memory: what the mathematics runs on."""
