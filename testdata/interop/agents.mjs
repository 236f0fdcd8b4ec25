// An agent of OpenAI's SDK that uses the tools of mcpwire. Its model is a script: it calls a tool well, calls another with an argument out
// of range, and ends. Prints what the model was given, as one line of JSON.
//
//	node agents.mjs http|sse URL
//	node agents.mjs stdio COMMAND [ARG…]

import { Agent, MCPServerSSE, MCPServerStdio, MCPServerStreamableHttp, run, setTracingDisabled, Usage } from '@openai/agents';

setTracingDisabled(true); // or else it reports to OpenAI

const [mode, target, ...args] = process.argv.slice(2);
const server = mode === 'stdio' ? new MCPServerStdio({ command: target, args })
  : new (mode === 'sse' ? MCPServerSSE : MCPServerStreamableHttp)({ url: target });
await server.connect();

const call = (name, input) => ({ type: 'function_call', callId: name, name, status: 'completed', arguments: JSON.stringify(input) });
const script = [
  [call('get_weather', { city: 'Oslo' })], // the SDK has given the tool this name
  [call('count', { n: -1 })],
  [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'That is all.' }] }],
];
const seen = {};
const model = {
  async getResponse({ input, tools }) {
    seen.tools = tools.map(tool => tool.name);
    seen.results = input.filter(item => item.type === 'function_call_result').map(item => [item.output].flat().map(part => part.text));
    return { usage: new Usage(), output: script.shift() };
  },
};
seen.output = (await run(new Agent({ name: 'interop', model, mcpServers: [server] }), 'Begin.')).finalOutput;

// What the agent is given of a result is not all: whether it is an error, the server's class knows.
const result = await server.callToolResult('count', { n: -1 }).catch(error => ({ thrown: String(error) }));
seen.result = { isError: result.isError, thrown: result.thrown };
await server.close();
console.log(JSON.stringify(seen));
