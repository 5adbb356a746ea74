"""Operations on a running engine: pause, sleep, other weights. What each may do when is decided here."""
