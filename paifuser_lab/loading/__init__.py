"""Workloads by name: models of the zoo, files and folders of other tools, functions of the user's.

load        loads a workload by its name
model_files files of other tools: which names mean one, where it is, whether it has changed
python_names  names of the user's own code, in modules and in files
trust       which functions named in a file are called without being trusted
"""
