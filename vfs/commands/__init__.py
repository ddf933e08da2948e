"""The verbs of the `vfs` command, one module each, which holds it as `command`.

`base` is what they share, `output` how they print. What a verb needs of the floor it imports when
it runs, so that the help is there at once.
"""
