// The same agent, its messages streamed.
import { agent, question } from './agent.mjs';

let answer = '';
for await (const [chunk, metadata] of await agent.stream(await question(), { streamMode: 'messages' })) {
  answer = metadata.langgraph_node === 'tools' ? '' : answer + chunk.text;
}
console.log(answer);
