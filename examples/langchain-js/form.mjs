// One answer in a given form.
import { text } from 'node:stream/consumers';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

const model = new ChatOpenAI({ model: 'gpt-4o-mini' }).withStructuredOutput(
  z.object({ city: z.string(), degrees: z.number() }),
);
const { city, degrees } = await model.invoke(JSON.parse(await text(process.stdin)).input);
console.log(`${degrees} degrees in ${city}`);
