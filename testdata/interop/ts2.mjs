// The TypeScript SDK's client of the second generation, which knows both eras, with mcpwire. Prints what came of it, as one line of JSON.
//
//	node ts2.mjs ERA connect http URL              who is there, and what it offers
//	node ts2.mjs ERA connect stdio COMMAND [ARG…]
//	node ts2.mjs ERA session http URL NOTE         a whole session, with a note of that name
//	node ts2.mjs ERA session stdio COMMAND NOTE [ARG…]
//	node ts2.mjs ERA cancel http URL               a call that is cancelled beside a subscription; ends when the server has ended
//
// ERA is legacy (initialize), auto (server/discover, and initialize if need be), or the one version that is to be spoken.

import childProcess from 'node:child_process';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, what, ...rest] = process.argv.slice(2);
const mode = era === 'legacy' || era === 'auto' ? era : { pin: era };
const seen = { errors: [] };

const servers = []; // the processes that the SDK starts
const { spawn } = childProcess;
childProcess.spawn = (...how) => {
  servers.push(spawn(...how));
  return servers.at(-1);
};

// connect begins. What passes below the SDK is kept: of each exchange the method of HTTP, what the header repeats of the body, and the
// status; and messages, in the order in which they came.
async function connect(transport, log = { exchanges: [], messages: [] }) {
  const client = new Client({ name: 'interop', version: '2' }, { capabilities: { elicitation: {} }, versionNegotiation: { mode } });
  client.onerror = error => seen.closing || seen.errors.push(String(error));
  client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Ada' } }));
  transport.onmessage = message => log.messages.push(message);
  await client.connect(transport);
  return { client, transport, log };
}

async function connectTo(kind, target, ...args) {
  if (kind === 'stdio') return connect(new StdioClientTransport({ command: target, args }));
  const log = { exchanges: [], messages: [] };
  const watched = async (input, init) => {
    const response = await fetch(input, init);
    const said = Object.fromEntries([...new Headers(init?.headers)].filter(([name]) => name.startsWith('mcp-')));
    log.exchanges.push({ http: init?.method ?? 'GET', status: response.status, said });
    return response;
  };
  return connect(new StreamableHTTPClientTransport(new URL(target), { fetch: watched }), log);
}

async function until(reached) {
  for (const start = Date.now(); !(await reached()); await new Promise(done => setTimeout(done, 5))) {
    if (Date.now() - start > 15_000) throw new Error(`not reached: ${reached}`);
  }
}

const text = async (client, name, args, options) => {
  const result = await client.callTool({ name, arguments: args }, options);
  return result.isError ? 'an error' : result.content[0].text;
};
const code = promise => promise.then(() => 'no error', error => error.code);

if (what === 'connect') {
  const { client } = await connectTo(...rest);
  seen.era = client.getProtocolEra();
  seen.version = client.getNegotiatedProtocolVersion();
  seen.tools = (await client.listTools()).tools.length;
  await client.close();
  console.log(JSON.stringify(seen));
  process.exit();
}

const [kind, target, note, ...args] = rest;
const { client, transport, log } = await connectTo(kind, target, ...args);
const last = () => log.exchanges.at(-1).said;

// cancelAtOnce cancels a call at its first step. To the end it would take 100 s, and bring a step each 100 ms.
async function cancelAtOnce() {
  const cancel = new AbortController();
  seen.steps = 0;
  const call = client.callTool({ name: 'count', arguments: { n: 1000, delayMs: 100 } },
    { signal: cancel.signal, onprogress: () => { seen.steps++; cancel.abort('enough'); } });
  seen.cancelled = await call.then(() => 'no', String);
}

if (what === 'cancel') {
  const subscription = await client.listen({ resourcesListChanged: true });
  await cancelAtOnce();
  const then = log.messages.length;
  seen.after = await text(client, 'echo', { text: 'still here' });
  await until(() => fetch(target).then(response => response.body?.cancel(), () => true)); // it cannot be reached any more
  seen.closed = await subscription.closed;
  seen.late = log.messages.slice(then).filter(m => m.method === 'notifications/progress').length;
  seen.notified = log.exchanges.filter(e => e.said['mcp-method'] === 'notifications/cancelled').length;
  console.log(JSON.stringify(seen));
  process.exit();
}

seen.era = client.getProtocolEra();
seen.version = client.getNegotiatedProtocolVersion();
seen.server = client.getServerVersion().name;

