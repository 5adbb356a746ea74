//! Engine messages: encode, decode, protocol version
