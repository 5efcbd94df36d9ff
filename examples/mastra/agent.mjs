// A Mastra agent with a tool.
import { text } from 'node:stream/consumers';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

const temperature = createTool({
  id: 'temperature',
  description: 'The temperature in a city.',
  inputSchema: z.object({ city: z.string() }),
  execute: async () => '21',
});
export const agent = new Agent({
  id: 'weather',
  name: 'weather',
  instructions: 'Talk about the weather.',
  model: 'openai/gpt-4o-mini',
  tools: { temperature },
});

export async function input() {
  return JSON.parse(await text(process.stdin)).input;
}

if (import.meta.filename === process.argv[1]) {
  const answer = await agent.generate(await input());
  console.log(answer.text);
}
