// The same agent, its text streamed.
import { streamText } from 'ai';
import { input, question } from './agent.mjs';

const answer = streamText({
  ...question,
  prompt: await input(),
  onError({ error }) {
    throw error;
  },
});
for await (const piece of answer.textStream) process.stdout.write(piece);