// An argument that has to be in the header: the SDK can know of it only from tools/list. Called before that, it is told, lists the tools,
// and calls again.
if (kind === 'http') {
  seen.early = await text(client, 'get-weather', { city: 'Oslo', unit: 'fahrenheit' });
  seen.earlyExchanges = log.exchanges.filter(e => e.said['mcp-method'] !== 'server/discover').map(e => `${e.said['mcp-method']} ${e.status}`);
}
seen.tools = (await client.listTools()).tools.map(tool => tool.name);
seen.weather = await text(client, 'get-weather', { city: 'Oslo', unit: 'fahrenheit' });
if (kind === 'http') {
  seen.said = last();
  seen.unit = [await text(client, 'get-weather', { city: 'Oslo', unit: 'réaumur' }), last()['mcp-param-unit']];
}
seen.missing = await client.callTool({ name: 'get-weather', arguments: {} }).catch(error => [error.code, error.data]);
seen.unknown = await code(client.callTool({ name: 'no-such-tool', arguments: {} }));
seen.echo = await text(client, 'echo', { text: 'añ€😀', repeat: 100_000 }) === 'añ€😀'.repeat(100_000);
seen.note = (await client.readResource({ uri: 'note:///welcome' })).contents[0].text;
seen.prompt = (await client.getPrompt({ name: 'summarize-note', arguments: { name: 'welcome' } })).messages.length;
seen.completion = (await client.complete({
  ref: { type: 'ref/prompt', name: 'summarize-note' }, argument: { name: 'name', value: 'wel' },
})).completion.values;

// Names that no header can hold as they are. There is nothing of such a name; were the header not understood, it would be another error.
seen.names = [];
for (const name of kind !== 'http' ? [] : ['naïve', ' padded ', '=?base64?bm90ZQ==?=', '', 'a\tb']) {
  const codes = [
    await code(client.readResource({ uri: name })),
    await code(client.callTool({ name, arguments: {} })),
    await code(client.getPrompt({ name })),
  ];
  const sent = new Set(log.exchanges.slice(-3).map(e => e.said['mcp-name'])); // the same for all three
  seen.names.push([name, ...sent, ...codes]);
}

// Over stdio the SDK handles a notification after the response that came in the same read, and takes its token for an unknown one by then:
// there only the messages have to be complete.
const steps = [];
log.messages.length = 0;
seen.counted = await text(client, 'count', { n: 50 }, { onprogress: p => steps.push(p.progress) });
const upwards = numbers => numbers.every((n, i) => n === i + 1);
seen.inOrder = log.messages.length === 51
  && upwards(log.messages.slice(0, -1).map(m => m.method === 'notifications/progress' && m.params.progress))
  && 'result' in log.messages.at(-1) && upwards(steps) && (kind === 'stdio' || steps.length === 50);
if (kind === 'stdio') seen.errors = seen.errors.filter(error => !error.includes('progress notification for an unknown token'));

log.messages.length = 0;
seen.asked = await text(client, 'ask', {});
seen.rounds = log.messages.map(m => m.method ?? m.result.resultType ?? 'result');

if (kind === 'stdio') {
  await cancelAtOnce();
  seen.went = await text(client, 'echo', { text: 'on' });
  const then = log.messages.length;
  await new Promise(done => setTimeout(done, 500));
  seen.late = log.messages.length - then;
}

// A subscription: changes that another client makes. Over stdio there is no other.
const other = kind === 'http' ? await connectTo(kind, target) : { client };
const heard = [];
client.setNotificationHandler('notifications/resources/list_changed', () => { heard.push('list changed'); });
client.setNotificationHandler('notifications/resources/updated', n => { heard.push(n.params.uri); });
const uri = `note:///${note}`;
const modern = seen.era === 'modern';
const subscription = modern ? await client.listen({ resourcesListChanged: true, resourceSubscriptions: [uri] })
  : await client.subscribeResource({ uri });
seen.honoured = subscription.honoredFilter;
await text(other.client, 'set-note', { name: note, text: 'rain' });
await until(() => heard.includes('list changed') && heard.includes(uri));
seen.heard = [...new Set(heard)].sort();
seen.closing = true;
await (modern ? subscription.close() : client.unsubscribeResource({ uri }));
seen.closed = await subscription.closed;
// In the modern era a connection that closes says so, and nothing orders that and the next call: an update may still come, but not for ever.
let round = 0;
do {
  heard.length = 0;
  await text(other.client, 'set-note', { name: note, text: `sun ${round++}` });
  seen.after = await text(client, 'echo', { text: 'still here' });
  await new Promise(done => setTimeout(done, 50));
} while (modern && heard.includes(uri) && round < 20);
seen.updates = heard.filter(h => h !== 'list changed').length;

seen.http = [...new Set(log.exchanges.map(e => e.http))].sort();
seen.session = transport.sessionId !== undefined || log.exchanges.some(e => 'mcp-session-id' in e.said);
await other.client.close();
await client.close();
seen.servers = servers.map(server => ({ exit: server.exitCode, signalled: server.killed }));
console.log(JSON.stringify(seen));
process.exit();
