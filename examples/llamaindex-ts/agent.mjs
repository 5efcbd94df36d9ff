// A LlamaIndex agent with a tool.
import { text } from 'node:stream/consumers';
import { openai } from '@llamaindex/openai';
import { agent } from '@llamaindex/workflow';
import { tool } from 'llamaindex';
import { z } from 'zod';

const temperature = tool({
  name: 'temperature',
  description: 'The temperature in a city.',
  parameters: z.object({ city: z.string() }),
  execute: async () => '21',
});
const weather = agent({
  llm: openai({ model: 'gpt-4o-mini' }),
  tools: [temperature],
  systemPrompt: 'Talk about the weather.',
});

const { input } = JSON.parse(await text(process.stdin));
const answer = await weather.run(input);
console.log(answer.data.result);
