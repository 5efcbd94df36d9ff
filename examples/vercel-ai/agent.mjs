// An agent with a calculator.
import { text } from 'node:stream/consumers';
import { openai } from '@ai-sdk/openai';
import { generateText, isStepCount, tool } from 'ai';
import { z } from 'zod';

export const question = {
  model: openai('gpt-4o-mini'),
  tools: {
    calculator: tool({
      description: 'Compute an arithmetic expression.',
      inputSchema: z.object({ expression: z.string() }),
      execute: async ({ expression }) =>
        /^[0-9+*()-]{1,40}$/.test(expression) ? compute(expression) : 'error',
    }),
  },
  stopWhen: isStepCount(4),
};

function compute(expression) {
  try {
    return String(new Function(`return ${expression}`)());
  } catch {
    return 'error';
  }
}

export async function input() {
  return JSON.parse(await text(process.stdin)).input;
}

if (import.meta.filename === process.argv[1]) {
  const answer = await generateText({ ...question, prompt: await input() });
  console.log(answer.text);
}
