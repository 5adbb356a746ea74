//! Frames between processes: ZeroMQ, in memory; sessions that notice loss
