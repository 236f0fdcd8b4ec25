// A session of the AI SDK's client with mcpwire, with the client's defaults. Prints what came of it, as one line of JSON.
//
//	node aisdk.mjs http|sse URL
//	node aisdk.mjs stdio COMMAND [ARG…]

import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport as StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';

const [mode, target, ...args] = process.argv.slice(2);
const client = await createMCPClient({
  transport: mode === 'stdio' ? new StdioMCPTransport({ command: target, args }) : { type: mode, url: target },
});
const seen = { server: client.serverInfo.name, version: client.initializeResult.protocolVersion };
const tools = await client.tools(); // as generateText takes them
seen.tools = Object.keys(tools);
seen.weather = (await tools['get-weather'].execute({ city: 'Oslo' }, { toolCallId: '1', messages: [] })).content[0].text;
seen.note = (await client.readResource({ uri: 'note:///welcome' })).contents[0].text;
await client.close();
console.log(JSON.stringify(seen));
