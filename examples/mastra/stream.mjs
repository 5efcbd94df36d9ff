// The same agent, its text streamed.
import { agent, input } from './agent.mjs';

const answer = await agent.stream(await input());
for await (const piece of answer.textStream) process.stdout.write(piece);
