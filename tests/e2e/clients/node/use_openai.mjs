// openai (Node): chats and responses.

import assert from "node:assert/strict";

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

import { ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, refused, run, SCRIPTED, SYSTEM, WEATHER } from "./steps.mjs";

const options = { apiKey: KEY, maxRetries: 0, timeout: 120_000 };
const real = new OpenAI({ ...options, baseURL: `${REAL}/v1` });
const scripted = new OpenAI({ ...options, baseURL: `${SCRIPTED}/v1` });
const messages = [
  { role: "system", content: SYSTEM },
  { role: "user", content: QUESTION },
];
const asked = { model: "smollm2", messages, temperature: 0, max_tokens: 60 };
const responded = { model: "smollm2", instructions: SYSTEM, input: QUESTION, temperature: 0, max_output_tokens: 60 };
const Capital = z.object({ city: z.enum(["Paris", "Berlin"]), country: z.enum(["France", "Germany"]) });
const PARIS = { city: "Paris", country: "France" };
const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};

const weather = (given) => {
  assert.deepEqual(JSON.parse(given), { city: CITY, days: 3 });
  return "22 degrees";
};

await run("openai", {
  async models() {
    const names = [];
    for await (const model of real.models.list()) names.push(model.id);
    assert.deepEqual(names, ["smollm2"]);
    assert.equal((await real.models.retrieve("smollm2")).id, "smollm2");
  },

  async chat() {
    const answer = await real.chat.completions.create(asked);
    assert.equal(answer.choices[0].message.content, ANSWER);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    const response = await real.responses.create(responded);
    assert.equal(response.output_text, ANSWER);
    assert.equal((await real.responses.retrieve(response.id)).output_text, ANSWER);
  },

  async stream() {
    const pieces = [];
    let usage;
    const stream = await real.chat.completions.create({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      pieces.push(chunk.choices[0]?.delta?.content ?? "");
      usage = chunk.usage ?? usage;
    }
    assert.equal(pieces.join(""), ANSWER);
    assert.ok(usage.completion_tokens > 3);
    const final = await real.responses.stream(responded).finalResponse();
    assert.equal(final.output_text, ANSWER);
  },

  async tools() {
    const runner = scripted.chat.completions.runTools({
      model: "mock",
      stream: true,
      messages: [{ role: "user", content: WEATHER }],
      tools: [{ type: "function", function: { name: "weather", parameters, function: weather } }],
    });
    assert.equal((await runner.finalContent()).trim(), FORECAST);
    const tools = [{ type: "function", name: "weather", parameters, strict: true }];
    const first = await scripted.responses.create({ model: "mock", input: WEATHER, tools });
    const call = first.output.find((item) => item.type === "function_call");
    const result = { type: "function_call_output", call_id: call.call_id, output: weather(call.arguments) };
    const second = await scripted.responses.create({
      model: "mock",
      previous_response_id: first.id,
      input: [result],
      tools,
    });
    assert.equal(second.output_text.trim(), FORECAST);
  },

  async structured() {
    const answer = await real.chat.completions.parse({ ...asked, response_format: zodResponseFormat(Capital, "c") });
    assert.deepEqual(answer.choices[0].message.parsed, PARIS);
    const response = await real.responses.parse({ ...responded, text: { format: zodTextFormat(Capital, "c") } });
    assert.deepEqual(response.output_parsed, PARIS);
  },

  async errors() {
    const create = (changed, client = real) => () => client.chat.completions.create({ ...asked, ...changed });
    const is = (kind, code) => (error) => error instanceof kind && error.code === code && error.requestID;
    await refused(create({ model: "nope" }), is(OpenAI.NotFoundError, "model_not_found"));
    await refused(create({ temperature: -1 }), is(OpenAI.BadRequestError, "invalid_value"));
    const long = [{ role: "user", content: LONG }];
    await refused(create({ messages: long }), is(OpenAI.BadRequestError, "context_length_exceeded"));
    const stranger = real.withOptions({ apiKey: "wrong" });
    await refused(create({}, stranger), is(OpenAI.AuthenticationError, "invalid_api_key"));
  },
});
