// One answer in a given form, by chat completions.
import { openai } from '@ai-sdk/openai';
import { generateText, Output } from 'ai';
import { z } from 'zod';
import { input } from './agent.mjs';

const { output } = await generateText({
  model: openai.chat('gpt-4o-mini'),
  output: Output.object({ schema: z.object({ city: z.string(), degrees: z.number() }) }),
  prompt: await input(),
});
console.log(`${output.degrees} degrees in ${output.city}`);
