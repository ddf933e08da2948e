"""The floor of gemspace, and the doors that need nothing else.

Names, path rules, and descriptors that never follow a link; workspaces and skills on top of them;
the `vfs` command and the mount. Importing this package does nothing: take what is needed from its
modules.
"""
