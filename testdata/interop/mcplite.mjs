// A server made with mcp-lite, with the tools of servers/gosdk and servers/mcpgo that the tests call. Streamable HTTP with sessions is at /mcp,
// and without at /stateless.
//
//	PORT=N node mcplite.mjs

import { serve } from '@hono/node-server';
import { InMemoryClientRequestAdapter, InMemorySessionAdapter, McpServer, StreamableHttpTransport } from 'mcp-lite';

const text = (text) => ({ content: [{ type: 'text', text }] });
const make = () => {
  const server = new McpServer({ name: 'mcplite', version: '1.0.0' });
  server.tool('count', {
    inputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
    handler: async ({ n }, ctx) => {
      for (let i = 1; i <= n; i++) await ctx.progress?.({ progress: i, total: n });
      return text(`counted to ${n}`);
    },
  });
  server.tool('greet', {
    inputSchema: { type: 'object', properties: {} },
    handler: async (_, ctx) => {
      const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
      const answer = await ctx.elicit({ message: 'Who are you?', schema });
      return text(`${answer.action} map[name:${answer.content?.name}]`);
    },
  });
  server.resource('test://welcome', { name: 'welcome', mimeType: 'text/plain' }, async (uri) => ({
    contents: [{ uri: uri.href ?? String(uri), mimeType: 'text/plain', text: 'Welcome!' }],
  }));
  return server;
};
const withSessions = new StreamableHttpTransport({
  sessionAdapter: new InMemorySessionAdapter({ maxEventBufferSize: 1024 }),
  clientRequestAdapter: new InMemoryClientRequestAdapter({ defaultTimeoutMs: 30000 }),
}).bind(make());
const withoutSessions = new StreamableHttpTransport().bind(make());
serve({
  hostname: '127.0.0.1',
  port: Number(process.env.PORT),
  fetch: (request) => (new URL(request.url).pathname === '/mcp' ? withSessions : withoutSessions)(request),
});
