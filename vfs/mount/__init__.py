"""The mount: one user's namespace, or every user's, shown at a mountpoint to ordinary tools."""
