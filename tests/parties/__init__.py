"""Programs that tests start as processes of their own, written on the public library."""
