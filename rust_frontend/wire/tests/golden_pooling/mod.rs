//! Requests, and vectors instead of tokens or their ids, as in tests/wire/make_golden.py.

use std::sync::Arc;

use octavo_wire::frontend::{AddRequest, Delta, Embeds, Pooled, Pooling, SamplingParams};
use octavo_wire::{Blob, Floats, Tokens};

/// A request with nothing but its defaults.
pub(crate) fn request(id: u64, name: &str) -> AddRequest {
    AddRequest {
        id,
        attempt: 1,
        name: name.into(),
        prompt: Tokens::default(),
        emitted: Tokens::default(),
        sampling: SamplingParams::new(0, 16),
        arrival_us: 0,
        priority: 0,
        grammar: None,
        domain: None,
        pooling: None,
        embeds: None,
    }
}

/// A request that pools.
pub(crate) fn pooling(request: AddRequest) -> AddRequest {
    AddRequest {
        prompt: Tokens(vec![1]),
        sampling: SamplingParams::new(3, 4),
        arrival_us: 5,
        pooling: Some(Pooling {
            task: "token_embed".into(),
            activate: Some(false),
            dimensions: 256,
            second: 7,
        }),
        ..request
    }
}

/// A request whose prompt is vectors.
pub(crate) fn embeds(request: AddRequest) -> AddRequest {
    AddRequest {
        prompt: Tokens(vec![0, 0]),
        sampling: SamplingParams::new(3, 4),
        arrival_us: 5,
        embeds: Some(Arc::new(Embeds {
            width: 2,
            dtype: "bfloat16".into(),
            values: Blob(vec![250, 251, 252, 253, 254, 255, 0x00, 0x80]),
        })),
        ..request
    }
}

/// Its delta.
pub(crate) fn pooled(delta: Delta) -> Delta {
    Delta {
        pooled: Some(Pooled {
            width: 2,
            values: Floats(vec![0.5, -1.5, 0.0, 4.25]),
        }),
        ..delta
    }
}
