// A triage agent hands a question over to an agent with a tool.
import { text } from 'node:stream/consumers';
import { Agent, run, tool } from '@openai/agents';
import { z } from 'zod';

const temperature = tool({
  name: 'temperature',
  description: 'The temperature in a city.',
  parameters: z.object({ city: z.string() }),
  execute: async () => '21',
});
const weather = new Agent({ name: 'weather', instructions: 'Talk about the weather.', tools: [temperature] });
export const triage = Agent.create({ name: 'triage', instructions: 'Hand over.', handoffs: [weather] });

export async function input() {
  return JSON.parse(await text(process.stdin)).input;
}

if (import.meta.filename === process.argv[1]) {
  const result = await run(triage, await input());
  console.log(`${result.lastAgent.name}: ${result.finalOutput}`);
}
