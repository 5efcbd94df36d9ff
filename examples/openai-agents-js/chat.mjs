// The same agents by chat completions.
import { run, setOpenAIAPI } from '@openai/agents';
import { input, triage } from './agent.mjs';

setOpenAIAPI('chat_completions');
const result = await run(triage, await input());
console.log(`${result.lastAgent.name}: ${result.finalOutput}`);
