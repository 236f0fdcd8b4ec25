// A session of the TypeScript SDK's client with mcpwire. Prints what came of it, as one line of JSON.
//
//	node ts1.mjs http|sse URL [NOTE]    a whole session, with a note of that name
//	node ts1.mjs http|sse URL N DELAYMS one call with progress

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  ElicitRequestSchema, ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [mode, url, n, delayMs] = process.argv.slice(2);
const note = n ?? 'today';
const seen = { errors: [], listChanged: 0, updated: [] };

// connect begins a session. What passes below the SDK is kept: exchanges of HTTP, and messages in the order in which they came.
async function connect() {
  const log = { exchanges: [], messages: [] };
  const watched = async (input, init) => {
    const response = await fetch(input, init);
    const resumes = new Headers(init?.headers).has('last-event-id');
    log.exchanges.push({ method: init?.method ?? 'GET', url: String(input), status: response.status, resumes });
    return response;
  };
  const transport = new (mode === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(url), { fetch: watched });
  const client = new Client({ name: 'interop', version: '1' }, { capabilities: { elicitation: {} } });
  client.onerror = error => seen.closing || seen.errors.push(String(error)); // to close it aborts its stream, and reports that
  client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { name: 'Ada' } }));
  await client.connect(transport);
  const deliver = transport.onmessage;
  transport.onmessage = (message, extra) => {
    log.messages.push(message);
    deliver(message, extra);
  };
  await until(() => log.exchanges.some(e => e.method === 'GET')); // the stream is opened beside connect; before it nothing is heard
  return { client, transport, log };
}

async function until(reached) {
  for (const start = Date.now(); !(await reached()); await new Promise(done => setTimeout(done, 5))) {
    if (Date.now() - start > 15_000) throw new Error(`not reached: ${reached}`);
  }
}

const text = async (client, name, args, options) => {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  return result.isError ? 'an error' : result.content[0].text;
};

const { client, transport, log } = await connect();
if (delayMs) {
  const steps = [];
  const counted = await text(client, 'count', { n: Number(n), delayMs: Number(delayMs) }, { onprogress: p => steps.push(p.progress) });
  const gets = log.exchanges.filter(e => e.method === 'GET');
  const session = transport.sessionId !== undefined;
  const version = transport._protocolVersion;
  console.log(JSON.stringify({ version, counted, steps, session, listens: gets[0].status, resumed: gets.some(e => e.resumes) }));
  process.exit();
}

const other = await connect();
client.setNotificationHandler(ResourceListChangedNotificationSchema, () => { seen.listChanged++; });
client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => { seen.updated.push(n.params.uri); });

seen.server = client.getServerVersion().name;
seen.version = transport._protocolVersion;
seen.tools = (await client.listTools()).tools.map(tool => tool.name);
seen.weather = await text(client, 'get-weather', { city: 'Oslo' });
seen.missing = await text(client, 'get-weather', {}).catch(error => error.code);
seen.echo = await text(client, 'echo', { text: 'añ€😀', repeat: 100_000 }) === 'añ€😀'.repeat(100_000);

// Over HTTP+SSE the SDK handles a notification after the response that came in the same read, and takes its token for an unknown one by
// then: there only the messages are judged.
const steps = [];
log.messages.length = 0;
seen.counted = await text(client, 'count', { n: 50 }, { onprogress: p => steps.push(p.progress) });
const upwards = numbers => numbers.length === 50 && numbers.every((n, i) => n === i + 1);
const own = log.messages.filter(m => m.method !== 'notifications/resources/list_changed'); // which others may bring about
seen.inOrder = upwards(own.slice(0, -1).map(m => m.method === 'notifications/progress' && m.params.progress))
  && 'result' in own.at(-1) && (mode === 'sse' || upwards(steps));
if (mode === 'sse') seen.errors = seen.errors.filter(error => !error.includes('progress notification for an unknown token'));

seen.asked = await text(client, 'ask', {});

await client.subscribeResource({ uri: `note:///${note}` });
await text(other.client, 'set-note', { name: note, text: 'rain' });
await until(() => seen.listChanged > 0 && seen.updated.length > 0);

seen.closing = true;
const session = transport.sessionId;
const posted = log.exchanges.findLast(e => e.method === 'POST').url;
await transport.terminateSession?.();
seen.deleted = log.exchanges.find(e => e.method === 'DELETE')?.status ?? null;
await client.close();
await until(async () => { // over HTTP+SSE the end of the stream has to arrive first
  const response = await fetch(posted, {
    method: 'POST',
    headers: {
      'content-type': 'application/json', accept: 'application/json, text/event-stream', ...session && { 'mcp-session-id': session },
    },
    body: '{"jsonrpc":"2.0","id":"after","method":"ping"}',
  });
  await response.body?.cancel();
  seen.after = response.status;
  return seen.after === 404 || mode === 'http';
});
await other.transport.terminateSession?.();
await other.client.close();
console.log(JSON.stringify(seen));
process.exit();
