"""``zkfence demo``: what fencing is for, in three acts, with real processes on real servers.

``_command`` is the command, ``_acts`` the story. ``_stage`` starts the servers, ``_worker`` the worker processes, whose
program is ``_program``; a ``_scene`` lets two of them act and takes down what happens in a ``_timeline``, which a
``_screen`` shows. A ``_verdict`` compares what was acknowledged with what the store really holds.
"""
