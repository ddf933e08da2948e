"""Starts and watches the runtimes that work in a workspace. Not built yet."""
