"""Remembers: the files of this machine, their folders, locks and stores."""
