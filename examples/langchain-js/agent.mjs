// A LangGraph agent with a tool.
import { text } from 'node:stream/consumers';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent, tool } from 'langchain';
import { z } from 'zod';

const temperature = tool(async () => '21', {
  name: 'temperature',
  description: 'The temperature in a city.',
  schema: z.object({ city: z.string() }),
});
export const agent = createAgent({
  model: new ChatOpenAI({ model: 'gpt-4o-mini' }),
  tools: [temperature],
  systemPrompt: 'Talk about the weather.',
});

export async function question() {
  const { input } = JSON.parse(await text(process.stdin));
  return { messages: [{ role: 'user', content: input }] };
}

if (import.meta.filename === process.argv[1]) {
  const { messages } = await agent.invoke(await question());
  console.log(messages.at(-1).text);
}
