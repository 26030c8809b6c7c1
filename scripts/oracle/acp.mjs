// Drives "proxy acp" with the Agent Client Protocol's own SDK for JavaScript, which plays the editor and the agent. Its
// argument is the program proxy, whose directory is in the environment. The agent is this file with the argument "agent": each prompt to it is a
// request that it makes of its editor, as JSON, and its answer is the message with which it ends the turn.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { agent, client, methods, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk';

const streamOf = (output, input) => ndJsonStream(Writable.toWeb(output), Readable.toWeb(input));

if (process.argv[2] === 'agent') {
  let capabilities;
  const calls = new Map(); // requests that can be cancelled, by name
  agent({ name: 'scripted' })
    .onRequest(methods.agent.initialize, ({ params }) => {
      capabilities = params.clientCapabilities;
      return { protocolVersion: PROTOCOL_VERSION, agentCapabilities: { loadSession: true } };
    })
    .onRequest(methods.agent.session.new, () => ({ sessionId: 'conversation' }))
    .onRequest(methods.agent.session.load, () => ({}))
    .onRequest(methods.agent.session.prompt, async ({ params, client: editor }) => {
      const { sessionId } = params;
      const { method, update, name, cancel, ...rest } = JSON.parse(params.prompt[0].text);
      let answer = {};
      try {
        if (update) await editor.notify('session/update', { sessionId, update });
        else if (cancel) calls.get(cancel).abort();
        else if (method === 'capabilities') answer = capabilities;
        else {
          const controller = new AbortController();
          calls.set(name, controller);
          answer = await editor.request(method, { sessionId, ...rest }, { cancellationSignal: controller.signal });
        }
      } catch ({ code, message, data }) {
        answer = { error: code ?? 'none', message, data };
      }
      await editor.notify('session/update', {
        sessionId,
        update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: JSON.stringify({ name, answer }) } },
      });
      return { stopReason: 'end_turn' };
    })
    .connect(streamOf(process.stdout, process.stdin));
} else {
  await drive(process.argv[2]);
}

