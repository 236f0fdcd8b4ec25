// What pages do in browser_test.go. Each function is one page; what it returns goes back to the test.

const json = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream' };
const rpc = (id, method, params) => JSON.stringify({ jsonrpc: '2.0', id, method, params });
const initialize = rpc('init', 'initialize', {
  protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'page', version: '1' },
});
const setNote = name => rpc('set', 'tools/call', { name: 'set-note', arguments: { name, text: 'rain' } });

// events yields [id, message] pairs as they arrive; the message of an event without data is null.
async function* events(response) {
  let buffer = '';
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    buffer += chunk;
    for (let end; (end = buffer.indexOf('\n\n')) >= 0; buffer = buffer.slice(end + 2)) {
      const field = name => buffer.slice(0, end).split('\n').find(line => line.startsWith(name + ':'))?.slice(name.length + 1).trim();
      if (field('data') !== undefined) yield [field('id'), field('data') ? JSON.parse(field('data')) : null];
    }
  }
}

// allowed is a client in a page that the server has been told of.
async function allowed({ mcp, sse }) {
  const seen = { steps: [], results: [] };
  let response = await fetch(mcp, { method: 'POST', headers: json, body: initialize });
  const session = response.headers.get('Mcp-Session-Id');
  seen.initialize = response.status;
  seen.session = session !== null;
  seen.server = (await response.json()).result.serverInfo.name;
  const headers = { ...json, 'Mcp-Session-Id': session, 'MCP-Protocol-Version': '2025-11-25' };
  const post = body => fetch(mcp, { method: 'POST', headers, body });
  seen.initialized = (await post(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }))).status;

  response = await post(rpc(2, 'tools/call', { name: 'count', arguments: { n: 5, delayMs: 300 }, _meta: { progressToken: 'page' } }));
  seen.type = response.headers.get('Content-Type');
  let alone = 0, before = performance.now();
  for await (const [, message] of events(response)) {
    if (message?.method === 'notifications/progress') {
      if (performance.now() - before > 100) alone++;
      before = performance.now();
      seen.steps.push(message.params.progress);
    } else if (message) {
      seen.results.push(message.result.content[0].text);
    }
  }

  seen.live = alone >= 3; // a slow machine may hold up some

  const listen = async (after, name) => { // opens the stream, or resumes it, and hears of a note
    const stop = new AbortController();
    const resuming = after && { 'Last-Event-ID': after };
    const response = await fetch(mcp, { headers: { ...headers, Accept: 'text/event-stream', ...resuming }, signal: stop.signal });
    seen[name] = response.status;
    await (await post(setNote(name))).text();
    for await (const [id, message] of events(response)) {
      if (message) {
        seen[name + ' heard'] = message.method;
        stop.abort();
        return id;
      }
    }
  };
  await listen(await listen(undefined, 'listened'), 'resumed');

  seen.deleted = (await fetch(mcp, { method: 'DELETE', headers })).status;
  seen.after = (await post(rpc(3, 'ping', {}))).status; // an error can be read, too

  const source = new EventSource(sse);
  const next = type => new Promise((resolve, reject) => { source.addEventListener(type, resolve); source.onerror = reject; });
  const answered = next('message');
  const endpoint = new URL((await next('endpoint')).data, sse);
  seen.posted = (await fetch(endpoint, { method: 'POST', headers: json, body: initialize })).status;
  const answer = await answered;
  seen['HTTP+SSE'] = JSON.parse(answer.data).result.serverInfo.name;
  source.close();
  return seen;
}

// attempt says what a page learns from one request.
async function attempt(url, init) {
  try {
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(20_000) });
    const said = response.type === 'opaque' ? 'opaque' : response.status;
    response.body?.cancel();
    return said;
  } catch (error) {
    return error.name;
  }
}

// foreign is a page of somebody else: it tries to read, and to change something without being able to read.
async function foreign({ mcp, sse, stateless }) {
  const seen = {};
  for (const url of [mcp, stateless]) {
    const at = url === mcp ? 'mcp ' : 'stateless ';
    seen[at + 'json'] = await attempt(url, { method: 'POST', headers: json, body: initialize });
    seen[at + 'text'] = await attempt(url, { method: 'POST', headers: { 'Content-Type': 'text/plain' }, body: setNote('text') });
    seen[at + 'typeless'] = await attempt(url, { method: 'POST', body: new Blob([setNote('typeless')]) });
    seen[at + 'GET'] = await attempt(url, { headers: { Accept: 'text/event-stream' } });
    seen[at + 'DELETE'] = await attempt(url, { method: 'DELETE', headers: { 'Mcp-Session-Id': 'any' } });
    for (const type of ['text/plain', 'application/json', 'application/x-www-form-urlencoded']) { // a page that does not look at the answer
      const body = new Blob([setNote('blind')], { type });
      seen[at + 'blind ' + type] = await attempt(url, { method: 'POST', mode: 'no-cors', credentials: 'include', body });
    }
    seen[at + 'blind GET'] = await attempt(url, { mode: 'no-cors' });
    await form(url);
  }
  seen['sse GET'] = await attempt(sse, { headers: { Accept: 'text/event-stream' } });
  seen['sse source'] = await new Promise(done => {
    const source = new EventSource(sse);
    source.onerror = () => { source.close(); done('error'); };
    for (const type of ['endpoint', 'message', 'open']) source.addEventListener(type, () => { source.close(); done(type); });
  });
  return seen;
}

// form posts JSON as a form can: name=value as text/plain. It waits until the answer is in a frame, which the page may not look into.
function form(url) {
  const [name, value] = setNote('form').split('rain');
  const html = document.createElement('form');
  Object.assign(html, { action: url, method: 'POST', enctype: 'text/plain', target: 'frame' });
  const field = Object.assign(document.createElement('input'), { name, value });
  html.append(field);
  const frame = Object.assign(document.createElement('iframe'), { name: 'frame' });
  document.body.append(frame, html);
  return new Promise(done => {
    frame.onload = () => { frame.remove(); html.remove(); done(); };
    html.submit();
  });
}

// rebound is a page whose name leads to the server by now, so that for the browser they are of one origin.
async function rebound() {
  const seen = {};
  for (const path of ['/mcp', '/sse']) {
    seen[path + ' POST'] = await attempt(path, { method: 'POST', headers: json, body: initialize });
    seen[path + ' GET'] = await attempt(path, { headers: { Accept: 'text/event-stream' } });
    seen[path + ' DELETE'] = await attempt(path, { method: 'DELETE', headers: { 'Mcp-Session-Id': 'any' } });
    seen[path + ' OPTIONS'] = await attempt(path, { method: 'OPTIONS' });
  }
  return seen;
}
