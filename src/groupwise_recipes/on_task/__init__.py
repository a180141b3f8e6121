"""On-task: does this screenshot show work on the described task?"""