// openEditor starts the command and connects with it as an editor that has no terminals.
async function openEditor(program, load) {
  const child = spawn(program, ['acp', '--', process.execPath, 'acp.mjs', 'agent'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const waiting = new Map();
  const updates = [];
  let wake = () => {};
  const connection = client({ name: 'editor' })
    .onNotification(methods.client.session.update, ({ params }) => {
      const { update } = params;
      if (update.sessionUpdate === 'agent_message_chunk') {
        const { name, answer } = JSON.parse(update.content.text);
        waiting.get(name)(answer);
      } else updates.push(update);
      wake();
    })
    .connect(streamOf(child.stdin, child.stdout));
  const { agent: agentSide } = connection;
  await agentSide.request('initialize', { protocolVersion: PROTOCOL_VERSION, clientCapabilities: { fs: { readTextFile: true } } });
  const session = { cwd: '/usr/share', mcpServers: [] };
  if (load) await agentSide.request('session/load', { ...session, sessionId: 'conversation' });
  else await agentSide.request('session/new', session);
  let count = 0;
  // ask lets the agent make a request of its editor, and returns the answer that the agent gets.
  const ask = (method, params = {}) => {
    const name = params.name ?? `call ${(count += 1)}`;
    const answer = new Promise((resolve) => waiting.set(name, resolve));
    const text = JSON.stringify({ method, ...params, name });
    agentSide.request('session/prompt', { sessionId: 'conversation', prompt: [{ type: 'text', text }] }).catch(() => {}); // if the test kills the agent
    return answer;
  };
  const nextUpdate = async () => {
    while (updates.length === 0) await new Promise((resolve) => (wake = resolve));
    return updates.shift();
  };
  return { child, ask, nextUpdate };
}

async function drive(program) {
  const proxy = (...args) => execFileSync(program, args, { encoding: 'utf8' });
  let editor = await openEditor(program);
  const { ask } = editor;
  const create = async (params) => (await ask('terminal/create', params)).terminalId;

  // The agent learns that it has terminals, and keeps what the editor has said.
  assert.deepEqual(await ask('capabilities'), { fs: { readTextFile: true, writeTextFile: false }, terminal: true, auth: { terminal: false } });

  // A command line, in the directory of the conversation; a program with arguments, variables and a directory.
  let id = await create({ command: 'echo out; pwd >&2; exit 3' });
  assert.deepEqual(await ask('terminal/wait_for_exit', { terminalId: id }), { exitCode: 3, signal: null });
  assert.deepEqual(await ask('terminal/output', { terminalId: id }), { output: 'out\n/usr/share\n', truncated: false, exitStatus: { exitCode: 3, signal: null } });
  id = await create({ command: 'sh', args: ['-c', 'echo "$WORD in $PWD; $0"', 'a b'], env: [{ name: 'WORD', value: 'x=y' }], cwd: '/usr' });
  await ask('terminal/wait_for_exit', { terminalId: id });
  assert.equal((await ask('terminal/output', { terminalId: id })).output, 'x=y in /usr; a b\n');
  assert.equal((await ask('terminal/create', { command: '/no/such', args: ['x'] })).data.code, 'spawn_failed');
  assert.equal((await ask('terminal/create', { command: 'true', cwd: 'relative' })).error, -32602);

  // The output is cut at its beginning, and not inside a character. A progress bar is its last state.
  id = await create({ command: "printf '1%%\\r100%%\\n'; printf 'äöü€%.0s' 1 2 3", outputByteLimit: 14 });
  await ask('terminal/wait_for_exit', { terminalId: id });
  assert.deepEqual(await ask('terminal/output', { terminalId: id }), { output: '€äöü€\n', truncated: true, exitStatus: { exitCode: 0, signal: null } });
  id = await create({ command: "printf '1%%\\r100%%\\n'; seq 5000", outputByteLimit: 1e6 });
  await ask('terminal/wait_for_exit', { terminalId: id });
  assert.match((await ask('terminal/output', { terminalId: id })).output, /^100%\n1\n2\n[^]*\n5000\n$/);

  // A command runs on while the proxy is replaced and killed, and a person sees it.
  const long = await create({ command: 'echo begun; while [ ! -e "$HOME/go" ]; do sleep 0.05; done; echo ended' });
  const exit = ask('terminal/wait_for_exit', { terminalId: long });
  assert.match(proxy('ls'), new RegExp(`^${long} `, 'm'));
  proxy('wait', long, '--text', 'begun');
  proxy('handoff');
  assert.deepEqual(await ask('terminal/output', { terminalId: long }), { output: 'begun\n', truncated: false });
  process.kill(JSON.parse(proxy('status', '--json')).proxy.pid, 'SIGKILL');
  assert.deepEqual(await ask('terminal/output', { terminalId: long }), { output: 'begun\n', truncated: false });

  // The editor does not know the terminal, so it gets text, and the output when the command has ended.
  const content = [{ type: 'terminal', terminalId: long }, { type: 'content', content: { type: 'text', text: 'more' } }];
  await ask('', { update: { sessionUpdate: 'tool_call', toolCallId: 'tool', title: 'run', content } });
  const shown = (await editor.nextUpdate()).content;
  assert.match(shown[0].content.text, new RegExp(`holdfast attach ${long}`));
  assert.equal(shown[1].content.text, 'more');
  proxy('run', '--', 'sh', '-c', 'touch "$HOME/go"');
  assert.deepEqual(await exit, { exitCode: 0, signal: null });
  const { toolCallId, content: final } = await editor.nextUpdate();
  assert.equal(toolCallId, 'tool');
  assert.match(final[0].content.text, /has ended\.\n```\nbegun\nended\n```$/);

  // Kill keeps the output and tells the signal; a wait for another one can be cancelled.
  id = await create({ command: 'echo kept; exec sleep 1000' });
  proxy('wait', id, '--text', 'kept');
  const cancelled = ask('terminal/wait_for_exit', { terminalId: id, name: 'wait' });
  await ask('', { cancel: 'wait' });
  assert.equal((await cancelled).error, -32800);
  assert.deepEqual(await ask('terminal/kill', { terminalId: id }), {});
  assert.deepEqual(await ask('terminal/output', { terminalId: id }), { output: 'kept\n', truncated: false, exitStatus: { exitCode: null, signal: 'SIGHUP' } });

  // Release ends the command, and makes the id invalid. People can still read the output.
  id = await create({ command: 'echo seen; exec sleep 1000' });
  proxy('wait', id, '--text', 'seen');
  assert.deepEqual(await ask('terminal/release', { terminalId: id }), {});
  assert.equal((await ask('terminal/output', { terminalId: id })).data.code, 'session_not_found');
  assert.match(proxy('export', id), /seen/);
  assert.equal(JSON.parse(proxy('info', id, '--json')).exit.signal, 'SIGHUP');

  // Only terminals of this conversation are the agent's.
  proxy('new', '--detach', '--id', 'mine', '--', 'cat');
  assert.equal((await ask('terminal/kill', { terminalId: 'mine' })).error, -32002);
  assert.equal((await ask('terminal/kill', { terminalId: 7 })).error, -32602);

  // A terminal survives the death of the command, the agent and the editor, and another one takes it over.
  const left = await create({ command: 'echo left; read word; echo "got $word"; exit 4' });
  proxy('wait', left, '--text', 'left');
  editor.child.kill('SIGKILL');
  await once(editor.child, 'close');
  editor = await openEditor(program, true);
  assert.deepEqual(await editor.ask('terminal/output', { terminalId: left }), { output: 'left\n', truncated: false });
  proxy('send', left, '--enter', 'word');
  assert.deepEqual(await editor.ask('terminal/wait_for_exit', { terminalId: left }), { exitCode: 4, signal: null });

  // When the editor closes the connection, the agent ends, and the command with its code; terminals do not.
  const last = (await editor.ask('terminal/create', { command: 'exec sleep 1000' })).terminalId;
  editor.child.stdin.end();
  assert.deepEqual(await once(editor.child, 'close'), [0, null]);
  assert.equal(JSON.parse(proxy('info', last, '--json')).state, 'running');
}
