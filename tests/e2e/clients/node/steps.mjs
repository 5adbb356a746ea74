// What the scripts of Node's clients share; as steps.py is for Python's. They run in a copy beside node_modules.

import { readFileSync } from "node:fs";

export const REAL = process.env.CLIENTS_REAL;
export const SCRIPTED = process.env.CLIENTS_SCRIPTED;
export const KEY = process.env.CLIENTS_KEY;
export const SYSTEM = "You are a helpful assistant.";
export const QUESTION = "What is the capital of France?";
export const ANSWER = "The capital of France is Paris.";
export const LONG = "word ".repeat(3000);
export const WEATHER = "What is the weather there?";
export const CITY = "Köln";
export const FORECAST = "It is 22 degrees in Köln.";

/** Runs the steps, prints how each went, and sets the exit code. */
export async function run(name, steps) {
  const path = new URL(`./node_modules/${name}/package.json`, import.meta.url);
  const { version } = JSON.parse(readFileSync(path, "utf8"));
  const client = name === "openai" ? "openai (Node)" : name;
  for (const [step, work] of Object.entries(steps)) {
    let went = "ok";
    try {
      await work();
    } catch (error) {
      console.error(error);
      went = `${error.name}: ${error.message}`;
      process.exitCode = 1;
    }
    console.log(JSON.stringify({ client, version, step, went }));
  }
}

/** Waits for a refusal and holds it against what is expected. */
export async function refused(work, check) {
  let taken;
  try {
    taken = await work();
  } catch (error) {
    if (!check(error)) throw error;
    return;
  }
  throw new Error(`taken: ${JSON.stringify(taken)}`);
}
