//! Request to prompt tokens and sampling; token steps to text
