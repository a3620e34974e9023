"""The command line: parse, call, render. What a command does is in the packages it calls.

Modules are light to import: everything heavy is imported where a command needs it, so that `sbx --help` is quick.
"""
