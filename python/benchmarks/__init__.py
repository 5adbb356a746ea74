"""`octavo bench`: load for any OpenAI-compatible server, and what it measured.

record      what one request did, or how it failed: the only thing that statistics see
stats       records -> numbers; pure
reader      bytes -> one HTTP/1.1 response; sse: bytes -> events
connection  sockets, kept alive between requests
openai      samples -> request bodies; events -> a record
tokenizer   texts of a given number of tokens, counts of tokens
datasets/   options -> samples
arrivals    when each sample is sent
runner      samples and times -> records
report      records -> table and JSON; plot, timeline: -> HTML or SVG
serve, sweep, startup   the commands; options: their flags
"""
