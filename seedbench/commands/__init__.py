"""One module a family of commands. A command is a dataclass: its fields are the options, calling it runs it.

Only the standard library and tyro are imported before a command is called, so that help comes at once.
"""
