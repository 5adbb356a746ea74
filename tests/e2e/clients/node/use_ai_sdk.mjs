// Vercel's AI SDK: its OpenAI-compatible provider, and its OpenAI provider by chats and by responses.

import assert from "node:assert/strict";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

import { ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, refused, run, SCRIPTED, SYSTEM, WEATHER } from "./steps.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

/** The ways to a model: each is a name and a model. */
function models(url, name, apiKey = KEY) {
  const compatible = createOpenAICompatible({
    name: "octavo",
    baseURL: `${url}/v1`,
    apiKey,
    supportsStructuredOutputs: true,
    includeUsage: true,
  });
  const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey });
  return [compatible(name), openai.chat(name), openai.responses(name)];
}

const asked = { instructions: SYSTEM, prompt: QUESTION, temperature: 0, maxOutputTokens: 60, maxRetries: 0 };

await run("ai", {
  async chat() {
    for (const model of models(REAL, "smollm2")) {
      const result = await generateText({ ...asked, model });
      assert.equal(result.text, ANSWER);
      assert.ok(result.usage.outputTokens > 3);
      assert.equal(result.finishReason, "stop");
    }
  },

  async stream() {
    for (const model of models(REAL, "smollm2")) {
      const pieces = [];
      const result = streamText({ ...asked, model });
      for await (const piece of result.textStream) pieces.push(piece);
      assert.equal(pieces.join(""), ANSWER);
      assert.ok(pieces.length > 3);
      assert.ok((await result.usage).outputTokens > 3);
    }
  },

  async tools() {
    for (const model of models(SCRIPTED, "mock")) {
      const seen = [];
      const weather = tool({
        description: "Tell the weather of a city.",
        inputSchema: z.object({ city: z.string(), days: z.number().int() }),
        execute: async (given) => {
          seen.push(given);
          return "22 degrees";
        },
      });
      const result = await generateText({ model, prompt: WEATHER, tools: { weather }, stopWhen: isStepCount(3), maxRetries: 0 });
      assert.equal(result.text.trim(), FORECAST);
      assert.deepEqual(seen, [{ city: CITY, days: 3 }]);
    }
  },

  async structured() {
    const schema = z.object({ city: z.enum(["Paris", "Berlin"]), country: z.enum(["France", "Germany"]) });
    for (const model of models(REAL, "smollm2")) {
      const { output } = await generateText({ ...asked, model, output: Output.object({ schema }) });
      assert.deepEqual(output, { city: "Paris", country: "France" });
    }
  },

  async errors() {
    const is = (status) => (error) => APICallError.isInstance(error) && error.statusCode === status;
    for (const [status, changed, name, key] of [
      [404, {}, "nope", KEY],
      [400, { temperature: -1 }, "smollm2", KEY],
      [400, { prompt: LONG }, "smollm2", KEY],
      [401, {}, "smollm2", "wrong"],
    ]) {
      for (const model of models(REAL, name, key)) {
        await refused(() => generateText({ ...asked, ...changed, model }), is(status));
      }
    }
  },
});
