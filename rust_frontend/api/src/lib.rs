//! OpenAI request, response, chunk and error types
