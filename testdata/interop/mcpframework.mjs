// A server made with mcp-framework, with the tool and the resource of servers/gosdk that the tests use. mcplite.mjs is the like.
//
//	node mcpframework.mjs stdio
//	PORT=N node mcpframework.mjs http-stream|sse

import { MCPResource, MCPServer, MCPTool } from 'mcp-framework';
import { z } from './node_modules/mcp-framework/node_modules/zod/index.js'; // it knows the schemas of its own copy alone

const server = new MCPServer({
  name: 'mcpframework',
  version: '1.0.0',
  basePath: '/nonexistent', // where it looks for more tools
  transport: { type: process.argv[2], options: { port: Number(process.env.PORT) } },
});
server.addTool(class extends MCPTool {
  name = 'count';
  useStringify = false;
  description = 'Counts to n.';
  schema = z.object({ n: z.number().int().describe('steps') });
  async execute({ n }) {
    for (let i = 1; i <= n; i++) await this.reportProgress(i, n);
    return `counted to ${n}`;
  }
});
server.addTool(class extends MCPTool {
  name = 'greet';
  useStringify = false;
  description = 'Asks for a name, and greets.';
  schema = {};
  async execute() {
    const answer = await this.elicit('Who are you?', { name: { type: 'string' } });
    return `${answer.action} map[name:${answer.content?.name}]`;
  }
});
server.addResource(class extends MCPResource {
  uri = 'test://welcome';
  name = 'welcome';
  mimeType = 'text/plain';
  async read() {
    return [{ uri: this.uri, mimeType: this.mimeType, text: 'Welcome!' }];
  }
});
await server.start();
