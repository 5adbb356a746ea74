//! Engine client: request registry, credits, replay
