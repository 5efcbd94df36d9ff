// The same agents, their text streamed.
import { run } from '@openai/agents';
import { input, triage } from './agent.mjs';

const result = await run(triage, await input(), { stream: true });
let said = '';
for await (const piece of result.toTextStream({ compatibleWithNodeStreams: false })) said += piece;
await result.completed;
console.log(`${result.lastAgent.name}: ${said}`);
