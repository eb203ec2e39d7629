"""Data of Python as files of formats that the server reads: a module a kind, each imported when it is needed."""
