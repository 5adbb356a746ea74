"""The oracle: every op in plain torch, on any device. Other implementations are compared with it."""
