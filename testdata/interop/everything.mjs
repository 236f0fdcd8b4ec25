// A session of the TypeScript SDK's client with server-everything. Prints what came of it, as one line of JSON.
//
//	node everything.mjs COMMAND [ARG…]

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const seen = { errors: [] };
const client = new Client({ name: 'interop', version: '1' }, { capabilities: { elicitation: {} } });
client.onerror = error => seen.errors.push(String(error));
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { name: 'Ada' } }));
const updated = new Promise(done => client.setNotificationHandler(ResourceUpdatedNotificationSchema, n => done(n.params.uri)));
await client.connect(new StdioClientTransport({ command, args }));
seen.server = client.getServerVersion().name;

const text = async (name, args, options) => (await client.callTool({ name, arguments: args }, undefined, options)).content;
seen.echo = (await text('echo', { message: 'añ€😀' }))[0].text;

const steps = [];
await text('trigger-long-running-operation', { duration: 0.4, steps: 4 }, { onprogress: p => steps.push(p.progress) });
seen.steps = steps.filter(step => step <= 3); // the SDK may handle the last one after the response, and drops it then

seen.asked = (await text('trigger-elicitation-request', {}))[1].text;

const cancel = new AbortController();
const endless = text('trigger-long-running-operation', { duration: 2, steps: 20 },
  { signal: cancel.signal, onprogress: () => cancel.abort('enough') });
seen.cancelled = await endless.catch(String);
seen.went = (await text('echo', { message: 'on' }))[0].text;

const uri = 'demo://resource/dynamic/text/1';
await client.subscribeResource({ uri });
await text('toggle-subscriber-updates', {});
seen.updated = await updated;
await text('toggle-subscriber-updates', {});

await client.close();
// The SDK may handle progress after the response that came with it, and the tool whose call was cancelled goes on for two seconds.
seen.errors = seen.errors.filter(error => !error.includes('progress notification for an unknown token'));
console.log(JSON.stringify(seen));
process.exit();
