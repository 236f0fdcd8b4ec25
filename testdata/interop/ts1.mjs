// A session of the TypeScript SDK's client with mcpwire. Prints what came of it, as one line of JSON.
//
//	node ts1.mjs http|sse|stdio TARGET [NOTE ['' ARG…]]  a whole session, with a note of that name
//	node ts1.mjs http|sse|stdio TARGET N DELAYMS [ARG…] one call with progress
//
// TARGET is a URL or, for stdio, a command, which gets the arguments.

import childProcess from 'node:child_process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  ElicitRequestSchema, ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [mode, target, n, delayMs, ...args] = process.argv.slice(2);
const note = n ?? 'today';
const seen = { errors: [], listChanged: 0, updated: [] };

const servers = []; // the processes that the SDK starts
const { spawn } = childProcess;
childProcess.spawn = (...how) => {
  servers.push(spawn(...how));
  return servers.at(-1);
};

// connect begins a session. What passes below the SDK is kept: exchanges of HTTP, and messages in the order in which they came.
async function connect() {
  const log = { exchanges: [], messages: [] };
  const watched = async (input, init) => {
    const response = await fetch(input, init);
    const resumes = new Headers(init?.headers).has('last-event-id');
    log.exchanges.push({ method: init?.method ?? 'GET', url: String(input), status: response.status, resumes });
    return response;
  };
  const transport = mode === 'stdio' ? new StdioClientTransport({ command: target, args })
    : new (mode === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport)(new URL(target), { fetch: watched });
  transport.onmessage = message => log.messages.push(message);
  const client = new Client({ name: 'interop', version: '1' }, { capabilities: { elicitation: {} } });
  client.onerror = error => seen.closing || seen.errors.push(String(error)); // to close it aborts its stream, and reports that
  client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { name: 'Ada' } }));
  await client.connect(transport);
  const version = log.messages.find(m => m.result?.protocolVersion).result.protocolVersion;
  await until(() => mode === 'stdio' || log.exchanges.some(e => e.method === 'GET')); // opened beside connect; before it nothing is heard
  return { client, transport, log, version };
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
const failure = promise => promise.then(() => 'no error', error => [error.code, error.data]);

const { client, transport, log, version } = await connect();
if (delayMs) {
  const steps = [];
  const counted = await text(client, 'count', { n: Number(n), delayMs: Number(delayMs) }, { onprogress: p => steps.push(p.progress) });
  const gets = log.exchanges.filter(e => e.method === 'GET');
  const session = transport.sessionId !== undefined;
  console.log(JSON.stringify({ version, counted, steps, session, listens: gets[0]?.status, resumed: gets.some(e => e.resumes) }));
  process.exit();
}

const other = mode === 'stdio' ? { client } : await connect(); // over stdio there is nobody else
client.setNotificationHandler(ResourceListChangedNotificationSchema, () => { seen.listChanged++; });
client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => { seen.updated.push(n.params.uri); });

seen.server = client.getServerVersion().name;
seen.version = version;
seen.tools = (await client.listTools()).tools.map(tool => tool.name);
seen.weather = await text(client, 'get-weather', { city: 'Oslo' });
seen.missing = await failure(text(client, 'get-weather', {}));
seen.echo = await text(client, 'echo', { text: 'añ€😀', repeat: 100_000 }) === 'añ€😀'.repeat(100_000);
seen.note = (await client.readResource({ uri: 'note:///welcome' })).contents[0].text;
seen.prompt = (await client.getPrompt({ name: 'summarize-note', arguments: { name: 'welcome' } })).messages.length;

// Over HTTP+SSE and stdio the SDK handles a notification after the response that came in the same read, and takes its token for an unknown
// one by then: there only the messages have to be complete.
const steps = [];
log.messages.length = 0;
seen.counted = await text(client, 'count', { n: 50 }, { onprogress: p => steps.push(p.progress) });
const upwards = numbers => numbers.every((n, i) => n === i + 1);
const own = log.messages.filter(m => m.method !== 'notifications/resources/list_changed'); // which others may bring about
seen.inOrder = own.length === 51 && upwards(own.slice(0, -1).map(m => m.method === 'notifications/progress' && m.params.progress))
  && 'result' in own.at(-1) && upwards(steps) && (mode !== 'http' || steps.length === 50);
const dropUnknown = () => { seen.errors = seen.errors.filter(error => !error.includes('progress notification for an unknown token')); };
if (mode !== 'http') dropUnknown();

seen.asked = await text(client, 'ask', {});

// A call that is cancelled at its first step. To the end it would take 100 s, and bring a step each 100 ms.
const cancel = new AbortController();
const endless = text(client, 'count', { n: 1000, delayMs: 100 }, { signal: cancel.signal, onprogress: () => cancel.abort('enough') });
seen.cancelled = await endless.catch(String);
seen.went = await text(client, 'echo', { text: 'on' });
const then = log.messages.length;
await new Promise(done => setTimeout(done, 500));
seen.late = log.messages.slice(then).filter(m => m.method !== 'notifications/resources/list_changed').length;
dropUnknown(); // a step that was under way when the call was cancelled

await client.subscribeResource({ uri: `note:///${note}` });
await text(other.client, 'set-note', { name: note, text: 'rain' });
await until(() => seen.listChanged > 0 && seen.updated.length > 0);

seen.closing = true;
const session = transport.sessionId;
const posted = log.exchanges.findLast(e => e.method === 'POST')?.url;
await transport.terminateSession?.();
seen.deleted = log.exchanges.find(e => e.method === 'DELETE')?.status ?? null;
await client.close();
seen.servers = servers.map(server => ({ exit: server.exitCode, signalled: server.killed }));
await until(async () => { // over HTTP+SSE the end of the stream has to arrive first
  if (mode === 'stdio') return true;
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
await other.transport?.terminateSession?.();
await other.client.close();
console.log(JSON.stringify(seen));
process.exit();
