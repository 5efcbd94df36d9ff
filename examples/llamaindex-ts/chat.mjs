// One answer.
import { text } from 'node:stream/consumers';
import { openai } from '@llamaindex/openai';

const { input } = JSON.parse(await text(process.stdin));
const { message } = await openai({ model: 'gpt-4o-mini' }).chat({ messages: [{ role: 'user', content: input }] });
console.log(message.content);
