"""Writes Python's data as files of formats that the server reads. Each kind has a module, imported when it is needed.
"""
